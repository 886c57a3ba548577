//! One UDP socket's worth of QUIC connections: routing, timers, and fairness in sending.
//!
//! - `arrival`: what becomes of a datagram; `handshakes`: whose it may be besides.
//! - `accept`, `pending_accepts`: new connections, and those that wait for the host first.
//! - `negotiation`: versions, and a client that begins again with another one.
//! - `table`, `reconcile`, `timers`: the connections there are, and what is to be done about each.
//! - `transmit`: what goes out.
//! - `connection_ids`: the connection IDs that are issued.
//! - `migration`: changes of address.
//! - `memory`: what clients hold, and what is shed.
//!
//! Not here: sockets, and what a connection does (`connection`).

use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use quinn_proto::{self as quinn, ConnectionHandle};
use slab::Slab;
use uringcore_limits::budget::Budget;
use uringcore_limits::token_bucket::{Rate, TokenBucket};
use uringcore_wire::header::KNOWN_VERSIONS;

use super::{
    ClientSetup, CloseKind, ConnectError, Connection, EndpointSettings, EndpointStats, Event,
    ServerSetup,
    accept_policy::{AcceptPolicy, Neighbour, pending_accepts::PendingAccepts},
    paths::aliases::Aliases,
};
use crate::{seams::token_context::TokenContext, tls};

mod accept;
mod arrival;
pub(super) mod connection_ids;
mod handshakes;
mod memory;
mod migration;
pub(super) mod negotiation;
mod pending_accepts;
mod reconcile;
mod table;
mod timers;
mod transmit;

use connection_ids::{ConnectionIds, NextId};
use handshakes::{Handshakes, Place};
use memory::Shedding;
use negotiation::Restart;
use timers::Timers;
pub use transmit::Transmit;

/// Names a connection of an endpoint. A key is never used again for another connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionKey(u64);

impl ConnectionKey {
    /// No connection has it.
    const NONE: Self = Self(u64::MAX);

    fn new(index: usize, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | index as u64)
    }

    fn index(self) -> usize {
        (self.0 & 0xffff_ffff) as usize
    }

    pub fn as_u64(self) -> u64 {
        self.0
    }

    pub fn from_u64(value: u64) -> Self {
        Self(value)
    }
}

/// What came with a received datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramMeta {
    pub remote: SocketAddr,
    /// The address that it was sent to, if the socket tells.
    pub local_ip: Option<IpAddr>,
    /// The two ECN bits (RFC 3168).
    pub ecn: Option<u8>,
}

/// One UDP socket's worth of QUIC connections.
///
/// The order of a turn: [`handle_datagram`](Self::handle_datagram) for *every* datagram there
/// is (ACKs are joined only then), [`handle_timeout`](Self::handle_timeout),
/// [`poll_event`](Self::poll_event) until `None`, with commands to
/// [`connection`](Self::connection)s in between, and
/// [`poll_transmit`](Self::poll_transmit) until `None`; then
/// [`next_timeout`](Self::next_timeout) is right. Events may come out of `poll_transmit` too.
pub struct Endpoint {
    pub(super) quinn: quinn::Endpoint,
    settings: EndpointSettings,
    pub(super) server: Option<ServerSetup>,
    aliases: Aliases,
    /// How many clients of ours are connected to an address.
    dialed: HashMap<SocketAddr, usize>,
    /// Clients do not move to the addresses that their servers prefer.
    keeps_to_peer: bool,
    /// The socket that the datagram being handled came from.
    pub(super) arrival: u32,
    /// How many bytes of it no connection has counted.
    arrival_bytes: usize,
    /// Whose IDs the next ones are.
    pub(super) next_id: NextId,
    /// What the tokens of the call under way are about.
    pub(super) tokens: TokenContext,
    pub(super) accept_policy: AcceptPolicy,
    /// Boxed, because the table keeps its slots until its end is free, and an entry has kilobytes.
    pub(super) connections: Slab<Box<Entry>>,
    /// At this number of connections, going down, the tables are made smaller.
    shrink_at: usize,
    /// The state machine's handle to our index.
    pub(super) by_handle: Vec<Option<usize>>,
    generation: u32,
    /// Connections that may have something to send, in the order in which they get their turn.
    sending: VecDeque<usize>,
    /// Connections that may have events.
    eventful: VecDeque<usize>,
    pub(super) handshakes: Handshakes,
    timers: Timers,
    pending_accepts: PendingAccepts,
    /// The end of the one connection that this endpoint was for, if its first flight was already
    /// answered with a close.
    failed: Option<Event>,
    /// Stateless answers: Version Negotiation, Retry, resets, refusals.
    responses: VecDeque<(quinn::Transmit, Vec<u8>, u32)>,
    pub(super) resets: TokenBucket,
    pub(super) scratch: Vec<u8>,
    max_segments: usize,
    /// True if a connection keeps a log, or one did.
    pub(super) is_logging: bool,
    budget: Arc<Budget>,
    shedding: Shedding,
    pub(super) stats: EndpointStats,
}

