//! Gives the targets in `fuzz/` access to private parsers (feature `fuzzing`).

use std::net::SocketAddr;

use uringcore_wire::packet_header::Space;

use crate::accept_policy::initial_client_hello;
use crate::paths::peer_transport_parameters::PeerParameters;
use crate::qlog::{Direction, Packet, Recorder};

pub use crate::tls::fuzzing as tls;

pub mod server_hello_ack_hiding {
    pub use crate::workarounds::server_hello_ack_hiding::hide;
}

pub mod received_offsets {
    pub use crate::workarounds::received_offsets::ReceivedOffsets;
}

pub mod version_2_packets {
    pub use crate::workarounds::version_2_packets::{
        hide_type, next_piece, received, show, show_type,
    };
}

pub mod received_padding_removal {
    pub use crate::workarounds::received_padding_removal::{cut, fold};
}

pub mod reset_stream_at {
    pub use crate::workarounds::reset_stream_at::ResetSlot;
}

/// The qlog data of a received packet with this payload.
pub fn qlog_events(payload: &[u8]) -> String {
    let recorder = Recorder::new(false);
    recorder.packet(&Packet {
        direction: Direction::Received,
        space: Space::Data,
        number: 0,
        header: &[0x40, 1, 2, 3, 4, 5, 6, 7, 8, 0],
        payload,
        tag_len: 16,
    });
    let events = recorder.take().into_iter();
    events.map(|event| event.data).collect()
}

/// Reads the ClientHello of a client that has not been accepted yet.
pub struct FirstPackets(initial_client_hello::FirstPackets);

impl FirstPackets {
    pub fn new(datagram: &[u8]) -> Option<Self> {
        initial_client_hello::FirstPackets::new(datagram).map(Self)
    }

    pub fn push(&mut self, datagram: &[u8]) {
        self.0.push(datagram);
    }

    pub fn kept_bytes(&self) -> usize {
        self.0.kept_bytes()
    }

    pub fn shown_tickets(&self) -> Option<Vec<Vec<u8>>> {
        self.0.shown_tickets()
    }
}

/// Returns the preferred address in the transport parameters of a server at `remote`, if a client may migrate to that
/// address.
pub fn preferred_address(parameters: &[u8], remote: SocketAddr) -> Option<SocketAddr> {
    let preferred = PeerParameters::read(parameters).preferred_for(remote)?;
    Some(preferred.address)
}
