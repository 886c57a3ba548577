//! The table of an endpoint's connections: insertion, removal, and shrinking after a peak.

use std::{sync::Arc, time::Instant};

use quinn_proto::{self as quinn, ConnectionHandle, EndpointEvent};

use super::{ConnectionKey, Endpoint, Entry, state_machine};
use crate::{
    CloseKind, Connection, TransportSettings, address_tokens::ConnectionTokens, paths::path::Local,
};

impl Endpoint {
    pub(super) fn insert(
        &mut self,
        handle: ConnectionHandle,
        conn: quinn::Connection,
        transport: &TransportSettings,
        (server_name, tokens): (Option<String>, Option<Arc<ConnectionTokens>>),
        handshake_deadline: Option<Instant>,
    ) -> ConnectionKey {
        self.is_logging |= transport.packet_log;
        let generation = self.generation;
        // A key contains its slot and this number, so an old key matches again only after 2^32 connections.
        self.generation = self.generation.wrapping_add(1);
        let local = match conn.side() {
            quinn::Side::Server => Local {
                socket: self.arrival,
                ip: conn.local_ip(),
            },
            quinn::Side::Client => Local::default(),
        };
        let mut connection = Connection::new(conn, transport, server_name, tokens, local);
        if self.settings.reports_connection_ids {
            connection.watch_connection_ids();
            // The ID of a server's preferred address is generated before its handshake too (RFC 9000 section 18.2). IDs
            // that are older than the connection's first ID were for a Retry.
            let first = connection.host_connection_id().map(<[u8]>::to_vec);
            let made = self.next_id.take_generated().into_iter();
            connection.issued(made.skip_while(|id| first.as_deref() != Some(&id[..])));
        }
        let index = self.connections.insert(Box::new(Entry {
            connection,
            generation,
            handle,
            drained: false,
            restart: None,
            held_bytes: 0,
            handshake: None,
            incoming_handshake: false,
            block: None,
            lingers: false,
            handshake_deadline,
            alias: None,
            dialed: None,
            timer: None,
            quiet_since: None,
            is_sending: false,
            is_eventful: false,
            is_reconciled: false,
            is_commanded: false,
            is_read: false,
            is_spent: false,
        }));
        self.shrink_at = self.shrink_at.max(self.connections.len() / 4);
        self.remember_handle(handle, index);
        self.enter_handshake(index);
        self.touch(index);
        ConnectionKey::new(index, generation)
    }

    pub(crate) fn remember_handle(&mut self, handle: ConnectionHandle, index: usize) {
        if self.by_handle.len() <= handle.0 {
            self.by_handle.resize(handle.0 + 1, None);
        }
        self.by_handle[handle.0] = Some(index);
    }

    pub(crate) fn index_of(&self, handle: ConnectionHandle) -> Option<usize> {
        self.by_handle.get(handle.0).copied().flatten()
    }

    /// Adds a connection to the index of handshakes, also when it restarts with another version.
    pub(crate) fn enter_handshake(&mut self, index: usize) {
        self.leave_handshake(index);
        let entry = &mut self.connections[index];
        let connection = &entry.connection;
        let is_client = connection.is_client();
        let id = connection.host_connection_id().filter(|_| is_client);
        let keys = self.handshakes.enter(index, connection.remote_addr(), id);
        entry.handshake = Some(keys);
    }

    pub(super) fn leave_handshake(&mut self, index: usize) {
        if let Some(keys) = self.connections[index].handshake.take() {
            self.handshakes.leave(index, keys);
        }
    }

    /// Ends a connection without sending a packet, and removes it from quinn-proto.
    pub(crate) fn abandon(&mut self, index: usize, reason: String, kind: CloseKind) {
        self.connections[index].connection.abandon(reason, kind);
        self.forget_state(index);
        self.touch(index);
        self.reconcile(index);
    }

    /// Removes a connection from quinn-proto's tables. The application can still poll the connection's events.
    pub(super) fn forget_state(&mut self, index: usize) {
        let entry = &mut self.connections[index];
        if !std::mem::replace(&mut entry.drained, true) {
            self.by_handle[entry.handle.0] = None;
            self.quinn
                .handle_event(entry.handle, EndpointEvent::drained());
        }
    }

    pub(super) fn remove_if_over(&mut self, index: usize) {
        let entry = &mut self.connections[index];
        if entry.drained && !entry.is_sending && !entry.is_eventful {
            self.deadlines.remove(index, &mut entry.timer);
            self.leave_handshake(index);
            self.drop_alias(index);
            self.forget_dialed(index);
            let entry = &self.connections[index];
            match entry.block {
                Some(block) if entry.lingers => self.accept_policy.forgotten(block),
                Some(block) => self.accept_policy.uncount_open(block),
                None => {}
            }
            let held = self.connections[index].held_bytes as u64;
            self.stats.held_bytes -= held;
            self.connections.remove(index);
            self.shrink();
        }
    }

    /// Shrinks the tables after a peak: at first when a quarter of the connections is left, then each time their number
    /// halves. When only a few are left, each removal shrinks the tables, because a single connection may occupy the
    /// last slot.
    fn shrink(&mut self) {
        let left = self.connections.len();
        if left > self.shrink_at || self.connections.capacity() <= CAPACITY_KEPT {
            return;
        }
        self.shrink_at = if left <= FEW {
            left.saturating_sub(1)
        } else {
            left / 2
        };
        self.connections.shrink_to_fit();
        let used = self.by_handle.iter().rposition(Option::is_some);
        self.by_handle.truncate(used.map_or(0, |last| last + 1));
        self.by_handle.shrink_to_fit();
        self.sending.shrink_to_fit();
        self.eventful.shrink_to_fit();
        if left == 0 && self.pending_accepts.is_empty() {
            // quinn-proto's endpoint has no connections, and its tables would never shrink, so a new one replaces it.
            let next_id = self.next_id.clone();
            let reset_key = self.reset_keys.hmac();
            self.quinn = state_machine(
                &self.settings,
                self.server.as_ref(),
                next_id,
                &self.tokens,
                reset_key,
            );
        }
    }
}

/// Tables with at most this capacity do not shrink.
const CAPACITY_KEPT: usize = 128;
const FEW: usize = 64;

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, time::SystemTime};

    use super::*;
    use crate::{
        ClientSettings, ClientSetup, EndpointSettings,
        tls::{Roots, WallClock},
    };

    #[derive(Debug)]
    struct StoppedClock;

    impl WallClock for StoppedClock {
        fn now(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH
        }
    }

    #[test]
    fn keys_find_their_connections_when_the_generation_wraps() {
        let setup = ClientSetup::new(&ClientSettings {
            alpn: vec![b"test".to_vec()],
            roots: Roots::None,
            ..ClientSettings::new(Arc::new(StoppedClock))
        })
        .unwrap();
        let (now, remote) = (Instant::now(), SocketAddr::from(([192, 0, 2, 1], 443)));
        let mut endpoint = Endpoint::new(EndpointSettings::default(), None);
        endpoint.generation = u32::MAX;
        let keys: Vec<_> = (0..3)
            .map(|_| endpoint.connect(now, &setup, remote, "localhost").unwrap())
            .collect();
        assert_eq!(endpoint.generation, 2);
        assert!(!keys.contains(&ConnectionKey::NONE));
        for key in &keys {
            assert!(endpoint.connection(*key).is_some());
            // A key with the slot of an existing connection, but another generation.
            let older = ConnectionKey::from_u64(key.as_u64() ^ 1 << 63);
            assert!(endpoint.connection(older).is_none() && endpoint.peek(older).is_none());
        }
    }
}
