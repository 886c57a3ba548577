//! One QUIC connection: commands in, [`Event`]s out.
//!
//! Methods are of three kinds: getters; commands, which are plain verbs; and methods for the endpoint, which the host
//! does not see. This file has the getters, and a connection's construction and end.
//!
//! - `pre_connect`: commands before a connection begins.
//! - `commands`: the host's commands; `known`: further getters.
//! - `events`: the host's events; `ending`: reasons of a connection's end.
//! - `transmit`: outgoing packets; `first_flight`: holding a client's first packets back.
//! - `datagrams`: DATAGRAM frames that wait; `holding`: memory held for the peer, and its credit.
//! - `migration`, `preferred`: changes of address; `validation`: address validation.
//! - `observer`, `id_observer`, `path_observer`: read packets in plain text, for values that the state machine does not
//!   report.
//! - `versions`, `key_use`: another version, other keys.
//! - `trace`: log entries beside packets.
//!
//! Not here: routing, timers and the table of connections (`endpoint`), and the state of single streams (`streams`).

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use quinn_proto::{self as quinn, ConnectionId, Dir};
use uringcore_limits::budget::{Holding, Queued};

use super::{
    CloseKind, EcnCounters, Event, TransportSettings,
    paths::{
        addresses::Addresses,
        path::{Local, Path},
        peer_parameters::{PeerParameters, PreferredAddress},
    },
    streams::{StreamState, Streams},
    tokens::ConnectionTokens,
};
use crate::{
    qlog::{ConnectionIds, Recorder},
    seams::{congestion_gauge, credit::Credit, stream_limits::PeersLimits},
    tls::{SessionDetails, TicketInbox, Versions},
};

mod commands;
pub(super) mod datagrams;
pub(super) mod ending;
mod events;
mod first_flight;
mod holding;
mod id_observer;
mod key_use;
mod known;
pub(super) mod migration;
mod observer;
pub(super) mod path_observer;
pub(super) mod pre_connect;
mod preferred;
mod trace;
mod transmit;
mod validation;
mod versions;

use datagrams::DatagramQueue;
use ending::internal;
use events::{Batches, Pending};
pub(super) use holding::CONNECTION_BYTES;
use key_use::KeyUse;
use observer::ConnectionObserver;
use preferred::Probing;

/// A connection of an [`Endpoint`](super::Endpoint), which returns it by its key.
pub struct Connection {
    /// The host's own tag, unused here.
    pub user: u64,
    quinn: quinn::Connection,
    phase: Phase,
    streams: Streams,
    credit: Credit,
    /// The bytes that the host keeps for this connection.
    queued: Arc<Queued>,
    /// How many of its streams were shed.
    sheds: u32,
    peers_limits: PeersLimits,
    datagrams: DatagramQueue,
    /// More waits than [`Self::is_full`] allows; `ConnectionWritable` will follow.
    was_full: bool,
    observer: ConnectionObserver,
    ids: ConnectionIds,
    packet_log: Option<Arc<Recorder>>,
    /// Pings requested before the handshake was complete.
    early_pings: Vec<u64>,
    tickets: Arc<TicketInbox>,
    /// A client's tokens.
    tokens: Option<Arc<ConnectionTokens>>,
    events: VecDeque<Pending>,
    batches: Batches,
    path: Path,
    addresses: Addresses,
    /// At a server: this connection's part of its client's account.
    holding: Option<Holding>,
    peer_parameters: PeerParameters,
    /// The limit on all streams' data that 0-RTT data was sent with, which the state machine keeps.
    early_max_data: u64,
    /// The effective limit while it is smaller: see `Streams::set_room`.
    counted_max_data: Option<u64>,
    /// The server's preferred address, for use once the handshake is confirmed.
    preferred: Option<PreferredAddress>,
    probing: Option<Probing>,
    use_preferred: bool,
    ecn: EcnCounters,
    cipher_suite: Option<u16>,
    group: Option<u16>,
    key_use: KeyUse,
    alpn: Option<Vec<u8>>,
    server_name: Option<String>,
    /// We closed the connection, and repeat the close if the peer continues to send (RFC 9000 section 10.2.1).
    repeats_close: bool,
    /// Nothing is sent until the host has added its first data.
    is_held: bool,
    versions: Arc<Versions>,
    /// Datagrams that were passed to the state machine in more than one piece.
    later_pieces: u64,
    /// How many RESET_STREAM frames the state machine had accepted when the last one was queued for it.
    resets_taken: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Handshake,
    Established,
    /// `Closed` was queued or delivered.
    Closed,
}

