//! Fields of a ClientHello (RFC 8446 section 4.1.2), read before the TLS library reads it: a host may need time to
//! look up a session, and a server's choice of a QUIC version depends on it.
//!
//! Nothing is validated here. Malformed input yields nothing, and TLS reports the error.

use super::{CLIENT_HELLO, counted, extension, message, take};

/// A whole ClientHello.
pub struct ClientHello<'a> {
    extensions: &'a [u8],
}

impl<'a> ClientHello<'a> {
    /// Parses the message's content.
    pub fn read(content: &'a [u8]) -> Option<Self> {
        let mut rest = content;
        // legacy_version, random, legacy_session_id, cipher_suites, legacy_compression_methods.
        take(&mut rest, 2 + 32)?;
        counted::<1>(&mut rest)?;
        counted::<2>(&mut rest)?;
        counted::<1>(&mut rest)?;
        let extensions = counted::<2>(&mut rest)?;
        Some(Self { extensions })
    }

    /// The client's transport parameters (RFC 9001 section 8.2).
    pub fn transport_parameters(&self) -> Option<&'a [u8]> {
        self.extension(QUIC_TRANSPORT_PARAMETERS)
    }

    /// The tickets of sessions that the client offers to resume (RFC 8446 section 4.2.11).
    pub fn tickets(&self) -> Option<Vec<Vec<u8>>> {
        let mut identities = counted::<2>(&mut self.extension(PRE_SHARED_KEY)?)?;
        let mut found = Vec::new();
        while !identities.is_empty() && found.len() < TICKETS_MAX {
            found.push(counted::<2>(&mut identities)?.to_vec());
            // obfuscated_ticket_age
            take(&mut identities, 4)?;
        }
        Some(found)
    }

    fn extension(&self, wanted: u16) -> Option<&'a [u8]> {
        let mut rest = self.extensions;
        loop {
            let (kind, content) = extension(&mut rest)?;
            if kind == wanted {
                return Some(content);
            }
        }
    }
}

/// The length, with its header, of the ClientHello at the start of `bytes`; `None` for anything else, and while the
/// header is incomplete.
pub fn hello_length(bytes: &[u8]) -> Option<usize> {
    let head = bytes.first_chunk::<4>()?;
    let length = 4 + u32::from_be_bytes([0, head[1], head[2], head[3]]) as usize;
    (head[0] == CLIENT_HELLO && length <= bytes.len()).then_some(length)
}

/// The tickets of the ClientHello at the start of `bytes`; `None` while it is incomplete.
pub fn shown_tickets(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let head = bytes.first_chunk::<4>()?;
    let length = u32::from_be_bytes([0, head[1], head[2], head[3]]) as usize;
    if head[0] != CLIENT_HELLO || length > HELLO_BYTES_MAX {
        return Some(Vec::new());
    }
    let (_, content, _) = message(bytes)?;
    let tickets = ClientHello::read(content).and_then(|hello| hello.tickets());
    Some(tickets.unwrap_or_default())
}

const PRE_SHARED_KEY: u16 = 41;
const QUIC_TRANSPORT_PARAMETERS: u16 = 0x39;
/// Clients offer one or two.
const TICKETS_MAX: usize = 4;
/// The part of a handshake that QUIC must be able to buffer (RFC 9000 section 7.5); more than rustls sends.
pub const HELLO_BYTES_MAX: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(extensions: &[u8]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 1, 1, 0]);
        body.extend((extensions.len() as u16).to_be_bytes());
        body.extend(extensions);
        let mut hello = (body.len() as u32).to_be_bytes().to_vec();
        hello[0] = CLIENT_HELLO;
        hello.extend(body);
        hello
    }

    #[test]
    fn tickets_are_found_only_in_a_whole_client_hello() {
        let psk = [
            0, 43, 0, 3, 2, 3, 4, 0, 41, 0, 19, 0, 17, 0, 3, b'o', b'n', b'e', 1, 2, 3, 4, 0, 2,
            b't', b'w', 5, 6, 7, 8,
        ];
        let hello = hello(&psk);
        for length in 0..hello.len() {
            assert_eq!(shown_tickets(&hello[..length]), None, "{length}");
        }
        assert_eq!(
            shown_tickets(&hello),
            Some(vec![b"one".to_vec(), b"tw".to_vec()])
        );
    }

    #[test]
    fn a_malformed_client_hello_has_no_tickets() {
        let none = Some(Vec::new());
        assert_eq!(shown_tickets(&hello(&[])), none);
        assert_eq!(shown_tickets(&hello(&[0, 41, 0, 2, 0, 9])), none);
        assert_eq!(shown_tickets(&hello(&[0, 41, 0xff, 0xff])), none);
        assert_eq!(shown_tickets(&[2, 0, 0, 1, 0]), none, "no ClientHello");
        assert_eq!(
            shown_tickets(&[1, 0xff, 0xff, 0xff]),
            none,
            "too long for a ClientHello"
        );
        let whole = hello(&[0, 41, 0, 9, 0, 7, 0, 1, 9, 1, 2, 3, 4]);
        for at in 0..whole.len() {
            for flip in [1, 0x80, 0xff] {
                let mut bad = whole.clone();
                bad[at] ^= flip;
                let _ = shown_tickets(&bad);
            }
        }
    }
}
