//! TLS messages and records that are read outside the TLS library (RFC 8446).
//!
//! - `client_hello_extensions`: two extensions of a ClientHello, tickets and transport parameters.
//! - `session_ticket`: NewSessionTicket messages.
//! - `record_boundaries`: record boundaries in TLS over TCP, for the `ssl` module.
//!
//! This file has the parsers of the parts that all messages consist of.

pub mod client_hello_extensions;
pub mod record_boundaries;
pub mod session_ticket;

/// Splits off the handshake message at the front of `bytes` (RFC 8446 section 4). Returns its type, its content, and
/// the bytes after it; `None` while the message is incomplete.
pub fn message(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&kind, mut rest) = bytes.split_first()?;
    let content = counted::<3>(&mut rest)?;
    Some((kind, content, rest))
}

/// Reads a vector after its length field of `N` bytes (RFC 8446 section 3.4).
pub fn counted<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take(rest, N)?
        .iter()
        .fold(0, |length, byte| length << 8 | usize::from(*byte));
    take(rest, length)
}

pub fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(count)?;
    *rest = tail;
    Some(head)
}

/// Reads an extension (RFC 8446 section 4.2). Returns its type and its content.
pub fn extension<'a>(rest: &mut &'a [u8]) -> Option<(u16, &'a [u8])> {
    let kind = take(rest, 2)?.try_into().ok()?;
    Some((u16::from_be_bytes(kind), counted::<2>(rest)?))
}

pub const CLIENT_HELLO: u8 = 1;
pub const NEW_SESSION_TICKET: u8 = 4;
