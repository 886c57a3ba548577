//! Version Negotiation packets: a server sends them, and a client that gets one restarts with another version (RFC
//! 9000 section 6, RFC 9368).
//!
//! After a Version Negotiation packet, the endpoint replaces quinn-proto's connection by a new one. The application
//! keeps its connection and its streams.
//!
//! Not here: the versions that may be set (`settings::versions`), a switch of the version within the first flight
//! (`tls::versions`), and the form of the packets (`wire::version_negotiation`).

use std::{net::SocketAddr, time::Instant};

use quinn_proto::{self as quinn, EndpointEvent};
use uringcore_wire::{
    coalesced_packets::initial_version,
    packet_header::{LongHeader, version_of},
    version_negotiation::VersionNegotiation,
};

use crate::tls::{Answer, is_valid_retry, reserved_besides};
use crate::{ClientSetup, CloseKind, DatagramMeta, Endpoint};

/// The parameters to begin a client's connection again.
pub(crate) struct Restart {
    pub setup: ClientSetup,
    pub server_name: String,
}

impl Endpoint {
    /// Answers a first packet whose version the server does not support. Small packets get no answer, because an answer
    /// must not be larger than the packet (RFC 9000 section 5.2.2).
    pub(crate) fn answer_version(&mut self, meta: DatagramMeta, first_packet: &[u8]) {
        let Some(server) = self
            .server
            .as_ref()
            .filter(|_| !self.accept_policy.is_refusing())
        else {
            return;
        };
        if first_packet.len() < FIRST_DATAGRAM_MIN {
            return;
        }
        self.scratch.clear();
        let versions = server.versions.clone();
        let reserved = reserved_besides(version_of(first_packet).unwrap_or_default());
        if VersionNegotiation::answer(first_packet, reserved, &versions, &mut self.scratch)
            .is_none()
        {
            return;
        }
        self.stats.versions_negotiated += 1;
        let transmit = quinn::Transmit {
            destination: meta.remote,
            ecn: None,
            size: self.scratch.len(),
            segment_size: None,
            src_ip: meta.local_ip,
        };
        self.respond(transmit);
    }

    /// True for a first packet whose version the server does not support, but clients of this endpoint do.
    pub(crate) fn is_of_other_version(&self, datagram: &[u8]) -> bool {
        let Some(server) = &self.server else {
            return false;
        };
        initial_version(datagram).is_some_and(|version| !server.versions.contains(&version))
    }

    /// Handles a Version Negotiation packet. The client that it belongs to restarts, once.
    pub(crate) fn handle_negotiation(&mut self, now: Instant, meta: DatagramMeta, data: &[u8]) {
        let Some(packet) = VersionNegotiation::read(data) else {
            return;
        };
        let Some(index) = self.handshakes.client(meta.remote, packet.destination) else {
            return;
        };
        let connection = &self.connections[index].connection;
        if connection.original_destination_connection_id() != Some(packet.source) {
            return;
        }
        let answer = connection.versions().answer(&packet.versions);
        let chosen = match answer {
            Answer::Ignore => return,
            Answer::BeginAgain(version) => Some(version),
            Answer::GiveUp => None,
        };
        connection.log().set_time(now);
        if let Some(log) = connection.packet_log() {
            let supported = connection.versions().supported();
            log.negotiation(data, &packet.versions, supported, chosen);
        }
        match chosen {
            Some(version) => self.begin_again(now, index, version),
            None => self.abandon(
                index,
                "Could not find a common protocol version".into(),
                CloseKind::VersionNegotiation,
            ),
        }
    }

    /// True if the sender of a Retry packet has seen the client's first packet (RFC 9000 section 17.2.5.2). Also true
    /// if no client of this endpoint is waiting for the Retry.
    pub(crate) fn is_genuine_retry(&self, remote: SocketAddr, packet: &[u8]) -> bool {
        let destination = LongHeader::read(packet).map(|header| header.destination);
        let Some(index) = destination.and_then(|id| self.handshakes.client(remote, id)) else {
            return true;
        };
        let connection = &self.connections[index].connection;
        let original = connection.original_destination_connection_id();
        original.is_some_and(|id| is_valid_retry(connection.versions().original(), id, packet))
    }

