//! Acknowledgements of a ServerHello that count for nothing.
//!
//! There are clients (picoquic) that begin anew when they learn of the negotiated version: they
//! acknowledge the ServerHello, forget it, and repeat their own hello. So acknowledgements in Initial
//! packets are hidden after a switch: the ServerHello is repeated until a Handshake packet shows that
//! it was understood, which is when these keys go anyway (RFC 9001 section 4.9.1).
//!
//! Assumed of quinn-proto: it reads what a packet key leaves in the payload, not what was sealed;
//! PADDING may stand between frames; and what was sent in Initial packets is sent again after a
//! probe timeout for as long as it is not acknowledged.

use crate::wire::frames::{Frame, Frames};

/// Puts PADDING in the place of each ACK in the payload of an opened packet.
pub fn hide(payload: &mut [u8]) {
    let found: Vec<_> = Frames::new(payload)
        .filter(|(_, _, frame)| matches!(frame, Frame::Ack(_)))
        .map(|(start, end, _)| start..end)
        .collect();
    for range in found {
        payload[range].fill(PADDING);
    }
}

/// RFC 9000 section 19.1.
const PADDING: u8 = 0;
