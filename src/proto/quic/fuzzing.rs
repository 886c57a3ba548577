//! What fuzz targets see of this module beside its public face.

use std::net::SocketAddr;

use super::{accept_policy::first_packets, paths::peer_parameters::PeerParameters};

/// The ClientHello of a client that has not been accepted yet.
pub struct FirstPackets(first_packets::FirstPackets);

impl FirstPackets {
    pub fn new(datagram: &[u8]) -> Option<Self> {
        first_packets::FirstPackets::new(datagram).map(Self)
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

/// The address that a server at `remote` prefers, if its client may go there.
pub fn preferred_address(parameters: &[u8], remote: SocketAddr) -> Option<SocketAddr> {
    let preferred = PeerParameters::read(parameters).preferred_like(remote)?;
    Some(preferred.address)
}