    /// Replaces quinn-proto's connection by a new one with `version`. The application keeps its connection and queued
    /// data.
    fn begin_again(&mut self, now: Instant, index: usize, version: u32) {
        // A datagram of the same loop iteration may have ended the handshake already.
        self.reconcile(index);
        let Some(entry) = self
            .connections
            .get_mut(index)
            .filter(|entry| entry.connection.is_handshaking() && !entry.drained)
        else {
            return;
        };
        let Some(restart) = entry.restart.take() else {
            return;
        };
        let remote = entry.connection.remote_addr();
        let packet_log = entry.connection.packet_log().cloned();
        let mut config = restart.setup.after_version_negotiation(version, packet_log);
        if let Some(tokens) = entry.connection.tokens() {
            tokens.set_version(version);
            config.token_store(tokens);
        }
        // The old connection is removed first: without connection IDs, quinn-proto finds both by the server's address.
        let old = entry.handle;
        self.by_handle[old.0] = None;
        self.quinn.handle_event(old, EndpointEvent::drained());
        self.next_id.use_application_id();
        let begun = self
            .quinn
            .connect(now, config, remote, &restart.server_name);
        let (handle, conn) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                entry.drained = true;
                let reason = format!("cannot begin again with another version: {error}");
                return self.abandon(index, reason, CloseKind::VersionNegotiation);
            }
        };
        entry.handle = handle;
        entry.connection.begin_again(conn);
        self.remember_handle(handle, index);
        self.enter_handshake(index);
        self.stats.connections_begun_again += 1;
        self.touch(index);
        self.reconcile(index);
    }
}

/// A server does not answer smaller datagrams (RFC 9000 section 14.1).
const FIRST_DATAGRAM_MIN: usize = 1_200;

#[cfg(test)]
mod tests {
    use std::{
        sync::Arc,
        time::{Duration, SystemTime},
    };

    use bytes::BytesMut;
    use uringcore_wire::packet_header::{VERSION_1, VERSION_2};

    use super::*;
    use crate::{ClientSettings, EndpointSettings, endpoint::Handshakes, tls::WallClock};

    const HANDSHAKES: usize = 500;

    #[derive(Debug)]
    struct NoTime;

    impl WallClock for NoTime {
        fn now(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH
        }
    }

    fn dialing() -> (Endpoint, DatagramMeta, Instant) {
        let now = Instant::now();
        let meta = DatagramMeta {
            remote: "192.0.2.1:443".parse().unwrap(),
            local_ip: None,
            ecn: None,
        };
        let settings = ClientSettings {
            verify: false,
            ..ClientSettings::new(Arc::new(NoTime))
        };
        let setup = ClientSetup::new(&settings).unwrap();
        let mut endpoint = Endpoint::new(EndpointSettings::default(), None);
        for _ in 0..HANDSHAKES {
            endpoint.connect(now, &setup, meta.remote, "").unwrap();
        }
        let mut buf = Vec::new();
        while endpoint.poll_transmit(now, &mut buf).is_some() {}
        while endpoint.poll_event().is_some() {}
        (endpoint, meta, now)
    }

    /// A packet with a long header: these connection IDs, then the other fields of an Initial packet.
    fn packet(first: u8, version: u32, destination: &[u8], source: &[u8], rest: &[u8]) -> BytesMut {
        let mut packet = BytesMut::from(&[first][..]);
        packet.extend(version.to_be_bytes());
        for id in [destination, source] {
            packet.extend([id.len() as u8]);
            packet.extend(id);
        }
        packet.extend(rest);
        packet
    }

