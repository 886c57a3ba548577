//! Finds a handshake in progress by the addresses and connection IDs of a packet or of an ICMP error.
//!
//! Anybody can send forged Version Negotiation packets, Retry packets and ICMP errors. The cost of one must not grow
//! with the number of handshakes, so no code here iterates over all of them. Not here: the meaning of the packets
//! (`version_negotiation`).

use std::{
    collections::{BTreeSet, HashMap},
    net::{IpAddr, SocketAddr},
};

use quinn_proto::ConnectionId;

/// Two maps from the addresses and connection IDs of handshakes to the slots of their connections. [`HandshakeKeys`]
/// remove a handshake from both maps.
#[derive(Default)]
pub(crate) struct Handshakes {
    by_peer: BTreeSet<(IpAddr, u16, usize)>,
    /// Handshakes of clients, by the server's address and the client's connection ID. A client without a connection ID
    /// is found by the address; quinn-proto has at most one such client for each address.
    clients: HashMap<(SocketAddr, ConnectionId), usize>,
}

/// The keys of one handshake in the two maps of [`Handshakes`].
pub(crate) struct HandshakeKeys {
    peer: SocketAddr,
    /// A client's own connection ID. It changes after a Version Negotiation packet, but not after a Retry.
    client_id: Option<ConnectionId>,
}

impl Handshakes {
    pub fn enter(
        &mut self,
        index: usize,
        peer: SocketAddr,
        client_id: Option<&[u8]>,
    ) -> HandshakeKeys {
        let client_id = client_id.map(ConnectionId::new);
        let (ip, port) = canonical(peer);
        self.by_peer.insert((ip, port, index));
        if let Some(id) = client_id {
            self.clients.insert((peer, id), index);
        }
        HandshakeKeys { peer, client_id }
    }

    pub fn leave(&mut self, index: usize, keys: HandshakeKeys) {
        let (ip, port) = canonical(keys.peer);
        self.by_peer.remove(&(ip, port, index));
        if let Some(id) = keys.client_id {
            let key = (keys.peer, id);
            // A later client without a connection ID may have taken over the key.
            if self.clients.get(&key) == Some(&index) {
                self.clients.remove(&key);
            }
        }
        if self.is_empty() {
            self.clients.shrink_to(CLIENTS_KEPT);
        }
    }

    /// The client connection to which a packet from `peer` with the destination connection ID `id` belongs.
    pub fn client(&self, peer: SocketAddr, id: &[u8]) -> Option<usize> {
        if id.len() > CONNECTION_ID_MAX {
            return None;
        }
        self.clients.get(&(peer, ConnectionId::new(id))).copied()
    }

    /// The slots of all handshakes with `peer`.
    pub fn with(&self, peer: SocketAddr) -> impl Iterator<Item = usize> + '_ {
        let (ip, port) = canonical(peer);
        let range = (ip, port, 0)..=(ip, port, usize::MAX);
        self.by_peer.range(range).map(|&(_, _, index)| index)
    }

    fn is_empty(&self) -> bool {
        self.by_peer.is_empty()
    }
}

/// Turns an IPv4-mapped IPv6 address into its IPv4 address, so that both kinds of sockets have one form.
fn canonical(peer: SocketAddr) -> (IpAddr, u16) {
    (peer.ip().to_canonical(), peer.port())
}

/// The longest connection ID of versions 1 and 2 (RFC 9000 section 17.2). An unknown version may have longer ones.
const CONNECTION_ID_MAX: usize = 20;
/// A table with at most this capacity does not shrink.
const CLIENTS_KEPT: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_handshake_is_found_until_it_is_removed() {
        let mut handshakes = Handshakes::default();
        let server = peer("192.0.2.1:443");
        let first = handshakes.enter(1, server, Some(b"first"));
        let second = handshakes.enter(2, server, Some(b"second"));
        let incoming = handshakes.enter(3, server, None);
        assert_eq!(handshakes.client(server, b"first"), Some(1));
        assert_eq!(handshakes.client(server, b"second"), Some(2));
        assert_eq!(handshakes.client(server, b"third"), None);
        assert_eq!(handshakes.client(server, &[0; 255]), None);
        assert_eq!(handshakes.client(peer("192.0.2.2:443"), b"first"), None);
        let mapped = peer("[::ffff:192.0.2.1]:443");
        assert_eq!(handshakes.with(mapped).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(handshakes.with(peer("192.0.2.1:444")).count(), 0);
        handshakes.leave(1, first);
        assert_eq!(handshakes.client(server, b"first"), None);
        assert_eq!(handshakes.with(server).collect::<Vec<_>>(), [2, 3]);
        handshakes.leave(2, second);
        handshakes.leave(3, incoming);
        assert!(handshakes.is_empty() && handshakes.clients.is_empty());
    }

    #[test]
    fn without_connection_ids_the_last_client_of_an_address_is_found() {
        let mut handshakes = Handshakes::default();
        let server = peer("192.0.2.1:443");
        let first = handshakes.enter(1, server, Some(b""));
        let second = handshakes.enter(2, server, Some(b""));
        assert_eq!(handshakes.client(server, b""), Some(2));
        handshakes.leave(1, first);
        assert_eq!(handshakes.client(server, b""), Some(2));
        handshakes.leave(2, second);
        assert_eq!(handshakes.client(server, b""), None);
    }
}
