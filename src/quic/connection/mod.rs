//! One QUIC connection: commands in, [`Event`](crate::Event)s out.
//!
//! [`Connection`] consists of quinn-proto's connection and of parts, each with its own state and tests. It has
//! getters, commands, and methods for the endpoint only. This file has its construction and its end.
//!
//! The parts, none of which depends on the connection:
//!
//! - `phase`: the phases, and a client's first packets that are held back.
//! - `negotiated_values`: results of the handshake; `received_tickets_and_tokens`: a client's tickets and tokens.
//! - `event_queue`: events for the application.
//! - `memory_account`: the memory held for the peer, and its credit.
//! - `datagram_frame_sender`: DATAGRAM frames that wait (streams have a module of their own).
//! - `packet_observer`: reads packets in plain text, for values that quinn-proto does not report; `ping_observer`,
//!   `connection_id_observer`, `path_observer`: parts of it.
//! - `qlog_connection_events`: log entries beside packets; `udp_datagram_counters`: datagrams and ECN bits.
//! - `key_updates`: key updates.
//! - `preferred_address`: the server's preferred address.
//!
//! The methods of the connection:
//!
//! - `commands`: commands of the application; `pre_connect_commands`: commands before a connection begins.
//! - `getters`: values for the application.
//! - `event_conversion`: events for the application; `close_reason`: reasons of a connection's end.
//! - `transmit`: outgoing packets.
//! - `memory_shedding`: the sum of the memory held, its release, and shedding.
//! - `receive`: received datagrams, and timers.
//! - `migration`: changes of address; `address_validation`: address validation.
//! - `version_restart`: restarts with another version.
//!
//! Not here: routing, timers and the table of connections (`endpoint`), the state of single streams (`streams`), and
//! the addresses of a path (`paths`).

use std::sync::Arc;

use quinn_proto::{self as quinn, ConnectionId};

use super::{
    CloseKind, Event, TransportSettings,
    address_tokens::ConnectionTokens,
    paths::{
        amplification_limits::ClientAddresses,
        path::{Local, Path},
        peer_transport_parameters::PeerParameters,
    },
    streams::Streams,
};
use crate::{
    qlog::Started,
    workarounds::{congestion_controller_wrapper, two_step_stream_limit::PeersLimits},
};

mod address_validation;
pub(super) mod close_reason;
mod commands;
mod connection_id_observer;
pub(super) mod datagram_frame_sender;
mod event_conversion;
mod event_queue;
mod getters;
mod key_updates;
mod memory_account;
mod memory_shedding;
pub(super) mod migration;
mod negotiated_values;
mod packet_observer;
pub(super) mod path_observer;
mod phase;
mod ping_observer;
pub(super) mod pre_connect_commands;
mod preferred_address;
mod qlog_connection_events;
pub(super) mod receive;
mod received_tickets_and_tokens;
mod transmit;
mod udp_datagram_counters;
mod version_restart;

use close_reason::closed_without_code;
use datagram_frame_sender::DatagramSender;
use event_queue::EventQueue;
use key_updates::KeyUpdates;
pub(super) use memory_account::CONNECTION_BYTES;
use memory_account::PeerAccount;
use negotiated_values::{Negotiated, session_details};
use packet_observer::ConnectionObserver;
use phase::ConnectionPhase;
use preferred_address::PreferredPath;
use qlog_connection_events::PacketLog;
use received_tickets_and_tokens::TicketsAndTokens;
use udp_datagram_counters::DatagramCounters;

/// A connection of an [`Endpoint`](super::Endpoint), which returns a reference to it for the connection's key.
pub struct Connection {
    /// A number that the application may set for itself. This crate does not use it.
    pub user: u64,
    quinn: quinn::Connection,
    phase: ConnectionPhase,
    negotiated: Negotiated,
    credentials: TicketsAndTokens,
    streams: Streams,
    datagrams: DatagramSender,
    events: EventQueue,
    account: PeerAccount,
    path: Path,
    addresses: ClientAddresses,
    preferred: PreferredPath,
    key_updates: KeyUpdates,
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
        let mut observer = ConnectionObserver::new(details.hook.clone());
        if side.is_client() && quinn.has_0rtt() {
            // The server's limits in an earlier connection, which the ticket has stored.
            let parameters = details.peer_parameters.as_deref().unwrap_or_default();
            let max_data = PeerParameters::read(parameters).initial_max_data;
            streams.begin_early(max_data);
            if max_data > 0 {
                // MAX_DATA may follow in the packet that completes the handshake, so frames are observed from now on.
                observer.expect_max_data(0);
            }
        }
        if settings.reset_stream_at {
            streams.accept_reset_at();
        }
        let max_streams = [settings.max_streams_bidi, settings.max_streams_uni];
        let connection = Self {
            user: 0,
            phase: ConnectionPhase::new(),
            negotiated: Negotiated::new(&details, server_name),
            credentials: TicketsAndTokens::new(details.tickets, tokens),
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
            addresses: ClientAddresses::default(),
            preferred: PreferredPath::new(settings.use_preferred_address),
            log: PacketLog::new(details.hook.recorder().cloned()),
            key_updates: KeyUpdates::new(details.hook, settings.key_update_packets),
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

    /// Enables `ConnectionIdIssued` and `ConnectionIdRetired`, for all connection IDs of this side but the first.
    pub(super) fn watch_connection_ids(&mut self) {
        if let Some(first) = self.negotiated.ids().host.clone() {
            self.observer.expect_ids(first);
        }
    }

    /// Records connection IDs that the endpoint has generated for this connection, and reports those that will be
    /// issued.
    pub(super) fn issued(&mut self, made: impl IntoIterator<Item = ConnectionId>) {
        for id in made {
            if self.observer.issued(&id) && !self.phase.is_closed() {
                self.events
                    .push(Event::ConnectionIdIssued { id: id.to_vec() });
            }
        }
    }

    pub(super) fn quinn(&mut self) -> &mut quinn::Connection {
        &mut self.quinn
    }

    /// True if this side may have to send its CONNECTION_CLOSE again, because the peer has not answered with one (RFC
    /// 9000 section 10.2).
    pub(super) fn awaits_peer(&self) -> bool {
        self.phase.awaits_peer(self.observer.peer_has_closed())
    }

    /// True if the peer has closed the connection. Then nothing more is sent, not even a CONNECTION_CLOSE (RFC 9000
    /// section 10.2.2).
    fn is_draining(&self) -> bool {
        self.phase.is_draining(self.observer.peer_has_closed())
    }

    /// True if the connection was closed before it sent a packet, so that it must not send a CONNECTION_CLOSE.
    pub(super) fn ended_unsent(&self) -> bool {
        self.phase.ended_unsent()
    }

    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Ends the connection without sending a packet, because the peer cannot be reached.
    pub(super) fn abandon(&mut self, reason: String, kind: CloseKind) {
        self.pump();
        if !self.phase.is_closed() {
            self.closed(closed_without_code(reason, kind));
        }
    }

    fn repeat_close(&mut self) {
        self.phase.repeat_close();
        self.observer.expect_close();
    }

    fn closed(&mut self, event: Event) {
        self.phase.close();
        self.observer.received_offsets().disable();
        self.addresses.drop_waiting();
        congestion_controller_wrapper::open_window(self.quinn.congestion_state());
        self.release_sending();
        self.stop_probing();
        self.events.push(event);
    }
}