    #[test]
    fn handshakes_are_found_only_by_their_index() {
        let (mut endpoint, meta, now) = dialing();
        let key = endpoint.keys().last().unwrap();
        let connection = endpoint.peek(key).unwrap();
        let ours = connection.host_connection_id().unwrap().to_vec();
        let server = connection.original_destination_connection_id().unwrap();
        let negotiation = packet(0xc0, 0, &ours, server, &VERSION_2.to_be_bytes());
        let retry = packet(0xf0, VERSION_1, &ours, b"unknown!", &[0; 32]);
        assert!(!endpoint.is_genuine_retry(meta.remote, &retry));
        // The test changes only the index. A search through all connections would still find the handshake.
        let index = endpoint.connections.len() - 1;
        let entry = &mut endpoint.connections[index];
        let elsewhere = Handshakes::default().enter(index, meta.remote, Some(&ours));
        let keys = entry.handshake.replace(elsewhere).unwrap();
        endpoint.handshakes.leave(index, keys);
        assert!(endpoint.is_genuine_retry(meta.remote, &retry));
        endpoint.handle_datagram(now, meta, negotiation.clone());
        endpoint.handle_unreachable(now, meta.remote, 111);
        assert_eq!(endpoint.stats().connections_begun_again, 0);
        let is_handshaking = |endpoint: &Endpoint| endpoint.peek(key).unwrap().is_handshaking();
        assert!(is_handshaking(&endpoint));
        let others: Vec<_> = endpoint.keys().filter(|other| *other != key).collect();
        let mut ended = others.iter().filter_map(|other| endpoint.peek(*other));
        assert!(ended.all(|connection| connection.is_closed()));
        // The packet takes effect when the handshake is in the index again.
        let keys = endpoint.handshakes.enter(index, meta.remote, Some(&ours));
        endpoint.connections[index].handshake = Some(keys);
        endpoint.handle_datagram(now, meta, negotiation);
        assert_eq!(endpoint.stats().connections_begun_again, 1);
        endpoint.handle_unreachable(now, meta.remote, 111);
        assert!(!is_handshaking(&endpoint));
    }

    #[test]
    fn a_restarted_handshake_is_found_by_its_new_connection_id() {
        let (mut endpoint, meta, now) = dialing();
        let key = endpoint.keys().next().unwrap();
        let ids = |endpoint: &Endpoint| {
            let connection = endpoint.peek(key).unwrap();
            let id = |id: Option<&[u8]>| id.unwrap().to_vec();
            (
                id(connection.host_connection_id()),
                id(connection.original_destination_connection_id()),
            )
        };
        let (first, server) = ids(&endpoint);
        let versions = VERSION_2.to_be_bytes();
        let again = packet(0xc0, 0, &first, &server, &versions);
        endpoint.handle_datagram(now, meta, again);
        assert_eq!(endpoint.stats().connections_begun_again, 1);
        let (second, _) = ids(&endpoint);
        assert_ne!(first, second);
        assert_eq!(endpoint.handshakes.client(meta.remote, &first), None);
        assert!(endpoint.handshakes.client(meta.remote, &second).is_some());
        assert_eq!(endpoint.handshakes.with(meta.remote).count(), HANDSHAKES);
        // Two connections are closed, and the others fail by an ICMP error.
        for key in endpoint.keys().take(2).collect::<Vec<_>>() {
            endpoint.connection(key).unwrap().close(now, 0, None, b"");
        }
        while endpoint.poll_event().is_some() {}
        assert_eq!(endpoint.handshakes.client(meta.remote, &second), None);
        assert_eq!(
            endpoint.handshakes.with(meta.remote).count(),
            HANDSHAKES - 2
        );
        endpoint.handle_unreachable(now, meta.remote, 111);
        endpoint.handle_timeout(now + Duration::from_secs(60));
        while endpoint.poll_event().is_some() {}
        assert_eq!(endpoint.handshakes.with(meta.remote).count(), 0);
    }
}
