//! One QUIC connection: commands in, [`Event`](crate::Event)s out.
//!
//! [`Connection`] consists of parts, each with its own state and tests, around the state machine's connection. Its
//! methods are of three kinds: getters; commands, which are plain verbs; and methods for the endpoint, which the host
//! does not see. This file has its construction and its end.
//!
//! The parts, none of which depends on the connection:
//!
//! - `lifetime`: the phases, and a client's first packets that are held back.
//! - `negotiated`: results of the handshake; `credentials`: a client's tickets and tokens.
//! - `event_queue`: events for the host.
//! - `account`: the memory held for the peer, and its credit.
//! - `datagrams`: DATAGRAM frames that wait (streams have a module of their own).
//! - `observer`: reads packets in plain text, for values that the state machine does not report; `ping_observer`,
//!   `id_observer`, `path_observer`: parts of it.
//! - `packet_log`: log entries beside packets; `counters`: datagrams and ECN bits.
//! - `key_use`: key updates.
//! - `preferred`: the server's preferred address.
//!
//! The methods of the connection:
//!
//! - `commands`: the host's commands; `pre_connect`: commands before a connection begins.
//! - `getters`: values for the host.
//! - `events`: the host's events; `ending`: reasons of a connection's end.
//! - `transmit`: outgoing packets.
//! - `memory`: the sum of the memory held, its release, and shedding.
//! - `migration`: changes of address; `validation`: address validation.
//! - `versions`: restarts with another version.
//!
//! Not here: routing, timers and the table of connections (`endpoint`), the state of single streams (`streams`), and
//! the addresses of a path (`paths`).

use std::sync::Arc;

use quinn_proto::{self as quinn, ConnectionId};

use super::{
    CloseKind, Event, TransportSettings,
    paths::{
        addresses::Addresses,
        path::{Local, Path},
        peer_parameters::PeerParameters,
    },
    streams::Streams,
    tokens::ConnectionTokens,
};
use crate::{
    qlog::Started,
    seams::{congestion_gauge, stream_limits::PeersLimits},
};

mod account;
mod commands;
mod counters;
mod credentials;
pub(super) mod datagrams;
pub(super) mod ending;
mod event_queue;
mod events;
mod getters;
mod id_observer;
mod key_use;
mod lifetime;
mod memory;
pub(super) mod migration;
mod negotiated;
mod observer;
mod packet_log;
pub(super) mod path_observer;
mod ping_observer;
pub(super) mod pre_connect;
mod preferred;
mod transmit;
mod validation;
mod versions;

pub(super) use account::CONNECTION_BYTES;
use account::PeerAccount;
use counters::DatagramCounters;
use credentials::Credentials;
use datagrams::DatagramSender;
use ending::internal;
use event_queue::EventQueue;
use key_use::KeyUse;
use lifetime::Lifetime;
use negotiated::{Negotiated, session_details};
use observer::ConnectionObserver;
use packet_log::PacketLog;
use preferred::PreferredPath;

/// A connection of an [`Endpoint`](super::Endpoint), which returns it by its key.
pub struct Connection {
    /// The host's own tag, unused here.
    pub user: u64,
    quinn: quinn::Connection,
    lifetime: Lifetime,
    negotiated: Negotiated,
    credentials: Credentials,
    streams: Streams,
    datagrams: DatagramSender,
    events: EventQueue,
    account: PeerAccount,
    path: Path,
    addresses: Addresses,
    preferred: PreferredPath,
    key_use: KeyUse,
    observer: ConnectionObserver,
    log: PacketLog,
    counters: DatagramCounters,
}

