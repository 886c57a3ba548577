//! ORIGIN frames (RFC 9412, RFC 8336): the further origins that a server is authoritative for on this connection.
//!
//! Not here: the connection's own origin, which is in every Origin Set and known to the host, and the use of the
//! set.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use bytes::Bytes;

use super::error::{Code, ConnectionError};
use super::frame::{self, frame_type};

/// The limit of a frame's payload, and of all stored origins of a server, in bytes.
pub const ORIGINS_LENGTH_MAX: u64 = 16 * 1024;

/// A frame with these origins. An origin that is longer than an Origin-Entry can be is left out.
pub(super) fn to_frame(origins: &[Bytes]) -> Bytes {
    let mut payload = Vec::new();
    for origin in origins {
        if let Ok(length) = u16::try_from(origin.len()) {
            payload.extend_from_slice(&length.to_be_bytes());
            payload.extend_from_slice(origin);
        }
    }
    frame::frame(frame_type::ORIGIN, &[&payload])
}

/// The origins in all of a server's frames: at most [`ORIGINS_LENGTH_MAX`] bytes, the rest is ignored. For a
/// missing origin a client makes one more connection.
#[derive(Debug, Default)]
pub(super) struct Origins {
    names: BTreeSet<String>,
    length: usize,
}

impl Origins {
    /// Adds the origins of a frame's payload (RFC 8336 section 2.3).
    pub fn add(&mut self, mut payload: &[u8]) -> Result<(), ConnectionError> {
        while !payload.is_empty() {
            // RFC 9114 section 7.1.
            let (entry, rest) = split_entry(payload).ok_or_else(|| {
                ConnectionError::new(Code::H3_FRAME_ERROR, "ORIGIN frame ends inside an origin")
            })?;
            payload = rest;
            // RFC 8336 section 2.2: an entry that cannot be parsed is ignored.
            if let Some(name) = parse(entry)
                && self.length + name.len() <= ORIGINS_LENGTH_MAX as usize
            {
                let length = name.len();
                if self.names.insert(name) {
                    self.length += length;
                }
            }
        }
        Ok(())
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }
}

fn split_entry(payload: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = payload.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

/// The ASCII serialization of an origin (RFC 6454 section 6.2) in the form for comparison: in lower case, without
/// the default port. Only https origins, because HTTP/3 serves those, and no wildcards (RFC 8336 section 2.2).
fn parse(entry: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(entry).ok()?.to_ascii_lowercase();
    let authority = text.strip_prefix("https://")?;
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (authority, "443"),
    };
    let literal = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let is_host = match literal {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(is_name_byte),
    };
    if !is_host || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    match port.parse().ok()? {
        0u16 => None,
        443 => Some(format!("https://{host}")),
        port => Some(format!("https://{host}:{port}")),
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_an_origin_is_kept_in_one_spelling() {
        for (entry, name) in [
            ("https://a.example", Some("https://a.example")),
            ("HTTPS://A.example:443", Some("https://a.example")),
            ("https://a.example:8443", Some("https://a.example:8443")),
            ("https://[::1]", Some("https://[::1]")),
            ("https://[::1]:4433", Some("https://[::1]:4433")),
            ("", None),
            ("null", None),
            ("http://a.example", None),
            ("https://", None),
            ("https://*.example", None),
            ("https://a.example/", None),
            ("https://u@a.example", None),
            ("https://a.example:", None),
            ("https://a.example:0", None),
            ("https://a.example:+1", None),
            ("https://a.example:65536", None),
            ("https://[::1", None),
            ("https://[a.example]", None),
            ("https://b\u{fc}cher.example", None),
        ] {
            assert_eq!(parse(entry.as_bytes()).as_deref(), name, "{entry}");
        }
    }
}