pub(super) struct Entry {
    pub connection: Connection,
    generation: u32,
    pub handle: ConnectionHandle,
    /// The state machine no longer knows it. It only waits for its events to be polled.
    pub drained: bool,
    /// What a client's connection is begun with again if the server asks for another version.
    pub restart: Option<Box<Restart>>,
    /// What the connection holds, as far as `EndpointStats` count it.
    held_bytes: usize,
    /// While its handshake is under way.
    pub handshake: Option<Place>,
    /// A server's connection whose handshake is under way.
    incoming_handshake: bool,
    /// Whose share of the server this connection is, until it is forgotten.
    neighbour: Option<Neighbour>,
    /// It counts there as a closed one.
    lingers: bool,
    handshake_deadline: Option<Instant>,
    /// The address of the server's that it uses, or asks, beside the one that the state machine knows.
    alias: Option<SocketAddr>,
    /// Where this client was connected to.
    dialed: Option<SocketAddr>,
    timer: Option<Instant>,
    /// When it last had nothing more to send, until it has been given its rest after that.
    quiet_since: Option<Instant>,
    is_sending: bool,
    is_eventful: bool,
    /// True if nothing happened since [`Endpoint::reconcile`].
    is_settled: bool,
}

impl Endpoint {
    /// # Panics
    /// When [`EndpointSettings::check`] would fail.
    pub fn new(settings: EndpointSettings, server: Option<ServerSetup>) -> Self {
        settings
            .check()
            .expect("the endpoint's settings were checked");
        let next_id = NextId::new(settings.tells_connection_ids);
        let tokens = TokenContext::default();
        Self {
            quinn: state_machine(&settings, server.as_ref(), next_id.clone(), &tokens),
            next_id,
            tokens,
            accept_policy: AcceptPolicy::new(&settings),
            budget: settings.budget.clone().unwrap_or_default(),
            settings,
            server,
            aliases: Aliases::default(),
            dialed: HashMap::new(),
            keeps_to_peer: false,
            arrival: 0,
            arrival_bytes: 0,
            connections: Slab::new(),
            shrink_at: 0,
            by_handle: Vec::new(),
            generation: 0,
            sending: VecDeque::new(),
            eventful: VecDeque::new(),
            handshakes: Handshakes::default(),
            timers: Timers::default(),
            pending_accepts: PendingAccepts::default(),
            failed: None,
            responses: VecDeque::new(),
            resets: TokenBucket::new(RESETS),
            scratch: Vec::new(),
            max_segments: SEGMENTS_DEFAULT,
            is_logging: false,
            shedding: Shedding::default(),
            stats: EndpointStats::default(),
        }
    }

    /// What new connections are accepted with. With `None` their packets are ignored, as if nobody
    /// were there; connections that exist live on. Tokens that the one before gave out stay good.
    pub fn set_server(&mut self, server: Option<ServerSetup>) {
        let server = server.map(|new| match &self.server {
            Some(old) => new.in_place_of(old),
            None => new,
        });
        self.quinn
            .set_server_config(server.as_ref().map(|setup| setup.config(&self.tokens)));
        if server.is_none() {
            self.drop_pending_accepts();
        }
        self.server = server;
    }

    /// From now on a server answers new connections with CONNECTION_REFUSED (RFC 9000 section 5.2.2),
    /// so that clients need not wait to learn it; connections that exist live on, and so do those that
    /// were let in and wait for the host's answer. A worker on a port with others sends new connections
    /// on to the next one, by a Retry, and refuses those that were sent.
    pub fn refuse_incoming(&mut self) {
        self.accept_policy.refuse_all();
    }

    /// Begins a connection. `server_name` is verified against the server's certificate and sent to
    /// the server if it is a DNS name; an empty one stands for the address.
    pub fn connect(
        &mut self,
        now: Instant,
        setup: &ClientSetup,
        remote: SocketAddr,
        server_name: &str,
    ) -> Result<ConnectionKey, ConnectError> {
        if self.connections.len() >= self.settings.max_connections {
            return Err(ConnectError::TooManyConnections {
                limit: self.settings.max_connections,
            });
        }
        let name = match server_name {
            "" => remote.ip().to_canonical().to_string(),
            name => name.to_owned(),
        };
        let tokens = Arc::new(setup.connection_tokens());
        let mut config = setup.config.clone();
        config.token_store(tokens.clone());
        self.release_alias(now, remote);
        let (handle, conn) = self.quinn.connect(now, config, remote, &name)?;
        self.stats.connections_opened += 1;
        let deadline = match setup.transport.idle_timeout.is_zero() {
            // Nothing else would ever end a handshake with nobody.
            true => Some(now + HANDSHAKE_WITHOUT_IDLE_TIMEOUT),
            false => None,
        };
        let restart = Restart {
            setup: setup.clone(),
            server_name: name.clone(),
        };
        let identity = (Some(name), Some(tokens));
        let key = self.insert(handle, conn, &setup.transport, identity, deadline);
        self.connections[key.index()].restart = Some(Box::new(restart));
        self.note_dialed(key.index(), remote);
        Ok(key)
    }

