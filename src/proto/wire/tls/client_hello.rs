//! The session tickets that a ClientHello shows (RFC 8446 section 4.2.11), read before TLS reads it:
//! a host may need time to look for a session.
//!
//! Nothing is judged here. What makes no sense shows no tickets, and is TLS's to complain about.

/// The tickets of a ClientHello; `None` while its end has not come.
pub(crate) fn shown_tickets(hello: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (head, rest) = hello.split_first_chunk::<4>()?;
    let length = u32::from_be_bytes([0, head[1], head[2], head[3]]) as usize;
    if head[0] != CLIENT_HELLO || length > HELLO_BYTES_MAX {
        return Some(Vec::new());
    }
    let body = rest.get(..length)?;
    Some(tickets(body).unwrap_or_default())
}

fn tickets(body: &[u8]) -> Option<Vec<Vec<u8>>> {
    // legacy_version, random, legacy_session_id, cipher_suites, legacy_compression_methods.
    let rest = body.get(2 + 32..)?;
    let (_, rest) = counted_by::<1>(rest)?;
    let (_, rest) = counted_by::<2>(rest)?;
    let (_, rest) = counted_by::<1>(rest)?;
    let (mut extensions, _) = counted_by::<2>(rest)?;
    while let Some((kind, rest)) = extensions.split_first_chunk::<2>() {
        let (content, rest) = counted_by::<2>(rest)?;
        extensions = rest;
        if u16::from_be_bytes(*kind) == PRE_SHARED_KEY {
            let (mut identities, _) = counted_by::<2>(content)?;
            let mut found = Vec::new();
            while !identities.is_empty() && found.len() < TICKETS_MAX {
                let (ticket, rest) = counted_by::<2>(identities)?;
                found.push(ticket.to_vec());
                // obfuscated_ticket_age
                identities = rest.get(4..)?;
            }
            return Some(found);
        }
    }
    None
}

/// What is preceded by its length in `N` bytes, and what follows.
fn counted_by<const N: usize>(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<N>()?;
    let length = length
        .iter()
        .fold(0, |sum, &byte| sum << 8 | usize::from(byte));
    rest.split_at_checked(length)
}

const CLIENT_HELLO: u8 = 1;
const PRE_SHARED_KEY: u16 = 41;
/// Clients show one or two.
const TICKETS_MAX: usize = 4;
/// As much as QUIC has to keep of a handshake (RFC 9000 section 7.5), and more than rustls sends.
pub(crate) const HELLO_BYTES_MAX: usize = 1 << 14;

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
    fn tickets_are_found_once_the_hello_is_whole() {
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
    fn what_makes_no_sense_shows_none() {
        let none = Some(Vec::new());
        assert_eq!(shown_tickets(&hello(&[])), none);
        assert_eq!(shown_tickets(&hello(&[0, 41, 0, 2, 0, 9])), none);
        assert_eq!(shown_tickets(&hello(&[0, 41, 0xff, 0xff])), none);
        assert_eq!(shown_tickets(&[2, 0, 0, 1, 0]), none, "no ClientHello");
        assert_eq!(
            shown_tickets(&[1, 0xff, 0xff, 0xff]),
            none,
            "too long to be one"
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
