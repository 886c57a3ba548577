//! Parsers that are private otherwise, for the targets in `fuzz/` alone (feature `fuzzing`).

use crate::qlog::{Direction, Packet, Recorder};

pub use crate::quic::fuzzing as quic;
pub use crate::tls::fuzzing as tls;
pub use crate::wire::tls as tls_messages;
pub use crate::wire::{datagram, frames, header, negotiation, parameters, varint};

pub mod hidden_acks {
    pub use crate::seams::hidden_acks::hide;
}

pub mod inflow {
    pub use crate::seams::inflow::Inflow;
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

/// The events of qlog about a packet that was received.
pub fn qlog_events(payload: &[u8]) -> String {
    let recorder = Recorder::new(false);
    recorder.packet(&Packet {
        direction: Direction::Received,
        space: header::Space::Data,
        number: 0,
        header: &[0x40, 1, 2, 3, 4, 5, 6, 7, 8, 0],
        payload,
        tag_len: 16,
    });
    let events = recorder.take().into_iter();
    events.map(|event| event.data).collect()
}