/// Getters.
impl Connection {
    /// The ID of the next stream of ours. Does not open it; sending does.
    pub fn next_stream_id(&self, unidirectional: bool) -> u64 {
        self.streams
            .next_id(if unidirectional { Dir::Uni } else { Dir::Bi })
    }

    /// Bytes of the stream that wait for the peer's limits or the send window. Data that the state machine has
    /// taken and the peer has not acknowledged does not count.
    pub fn send_queue_bytes(&self, stream_id: u64) -> usize {
        self.streams.queued_bytes_of(stream_id)
    }

    /// True if the stream's queue grew to the high watermark: `StreamWritable` or `StreamAbandoned` follows.
    pub fn is_stream_full(&self, stream_id: u64) -> bool {
        self.streams.is_full(stream_id)
    }

    /// The streams that have not ended, in any order.
    pub fn stream_ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.streams.ids()
    }

    /// The state of a stream; `None` for one that has ended or never existed.
    pub fn stream_state(&self, stream_id: u64) -> Option<StreamState> {
        self.streams.state(stream_id)
    }

    /// True if data of ours on the stream, or its FIN, is not sent or not acknowledged.
    pub fn is_sending(&self, stream_id: u64) -> bool {
        self.streams.is_sending(stream_id)
    }

    /// True if the stream may be read: its end was not read, and it was not stopped.
    pub fn is_receiving(&self, stream_id: u64) -> bool {
        self.streams.is_receiving(stream_id)
    }

    /// True if a stream that this side has finished is not wholly acknowledged.
    pub fn is_finishing(&self) -> bool {
        self.streams.is_finishing()
    }

    /// True if the high watermark is reached on all streams together, or more than half of the datagram queue is
    /// used. `ConnectionWritable` follows.
    pub fn is_full(&self) -> bool {
        self.was_full
    }

    /// The largest datagram that can be sent now; `None` before the handshake is complete, and if either side has
    /// datagrams disabled.
    pub fn max_datagram_size(&mut self) -> Option<usize> {
        match self.phase {
            Phase::Established if self.datagrams.is_enabled() => self.quinn.datagrams().max_size(),
            _ => None,
        }
    }

    /// The largest datagram that the peer accepts, even if this side accepts none; `None` if the peer accepts none,
    /// and while its transport parameters are unknown.
    pub fn peer_max_datagram_size(&mut self) -> Option<usize> {
        self.quinn.datagrams().max_size()
    }

    /// True if the handshake is complete and the connection not closed.
    pub fn is_established(&self) -> bool {
        self.phase == Phase::Established
    }

    /// True if this is a server's connection that reads 0-RTT data: the handshake is not complete.
    pub fn reads_early_data(&self) -> bool {
        self.phase == Phase::Handshake && !self.is_client() && self.quinn.has_0rtt()
    }

    /// True if the connection was closed by either side. The `Closed` event may still be queued.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    pub fn is_client(&self) -> bool {
        self.quinn.side().is_client()
    }

    /// The address that packets are sent to. On a server the client may not have proved it (RFC 9000 section 9.3):
    /// see [`validated_addr`](Self::validated_addr).
    pub fn remote_addr(&self) -> SocketAddr {
        self.path.remote(self.quinn.remote_address())
    }

    /// The local address that a server's connection arrived at, if the host passed it.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.quinn.local_ip()
    }

    /// The application protocol, once negotiated.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.alpn.as_deref()
    }

    /// The name connected to, or on a server the name in the client's SNI.
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }
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
        let mut events = VecDeque::new();
        let mut batches = Batches::Unreported;
        if side.is_server() {
            events.push_back(Pending::Ready(Event::Accepted));
            // Its first datagram is being handled.
            batches = Batches::Missed;
        }
        let mut streams = Streams::new(side, settings.send_window);
        let mut early_max_data = 0;
        if side.is_client() && quinn.has_0rtt() {
            streams.begin_early();
            // Those that the ticket remembers.
            let parameters = session_details(&quinn).peer_parameters.unwrap_or_default();
            early_max_data = PeerParameters::read(&parameters).initial_max_data;
        }
        if settings.reset_stream_at {
            streams.take_reset_at();
        }
        let mut observer = ConnectionObserver::new(details.tap.clone());
        if early_max_data > 0 {
            // Before the handshake is complete: MAX_DATA may follow the packet that completes it.
            observer.expect_max_data(0);
        }
        let connection = Self {
            user: 0,
            phase: Phase::Handshake,
            streams,
            credit: settings.credit(side),
            queued: Arc::default(),
            sheds: 0,
            peers_limits: PeersLimits::new([settings.max_streams_bidi, settings.max_streams_uni]),
            tickets: details.tickets,
            tokens,
            datagrams: DatagramQueue::new(
                settings.datagram_recv_bytes.is_some(),
                settings.datagram_send_bytes,
            ),
            ids: details.tap.ids(),
            packet_log: details.tap.recorder().cloned(),
            observer,
            was_full: false,
            early_pings: Vec::new(),
            events,
            batches,
            path: Path::new(local, has_preferred),
            addresses: Addresses::default(),
            holding: None,
            peer_parameters: PeerParameters::default(),
            early_max_data,
            counted_max_data: None,
            preferred: None,
            probing: None,
            use_preferred: settings.use_preferred_address,
            ecn: EcnCounters::default(),
            cipher_suite: None,
            group: None,
            key_use: KeyUse::new(details.tap, settings.key_update_packets),
            alpn: None,
            server_name,
            repeats_close: false,
            is_held: false,
            versions: details.versions,
            later_pieces: 0,
            resets_taken: 0,
            quinn,
        };
        connection.log_started();
        connection
    }

    /// Enables `ConnectionIdIssued` and `ConnectionIdRetired`, which report the IDs of this connection beside the
    /// first.
    pub(super) fn watch_connection_ids(&mut self) {
        if let Some(first) = self.ids.host.clone() {
            self.observer.expect_ids(first);
        }
    }

    /// Records IDs that the endpoint has generated for this connection, and that will be issued to the peer.
    pub(super) fn issued(&mut self, made: impl IntoIterator<Item = ConnectionId>) {
        for id in made {
            if self.observer.issued(&id) && self.phase != Phase::Closed {
                self.push(Event::ConnectionIdIssued { id: id.to_vec() });
            }
        }
    }

    pub(super) fn quinn(&mut self) -> &mut quinn::Connection {
        &mut self.quinn
    }

    /// True if the handshake is not complete: received data is 0-RTT data.
    pub fn is_handshaking(&self) -> bool {
        self.phase == Phase::Handshake
    }

    /// True if the peer may not have received our close: this side closed, and no close of the peer has answered.
    pub(super) fn has_more_to_say(&self) -> bool {
        match self.phase {
            Phase::Handshake | Phase::Established => true,
            Phase::Closed => self.repeats_close && !self.observer.peer_has_closed(),
        }
    }

    /// The peer has closed: nothing more is sent, not even our own close (RFC 9000 section 10.2.2).
    fn is_draining(&self) -> bool {
        self.phase == Phase::Closed && self.observer.peer_has_closed()
    }

    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Ends the connection without sending anything: the peer is gone or never answered.
    pub(super) fn abandon(&mut self, reason: String, kind: CloseKind) {
        self.pump();
        if self.phase != Phase::Closed {
            self.closed(internal(reason, kind));
        }
    }

    fn begin_to_repeat_close(&mut self) {
        self.repeats_close = true;
        self.observer.expect_close();
    }

    fn closed(&mut self, event: Event) {
        self.phase = Phase::Closed;
        self.observer.inflow().disable();
        self.addresses.drop_waiting();
        congestion_gauge::open_window(self.quinn.congestion_state());
        self.release_sending();
        self.stop_probing();
        self.push(event);
    }

    fn push(&mut self, event: Event) {
        self.events.push_back(Pending::Ready(event));
    }
}

fn session_details(quinn: &quinn::Connection) -> SessionDetails {
    let details = quinn.crypto_session().handshake_data();
    let details = details.and_then(|details| details.downcast().ok());
    *details.expect("sessions of this crate always have details")
}