    /// Takes one datagram. Datagrams that the kernel joined have been cut.
    pub fn handle_datagram(&mut self, now: Instant, meta: DatagramMeta, data: BytesMut) {
        self.handle_datagram_at(now, 0, meta, data);
    }

    /// Takes one datagram that arrived at another than the host's first socket.
    pub fn handle_datagram_at(
        &mut self,
        now: Instant,
        socket: u32,
        meta: DatagramMeta,
        data: BytesMut,
    ) {
        self.arrival = socket;
        self.stats.datagrams_received += 1;
        self.stats.bytes_received += data.len() as u64;
        let data = self.note_datagram(data);
        self.take_in(now, meta, data);
        self.note_handled(now, self.known_address(meta.remote));
    }

    /// The network says that nobody is at `remote` (ICMP): handshakes with it fail at once. An
    /// established connection does not listen to what anyone could have sent (RFC 9000 section
    /// 14.2.1 demands such care for path MTU discovery).
    pub fn handle_unreachable(&mut self, _now: Instant, remote: SocketAddr, errno: i32) {
        let indices: Vec<usize> = self.handshakes.with(remote).collect();
        for index in indices {
            // A datagram of the same turn may have completed the handshake.
            self.reconcile(index);
            let entry = self.connections.get(index);
            if entry.is_none_or(|entry| entry.handshake.is_none()) {
                continue;
            }
            let reason = std::io::Error::from_raw_os_error(errno);
            let reason = format!("{remote} cannot be reached: {reason}");
            self.abandon(index, reason, CloseKind::Unreachable { errno });
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is wanted next. May be early.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers
            .next()
            .into_iter()
            .chain(self.pending_accepts.deadline())
            .min()
    }

    /// Fires what is due, once per connection: after a long sleep a retransmission timer may be due
    /// again at once, and should not be before the first probe was sent.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.drop_overdue(now);
        for index in self.timers.take_due(now) {
            self.connections[index].timer = None;
            self.rest_if_quiet(now, index);
            self.reconcile(index);
            let Some(entry) = self.connections.get_mut(index) else {
                continue;
            };
            // It moved to later, or the connection was only given its rest.
            if entry.timer.is_none_or(|at| at > now) {
                continue;
            }
            // What is entered next is a deadline to come.
            self.timers.remove(index, &mut entry.timer);
            if entry.connection.is_handshaking()
                && entry.handshake_deadline.is_some_and(|at| at <= now)
            {
                let reason = "the handshake did not complete in time".into();
                self.abandon(index, reason, CloseKind::IdleTimeout);
                continue;
            }
            entry.connection.handle_timeout(now);
            entry.connection.note_batch();
            self.touch(index);
            self.reconcile(index);
        }
    }

    /// The next event, all of one connection before those of the next.
    pub fn poll_event(&mut self) -> Option<(ConnectionKey, Event)> {
        if let Some(question) = self.pending_accepts.poll_question() {
            return Some((ConnectionKey::NONE, question));
        }
        while let Some(&index) = self.eventful.front() {
            if !self.connections[index].is_settled {
                self.reconcile(index);
            }
            let entry = &mut self.connections[index];
            if let Some(event) = entry.connection.poll_event() {
                if matches!(event, Event::Closed { .. }) {
                    self.stats.connections_closed += 1;
                }
                let key = ConnectionKey::new(index, entry.generation);
                if matches!(event, Event::StreamData { .. } | Event::StreamReset { .. }) {
                    // Reading gives the peer credit, which has to be told.
                    self.mark_sending(index);
                }
                return Some((key, event));
            }
            entry.is_eventful = false;
            self.eventful.pop_front();
            self.remove_if_over(index);
        }
        self.shedding.host_has_seen(&self.budget);
        None
    }

    /// A connection to give commands to. `None` once the connection is gone, which it is some time
    /// after its `Closed`.
    pub fn connection(&mut self, key: ConnectionKey) -> Option<&mut Connection> {
        let index = key.index();
        let generation = self.connections.get(index)?.generation;
        if ConnectionKey::new(index, generation) != key {
            return None;
        }
        self.touch(index);
        Some(&mut self.connections[index].connection)
    }