/// Methods for the endpoint.
impl Connection {
    pub(super) fn new(
        quinn: quinn::Connection,
        settings: &TransportSettings,
        server_name: Option<String>,
        tokens: Option<Arc<ConnectionTokens>>,
        local: Local,
    ) -> Self {
        let details = session_details(&quinn);
        let side = quinn.side();
        let has_preferred = side.is_server()
            && (settings.preferred_v4.is_some() || settings.preferred_v6.is_some());
        let mut streams = Streams::new(side, settings.send_window);
        let mut observer = ConnectionObserver::new(details.tap.clone());
        if side.is_client() && quinn.has_0rtt() {
            // Initial limits that the ticket stores.
            let parameters = details.peer_parameters.as_deref().unwrap_or_default();
            let max_data = PeerParameters::read(parameters).initial_max_data;
            streams.begin_early(max_data);
            if max_data > 0 {
                // Before the handshake is complete: MAX_DATA may follow the packet that completes it.
                observer.expect_max_data(0);
            }
        }
        if settings.reset_stream_at {
            streams.take_reset_at();
        }
        let max_streams = [settings.max_streams_bidi, settings.max_streams_uni];
        let connection = Self {
            user: 0,
            lifetime: Lifetime::new(),
            negotiated: Negotiated::new(&details, server_name),
            credentials: Credentials::new(details.tickets, tokens),
            streams,
            datagrams: DatagramSender::new(
                settings.datagram_recv_bytes.is_some(),
                settings.datagram_send_bytes,
            ),
            events: match side.is_server() {
                true => EventQueue::accepted(),
                false => EventQueue::new(),
            },
            account: PeerAccount::new(settings.credit(side), PeersLimits::new(max_streams)),
            path: Path::new(local, has_preferred),
            addresses: Addresses::default(),
            preferred: PreferredPath::new(settings.use_preferred_address),
            log: PacketLog::new(details.tap.recorder().cloned()),
            key_use: KeyUse::new(details.tap, settings.key_update_packets),
            observer,
            counters: DatagramCounters::default(),
            quinn,
        };
        connection.log.started(&Started {
            remote: connection.remote_addr(),
            local: connection.local_ip(),
            ids: connection.negotiated.ids(),
        });
        connection
    }

    /// Enables `ConnectionIdIssued` and `ConnectionIdRetired`, which report the IDs of this connection beside the
    /// first.
    pub(super) fn watch_connection_ids(&mut self) {
        if let Some(first) = self.negotiated.ids().host.clone() {
            self.observer.expect_ids(first);
        }
    }

    /// Records IDs that the endpoint has generated for this connection, and that will be issued to the peer.
    pub(super) fn issued(&mut self, made: impl IntoIterator<Item = ConnectionId>) {
        for id in made {
            if self.observer.issued(&id) && !self.lifetime.is_closed() {
                self.events
                    .push(Event::ConnectionIdIssued { id: id.to_vec() });
            }
        }
    }

    pub(super) fn quinn(&mut self) -> &mut quinn::Connection {
        &mut self.quinn
    }

    /// True if the peer may not have received our close: this side closed, and no close of the peer has answered.
    pub(super) fn awaits_peer(&self) -> bool {
        self.lifetime.awaits_peer(self.observer.peer_has_closed())
    }

    /// The peer has closed: nothing more is sent, not even our own close (RFC 9000 section 10.2.2).
    fn is_draining(&self) -> bool {
        self.lifetime.is_draining(self.observer.peer_has_closed())
    }

    /// True if it was closed before it had sent anything: nothing remains to be sent.
    pub(super) fn ended_unsent(&self) -> bool {
        self.lifetime.ended_unsent()
    }

    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Ends the connection without sending anything: the peer is gone or never answered.
    pub(super) fn abandon(&mut self, reason: String, kind: CloseKind) {
        self.pump();
        if !self.lifetime.is_closed() {
            self.closed(internal(reason, kind));
        }
    }

    fn repeat_close(&mut self) {
        self.lifetime.repeat_close();
        self.observer.expect_close();
    }

    fn closed(&mut self, event: Event) {
        self.lifetime.close();
        self.observer.inflow().disable();
        self.addresses.drop_waiting();
        congestion_gauge::open_window(self.quinn.congestion_state());
        self.release_sending();
        self.stop_probing();
        self.events.push(event);
    }
}
