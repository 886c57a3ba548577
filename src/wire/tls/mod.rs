//! TLS as it is on the wire (RFC 8446), as far as it is read beside the TLS library.
//!
//! - `client_hello`: what a client shows.
//! - `session_ticket`: NewSessionTicket messages.
//! - `records`: where records end in TLS over TCP, which is the `ssl` module's otherwise.
//!
//! Here: what messages are made of.

pub mod client_hello;
pub mod records;
pub mod session_ticket;

/// The handshake message at the front of `bytes` (RFC 8446 section 4): its type, its content, and
/// what follows. `None` while its end has not come.
pub fn message(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&kind, mut rest) = bytes.split_first()?;
    let content = counted::<3>(&mut rest)?;
    Some((kind, content, rest))
}

/// Takes a vector whose length is written in `N` bytes (RFC 8446 section 3.4).
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

/// Takes an extension: its type and its content (RFC 8446 section 4.2).
pub fn extension<'a>(rest: &mut &'a [u8]) -> Option<(u16, &'a [u8])> {
    let kind = take(rest, 2)?.try_into().ok()?;
    Some((u16::from_be_bytes(kind), counted::<2>(rest)?))
}

pub const CLIENT_HELLO: u8 = 1;
pub const NEW_SESSION_TICKET: u8 = 4;