    /// A connection to look at, without the work that follows commands.
    pub fn peek(&self, key: ConnectionKey) -> Option<&Connection> {
        let entry = self.connections.get(key.index())?;
        let found = ConnectionKey::new(key.index(), entry.generation);
        (found == key).then_some(&entry.connection)
    }

    /// All connections there are, closed ones that linger included.
    pub fn keys(&self) -> impl Iterator<Item = ConnectionKey> + '_ {
        self.connections
            .iter()
            .map(|(index, entry)| ConnectionKey::new(index, entry.generation))
    }

    /// Closes every connection with an application's code. Those that wait for the host's answer have no
    /// keys to say one with: they are refused.
    pub fn close_all(&mut self, now: Instant, error_code: u64, reason: &[u8]) {
        self.refuse_pending_accepts();
        let indices: Vec<usize> = self.connections.iter().map(|(index, _)| index).collect();
        for index in indices {
            self.connections[index]
                .connection
                .close(now, error_code, None, reason);
            self.touch(index);
        }
    }

    /// True if nothing is left: no connection, not even one that lingers to answer late packets,
    /// and nothing to send.
    pub fn is_idle(&self) -> bool {
        self.connections.is_empty() && self.responses.is_empty() && self.pending_accepts.is_empty()
    }

    /// True if no peer is left that may have something to hear from us: every connection is over,
    /// and those that we closed were answered or have waited long enough (RFC 9000 section 10.2.1).
    /// Nor does anyone wait for the host's answer. From here on the socket can go.
    pub fn may_end(&self) -> bool {
        let mut entries = self.connections.iter();
        self.responses.is_empty()
            && self.pending_accepts.is_empty()
            && !entries.any(|(_, entry)| !entry.drained && entry.connection.has_more_to_say())
    }

    /// True if a new connection waits for the host's answer, or for the rest of its ClientHello.
    pub fn holds_back(&self) -> bool {
        !self.pending_accepts.is_empty()
    }

    /// How many connections there are, closed ones that linger included.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    pub fn max_connections(&self) -> usize {
        self.settings.max_connections
    }

    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// How many connections the tables have room for: it goes down again after a peak.
    pub fn capacity(&self) -> usize {
        self.connections.capacity()
    }

    /// Incoming handshakes under way.
    pub fn handshakes(&self) -> usize {
        self.accept_policy.handshakes()
    }

    pub fn stats(&self) -> EndpointStats {
        self.stats
    }

    /// For an endpoint of one connection: how that failed, if it did before it came to be. The event is
    /// [`Event::Closed`].
    pub fn take_failed(&mut self) -> Option<Event> {
        self.failed.take()
    }
}

fn state_machine(
    settings: &EndpointSettings,
    server: Option<&ServerSetup>,
    next_id: NextId,
    tokens: &TokenContext,
) -> quinn::Endpoint {
    let mut config =
        quinn::EndpointConfig::new(tls::reset_key(settings.reset_key, &settings.socket_name));
    let first = settings.first_connection_id.as_deref();
    let ids = ConnectionIds::new(settings.connection_id_length, settings.worker, next_id);
    let ids = ids
        .beginning(first)
        .standing_in(settings.empty_places.clone());
    config
        .supported_versions(KNOWN_VERSIONS.to_vec())
        .cid_generator(move || Box::new(ids.clone()))
        .rng_seed(settings.rng_seed)
        // A server that was started again has to reset many connections: `RESETS` is the limit.
        .min_reset_interval(Duration::ZERO)
        .max_udp_payload_size(settings.max_udp_payload_size)
        .expect("the size was checked");
    let server_config = server.map(|setup| setup.config(tokens));
    quinn::Endpoint::new(
        Arc::new(config),
        server_config,
        settings.dont_fragment,
        None,
    )
}

impl From<quinn::ConnectError> for ConnectError {
    fn from(error: quinn::ConnectError) -> Self {
        match error {
            quinn::ConnectError::InvalidServerName(name) => Self::InvalidServerName(name),
            quinn::ConnectError::InvalidRemoteAddress(addr) => Self::InvalidRemoteAddress(addr),
            other => Self::Tls(other.to_string()),
        }
    }
}

/// What Linux takes in one `UDP_SEGMENT` send on every kernel that has it.
const SEGMENTS_DEFAULT: usize = 64;
/// Stateless resets, which noise asks for as well as lost connections (RFC 9000 section 10.3.3).
const RESETS: Rate = Rate {
    per_second: 1_000.0,
    burst: 1_000,
};
/// How long a client tries when its idle time-out is switched off.
const HANDSHAKE_WITHOUT_IDLE_TIMEOUT: Duration = Duration::from_secs(30);
