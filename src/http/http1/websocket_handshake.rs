//! The handshake of a WebSocket over HTTP/1.1 (RFC 6455 section 4.2).
//!
//! Not here: the messages of a WebSocket (`ws`).

use aws_lc_rs::digest;

use crate::response_errors::Refusal;

/// The client's key as it was sent: 16 bytes in base64.
pub(super) type Key = [u8; KEY_CHARS];

/// The fields of a handshake, except Connection and Upgrade.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    pub key: Option<Key>,
    pub is_key_invalid: bool,
    is_version_13: bool,
    has_version: bool,
}

impl Handshake {
    /// Reads a field Sec-WebSocket-Key.
    pub fn key(&mut self, value: &[u8]) {
        let is_repeated = self.key.is_some();
        self.key = value.try_into().ok().filter(is_base64_of_16_bytes);
        self.is_key_invalid |= is_repeated || self.key.is_none();
    }

    /// Reads a field Sec-WebSocket-Version, which occurs once (RFC 6455 section 11.3.5).
    pub fn version(&mut self, value: &[u8]) {
        let is_repeated = std::mem::replace(&mut self.has_version, true);
        self.is_version_13 = value == b"13" && !is_repeated;
    }

    /// Checks the handshake and returns its key (RFC 6455 section 4.2.1). `is_plain_get` is true for a GET without
    /// content.
    pub fn checked(&self, is_plain_get: bool) -> Result<Key, Refusal> {
        if !is_plain_get {
            return Err(Refusal::new(
                400,
                "a WebSocket begins with a GET without content",
            ));
        }
        if !self.is_version_13 {
            // The response names version 13 (RFC 6455 section 4.2.2).
            return Err(Refusal::new(426, "sec-websocket-version is not 13"));
        }
        match self.key {
            Some(key) if !self.is_key_invalid => Ok(key),
            _ => Err(Refusal::new(
                400,
                "sec-websocket-key is not 16 bytes in base64",
            )),
        }
    }
}

fn is_base64_of_16_bytes(key: &Key) -> bool {
    let (digits, padding) = key.split_at(KEY_CHARS - 2);
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    padding == b"==" && digits.iter().all(is_digit)
}

/// Computes the value of Sec-WebSocket-Accept (RFC 6455 section 4.2.2).
pub(super) fn accept(key: &Key) -> [u8; 28] {
    let mut input = key.to_vec();
    input.extend_from_slice(GUID);
    let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &input);
    let mut text = [b'='; 28];
    for (bytes, digits) in hash.as_ref().chunks(3).zip(text.chunks_mut(4)) {
        let [first, second, third] = [0, 1, 2].map(|at| bytes.get(at).copied().unwrap_or(0));
        let group = u32::from(first) << 16 | u32::from(second) << 8 | u32::from(third);
        // A group of n bytes has n + 1 digits, and padding fills the rest.
        for (at, digit) in digits.iter_mut().enumerate().take(bytes.len() + 1) {
            *digit = DIGITS[(group >> (18 - 6 * at) & 63) as usize];
        }
    }
    text
}

const KEY_CHARS: usize = 24;
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_the_rfc_has_its_answer() {
        assert_eq!(
            &accept(b"dGhlIHNhbXBsZSBub25jZQ=="),
            b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }

    #[test]
    fn a_version_occurs_once() {
        let is_taken = |versions: &[&[u8]]| {
            let mut handshake = Handshake::default();
            handshake.key(b"dGhlIHNhbXBsZSBub25jZQ==");
            versions.iter().for_each(|it| handshake.version(it));
            handshake.checked(true).is_ok()
        };
        assert!(is_taken(&[b"13"]));
        for refused in [
            &[][..],
            &[&b"8"[..]],
            &[b"8", b"13"],
            &[b"13", b"8"],
            &[b"13", b"13"],
        ] {
            assert!(!is_taken(refused), "{refused:?}");
        }
    }

    #[test]
    fn a_key_is_sixteen_bytes_and_occurs_once() {
        let status = |keys: &[&[u8]]| {
            let mut handshake = Handshake {
                is_version_13: true,
                ..Handshake::default()
            };
            keys.iter().for_each(|key| handshake.key(key));
            handshake
                .checked(true)
                .map_err(|refusal| refusal.status)
                .err()
        };
        let good = &b"dGhlIHNhbXBsZSBub25jZQ=="[..];
        assert_eq!(status(&[good]), None);
        assert_eq!(status(&[]), Some(400));
        assert_eq!(status(&[good, good]), Some(400));
        assert_eq!(status(&[b"short", good]), Some(400));
        for bad in [
            &b""[..],
            b"dGhlIHNhbXBsZSBub25jZQ",
            b"dGhlIHNhbXBsZSBub25jZQ=a",
            b"dGhlIHNhbXBsZSBub25j*Q==",
        ] {
            assert_eq!(status(&[bad]), Some(400), "{}", bad.escape_ascii());
        }
        let old = Handshake::default();
        assert_eq!(
            old.checked(true).map_err(|refusal| refusal.status),
            Err(426)
        );
        assert_eq!(
            old.checked(false).map_err(|refusal| refusal.status),
            Err(400)
        );
    }
}
