//! The extensions of a ClientHello (RFC 8446 section 4.1.2) that are needed before the TLS library reads the message:
//! the tickets, because a session store may need time to look up a session, and the transport parameters, from which a
//! server chooses a QUIC version. All other fields are skipped.
//!
//! Nothing is validated here. A malformed message has no extensions, and the TLS library reports the error.

use super::{CLIENT_HELLO, counted, extension, message, take};

/// A complete ClientHello message, of which some extensions can be read.
pub struct ClientHello<'a> {
    extensions: &'a [u8],
}

impl<'a> ClientHello<'a> {
    /// Parses the content of the message, without its handshake header.
    pub fn read(content: &'a [u8]) -> Option<Self> {
        let mut rest = content;
        // Skips legacy_version, random, legacy_session_id, cipher_suites and legacy_compression_methods.
        take(&mut rest, 2 + 32)?;
        counted::<1>(&mut rest)?;
        counted::<2>(&mut rest)?;
        counted::<1>(&mut rest)?;
        let extensions = counted::<2>(&mut rest)?;
        Some(Self { extensions })
    }

    /// The client's QUIC transport parameters (RFC 9001 section 8.2), encoded.
    pub fn transport_parameters(&self) -> Option<&'a [u8]> {
        self.extension(QUIC_TRANSPORT_PARAMETERS)
    }

    /// The session tickets that the client offers for resumption (RFC 8446 section 4.2.11).
    pub fn tickets(&self) -> Option<Vec<Vec<u8>>> {
        let mut identities = counted::<2>(&mut self.extension(PRE_SHARED_KEY)?)?;
        let mut found = Vec::new();
        while !identities.is_empty() && found.len() < TICKETS_MAX {
            found.push(counted::<2>(&mut identities)?.to_vec());
            // Skips obfuscated_ticket_age.
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

/// The length, handshake header included, of the ClientHello at the start of `bytes`. `None` if another message is
/// there, or the header is incomplete.
pub fn hello_length(bytes: &[u8]) -> Option<usize> {
    let head = bytes.first_chunk::<4>()?;
    let length = 4 + u32::from_be_bytes([0, head[1], head[2], head[3]]) as usize;
    (head[0] == CLIENT_HELLO && length <= bytes.len()).then_some(length)
}

/// The session tickets of the ClientHello at the start of `bytes`; `None` while the message is incomplete.
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
/// The maximum number of tickets that are read. Clients offer one or two.
const TICKETS_MAX: usize = 4;
/// The largest handshake message that is buffered: as much as QUIC must be able to buffer (RFC 9000 section 7.5), and
/// more than rustls sends.
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
