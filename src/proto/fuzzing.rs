//! Parsers that are private otherwise, for the targets in `fuzz/` alone (feature `fuzzing`).

pub use crate::quic::fuzzing as quic;
pub use crate::tls::fuzzing as tls;
pub use crate::wire::tls as tls_messages;
pub use crate::wire::{datagram, frames, header, negotiation, parameters, varint};

pub mod hidden_acks {
    pub use crate::seams::hidden_acks::hide;
}

pub mod layout {
    pub use crate::seams::layout::{hide_type, next_piece, received, show, show_type};
}

pub mod padding {
    pub use crate::seams::padding::{cut, fold};
}

pub mod reset_stream_at {
    pub use crate::seams::reset_stream_at::ResetSlot;
}

/// The frames of a packet's payload as qlog shows them.
pub fn qlog_frames(payload: &[u8], exponent: u32) -> String {
    crate::qlog::frames_to_json(payload, exponent)
}
