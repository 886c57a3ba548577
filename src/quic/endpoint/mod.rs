//! The QUIC connections of one UDP socket: routing, timers, and fairness in sending.
//!
//! - `udp_datagram_dispatch`: dispatches datagrams; `handshake_index`: indices of the handshakes in progress.
//! - `accept`, `session_lookup_wait`: new connections, and those that wait for the application first.
//! - `version_negotiation`: versions, and clients that begin again with another one.
//! - `connection_table`, `connection_updates`: the table of connections, and updates after each change.
//! - `transmit`: sending.
//! - `connection_id_generator`: generates connection IDs.
//! - `migration`, `address_aliases`: changes of address; second addresses of servers.
//! - `memory_shedding`: the memory of clients, and shedding.
//!
//! Not here: sockets, and the state of one connection (`connection`).

use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use quinn_proto::{self as quinn, ConnectionHandle, crypto::HmacKey};
use slab::Slab;
use uringcore_limits::memory_budget::{AddressBlock, Budget};
use uringcore_limits::token_bucket::{Rate, TokenBucket};
use uringcore_wire::packet_header::{KNOWN_VERSIONS, is_long};

use super::{
    ClientSetup, CloseKind, ConnectError, Connection, Deadlines, EndpointSettings, EndpointStats,
    Event, ServerSetup,
    accept_policy::{AcceptPolicy, pending_session_lookups::PendingSessionLookups},
    earliest,
    paths::address_aliases::AddressAliases,
};
use crate::{tls::ResetKeys, workarounds::address_token_version::TokenContext};

mod accept;
mod address_aliases;
pub(super) mod connection_id_generator;
mod connection_table;
mod connection_updates;
mod handshake_index;
mod memory_shedding;
mod migration;
mod session_lookup_wait;
mod transmit;
mod udp_datagram_dispatch;
pub(super) mod version_negotiation;

use connection_id_generator::{EndpointConnectionIds, NextId};
use handshake_index::{HandshakeKeys, Handshakes};
use memory_shedding::Shedding;
pub use transmit::Transmit;
use version_negotiation::Restart;

/// Identifies a connection of an endpoint. A key is not reused after its connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionKey(u64);

impl ConnectionKey {
    /// A key that no connection has.
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

/// The result of the callback of [`Endpoint::poll_event_past`].
#[derive(Debug)]
pub enum Taking {
    /// The application does not take the event, so `poll_event_past` returns it.
    Left(Event),
    /// The application has stored the event, and has given the connection no commands.
    Kept,
    /// The application has handled the event, and may have given the connection commands.
    Handled,
}

/// Metadata of a received datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramMeta {
    pub remote: SocketAddr,
    /// The local address that the datagram was sent to. `None` if the socket does not report it.
    pub local_ip: Option<IpAddr>,
    /// The two ECN bits of the IP header (RFC 3168).
    pub ecn: Option<u8>,
}

/// The QUIC connections of one UDP socket.
///
/// Calls in each loop iteration, in this order: [`handle_datagram`](Self::handle_datagram) for *every* received
/// datagram, so that one ACK answers all of them; [`handle_timeout`](Self::handle_timeout);
/// [`poll_event`](Self::poll_event) until `None`, with commands to [`connection`](Self::connection)s in between;
/// [`poll_transmit`](Self::poll_transmit) until `None`, which may also cause events;
/// [`next_timeout`](Self::next_timeout).
pub struct Endpoint {
    pub(super) quinn: quinn::Endpoint,
    settings: EndpointSettings,
    pub(super) server: Option<ServerSetup>,
    aliases: AddressAliases,
    /// The number of client connections to each server address.
    dialed: HashMap<SocketAddr, usize>,
    /// True if clients must not migrate to the addresses that their servers prefer.
    keeps_to_peer: bool,
    /// The number of the socket on which the current datagram arrived.
    pub(super) arrival: u32,
    /// The length of the received datagram that is being handled. Zero after a connection has counted it.
    arrival_bytes: usize,
    /// Flags for the next connection ID.
    pub(super) next_id: NextId,
    /// The QUIC version of address tokens in the current call of quinn-proto.
    pub(super) tokens: TokenContext,
    pub(super) accept_policy: AcceptPolicy,
    /// Entries are boxed, because an entry has kilobytes and the table shrinks only from its end.
    pub(super) connections: Slab<Box<Entry>>,
    /// When the number of connections falls to this, the tables shrink.
    shrink_at: usize,
    /// The slot of each of quinn-proto's connection handles.
    pub(super) by_handle: Vec<Option<usize>>,
    generation: u32,
    /// Slots of connections that may have packets to send. They send one batch each, in this order (round robin).
    sending: VecDeque<usize>,
    /// Slots of connections that may have events.
    eventful: VecDeque<usize>,
    pub(super) handshakes: Handshakes,
    deadlines: Deadlines<usize>,
    pending_accepts: PendingSessionLookups,
    /// The `Closed` event of a connection whose first packets quinn-proto has answered with a close. quinn-proto then
    /// returns no connection object. Only set by an endpoint for a single connection.
    failed: Option<Event>,
    /// Packets without a connection that wait to be sent: Version Negotiation, Retry, stateless resets, refusals.
    responses: VecDeque<(quinn::Transmit, Vec<u8>, u32)>,
    /// The budget of stateless resets: [`RESETS`].
    pub(super) resets: TokenBucket,
    /// The keys of stateless resets: the present one, which quinn-proto has too, and former ones, which only this crate
    /// uses.
    pub(super) reset_keys: ResetKeys,
    pub(super) scratch: Vec<u8>,
    max_segments: usize,
    /// True after the first connection that writes a qlog.
    pub(super) is_logging: bool,
    budget: Arc<Budget>,
    shedding: Shedding,
    pub(super) stats: EndpointStats,
}

pub(super) struct Entry {
    pub connection: Connection,
    generation: u32,
    pub handle: ConnectionHandle,
    /// True if quinn-proto has removed the connection. The entry stays until its events have been polled.
    pub drained: bool,
    /// The parameters to begin a client's connection again, if the server requires another version.
    pub restart: Option<Box<Restart>>,
    /// The bytes of the connection that `EndpointStats::held_bytes` includes.
    held_bytes: usize,
    /// The keys in the index of handshakes. `None` when the handshake has ended.
    pub handshake: Option<HandshakeKeys>,
    /// True for a server's connection whose handshake is in progress.
    incoming_handshake: bool,
    /// The client address at which the connection is counted. `None` when it is not counted any more.
    block: Option<AddressBlock>,
    /// True if the connection is counted as a closed one.
    lingers: bool,
    handshake_deadline: Option<Instant>,
    /// The server's preferred address, while this client's connection probes or uses it (RFC 9000 section 9.6).
    /// quinn-proto keeps the server's first address, and `paths::address_aliases` translates between them.
    alias: Option<SocketAddr>,
    /// The server address that this client connection is counted for in [`Endpoint::dialed`].
    dialed: Option<SocketAddr>,
    timer: Option<Instant>,
    /// The time at which the connection last had nothing to send. `None` after its unused capacity was freed.
    quiet_since: Option<Instant>,
    is_sending: bool,
    is_eventful: bool,
    /// True if the connection has not changed since the last [`Endpoint::reconcile`].
    is_reconciled: bool,
    /// True if the application has given commands, and it is not certain that all their data was sent
    /// ([`Endpoint::is_commanded`]).
    is_commanded: bool,
    /// True if stream data were read since packets were last taken.
    is_read: bool,
    /// True if nothing has happened since the last packet, and that packet had room left.
    is_spent: bool,
}

impl Endpoint {
    /// # Panics
    /// If [`EndpointSettings::check`] fails.
    pub fn new(settings: EndpointSettings, server: Option<ServerSetup>) -> Self {
        settings
            .check()
            .expect("the endpoint's settings were checked");
        let next_id = NextId::new(settings.reports_connection_ids);
        let tokens = TokenContext::default();
        let reset_keys = ResetKeys::new(&settings.reset_keys, &settings.socket_name);
        if server.is_some() {
            next_id.set_mark(reset_keys.mark());
        }
        let reset_key = reset_keys.hmac();
        Self {
            quinn: state_machine(
                &settings,
                server.as_ref(),
                next_id.clone(),
                &tokens,
                reset_key,
            ),
            reset_keys,
            next_id,
            tokens,
            accept_policy: AcceptPolicy::new(&settings),
            budget: settings.budget.clone().unwrap_or_default(),
            settings,
            server,
            aliases: AddressAliases::default(),
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
            deadlines: Deadlines::default(),
            pending_accepts: PendingSessionLookups::default(),
            failed: None,
            responses: VecDeque::new(),
            resets: TokenBucket::new(RESETS),
            scratch: Vec::new(),
            max_segments: GSO_SEGMENTS_MAX,
            is_logging: false,
            shedding: Shedding::default(),
            stats: EndpointStats::default(),
        }
    }

    /// Sets the configuration for new connections. With `None` their packets are ignored, as if the port were unused.
    /// Existing connections continue, and tokens of the previous configuration stay valid.
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
        self.mark_ids();
    }

    /// Changes the secrets for stateless resets (see [`EndpointSettings::reset_keys`]). New connection IDs get tokens
    /// of the first secret. Former secrets stay for IDs that were issued before,
    /// [`RESET_KEYS_MAX`](crate::tls::RESET_KEYS_MAX) in all. An empty list changes nothing.
    pub fn set_reset_keys(&mut self, secrets: &[[u8; 32]], socket_name: &[u8]) {
        self.reset_keys.change(secrets, socket_name);
        self.mark_ids();
    }

    /// Sets the last byte of new connection IDs. On a server the byte is a mark that identifies the present reset
    /// key, so that a later stateless reset uses the key with which the ID's token was made. A client sets no mark.
    fn mark_ids(&self) {
        let mark = self.server.as_ref().and_then(|_| self.reset_keys.mark());
        self.next_id.set_mark(mark);
    }

    /// Answers new clients with CONNECTION_REFUSED from now on (RFC 9000 section 5.2.2), so that they need not wait for
    /// a time-out. Existing connections continue, and so do pending accepts. If workers share a port, a new client is
    /// sent to the next worker by a Retry; a client that another worker has sent here is refused.
    pub fn refuse_incoming(&mut self) {
        self.accept_policy.refuse_all();
    }

    /// Begins a connection to `remote`. `server_name` is verified against the server's certificate, and is sent to the
    /// server if it is a DNS name. If it is empty, the address is verified.
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
            // The connection has no idle time-out, so this time limit ends a handshake whose peer does not answer.
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

    /// Handles one datagram. The caller has already split datagrams that the kernel joined (GRO).
    pub fn handle_datagram(&mut self, now: Instant, meta: DatagramMeta, data: BytesMut) {
        self.handle_datagram_at(now, 0, meta, data);
    }

    /// Handles one datagram that arrived on the application's socket with this number. The first socket is 0.
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
        if !is_long(&data) {
            // Most datagrams have a short header, and no such datagram begins a connection.
            self.handle_short_header(now, meta, data);
            return;
        }
        let data = self.copy_for_lookup(data);
        self.dispatch(now, meta, data);
        self.store_for_lookup(now, self.known_address(meta.remote));
    }

    /// Handles an ICMP error: `remote` is unreachable. Handshakes with it fail at once. Established connections ignore
    /// the error, because anybody could have sent it (RFC 9000 section 14.2.1).
    pub fn handle_unreachable(&mut self, _now: Instant, remote: SocketAddr, errno: i32) {
        let indices: Vec<usize> = self.handshakes.with(remote).collect();
        for index in indices {
            // A datagram of the same loop iteration may have completed the handshake already.
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

    /// The time at which the application must call [`handle_timeout`](Self::handle_timeout). The time may be earlier
    /// than necessary, and is never too late.
    pub fn next_timeout(&self) -> Option<Instant> {
        earliest(self.deadlines.next(), self.pending_accepts.deadline())
    }

    /// Handles the timers that are due, once for each connection. After a long sleep of the program a retransmission
    /// timer may be due again at once, but must not fire before the first probe was sent.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.drop_overdue(now);
        for index in self.deadlines.take_due(now) {
            self.connections[index].timer = None;
            self.rest_if_quiet(now, index);
            self.reconcile(index);
            let Some(entry) = self.connections.get_mut(index) else {
                continue;
            };
            // The timer has moved to a later time, or the call only had to free unused capacity.
            if entry.timer.is_none_or(|at| at > now) {
                continue;
            }
            // The old entry is removed, so that the deadline that is entered next lies in the future.
            self.deadlines.remove(index, &mut entry.timer);
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

    /// Removes and returns the next event. All events of one connection come before those of the next connection.
    pub fn poll_event(&mut self) -> Option<(ConnectionKey, Event)> {
        self.poll_event_past(&mut |_, _, event| Taking::Left(event))
    }

    /// Returns the next event that `take` does not handle itself. `take` gets each event together with its connection,
    /// so a protocol above QUIC can read from the connection without a look-up. An event that `take` keeps is moved
    /// only once.
    pub fn poll_event_past(
        &mut self,
        take: &mut dyn FnMut(ConnectionKey, &mut Connection, Event) -> Taking,
    ) -> Option<(ConnectionKey, Event)> {
        if let Some(question) = self.pending_accepts.poll_question() {
            return Some((ConnectionKey::NONE, question));
        }
        while let Some(index) = self.next_eventful() {
            let entry = &mut self.connections[index];
            let key = ConnectionKey::new(index, entry.generation);
            let mut left = None;
            // Reading gives the peer credit, which must be sent.
            let mut has_read = false;
            while left.is_none()
                && let Some(event) = entry.connection.poll_event()
            {
                has_read |= matches!(event, Event::StreamData { .. } | Event::StreamReset { .. });
                if matches!(event, Event::Closed { .. }) {
                    self.stats.connections_closed += 1;
                }
                match take(key, &mut entry.connection, event) {
                    Taking::Left(event) => left = Some(event),
                    Taking::Kept => {}
                    Taking::Handled => {
                        // `take` may have called commands of the connection.
                        entry.is_reconciled = false;
                        entry.is_commanded = true;
                        has_read = true;
                    }
                }
            }
            if has_read {
                entry.is_read = true;
                self.mark_sending(index);
            }
            if let Some(event) = left {
                return Some((key, event));
            }
            self.connections[index].is_eventful = false;
            self.eventful.pop_front();
            self.remove_if_over(index);
        }
        self.shedding.events_polled(&self.budget);
        None
    }

    /// True if an event is waiting. The event is not taken.
    pub fn has_events(&mut self) -> bool {
        if self.pending_accepts.has_question() {
            return true;
        }
        while let Some(index) = self.next_eventful() {
            let entry = &mut self.connections[index];
            if entry.connection.has_events() {
                return true;
            }
            entry.is_eventful = false;
            self.eventful.pop_front();
            self.remove_if_over(index);
        }
        self.shedding.events_polled(&self.budget);
        false
    }

    /// Returns the slot of the first connection that may have events. The connection is updated before.
    fn next_eventful(&mut self) -> Option<usize> {
        let index = *self.eventful.front()?;
        if !self.connections[index].is_reconciled {
            self.reconcile(index);
        }
        Some(index)
    }

    /// A connection for commands. `None` after the connection was removed, which is some time after its `Closed` event.
    pub fn connection(&mut self, key: ConnectionKey) -> Option<&mut Connection> {
        let index = key.index();
        let generation = self.connections.get(index)?.generation;
        if ConnectionKey::new(index, generation) != key {
            return None;
        }
        self.touch(index);
        let entry = &mut self.connections[index];
        entry.is_commanded = true;
        Some(&mut entry.connection)
    }

    /// Returns a connection for reading. Unlike [`connection`](Self::connection), this method does not mark the
    /// connection as changed.
    pub fn peek(&self, key: ConnectionKey) -> Option<&Connection> {
        let entry = self.connections.get(key.index())?;
        let found = ConnectionKey::new(key.index(), entry.generation);
        (found == key).then_some(&entry.connection)
    }

    /// The keys of all connections, including closed ones that are not removed yet.
    pub fn keys(&self) -> impl Iterator<Item = ConnectionKey> + '_ {
        self.connections
            .iter()
            .map(|(index, entry)| ConnectionKey::new(index, entry.generation))
    }

    /// Closes every connection with an error code of the application. Pending accepts have no keys to seal the code, so
    /// they are refused.
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

    /// True if the endpoint has nothing to send and no connections, not even closed ones that still answer late
    /// packets.
    pub fn is_idle(&self) -> bool {
        self.connections.is_empty() && self.responses.is_empty() && self.pending_accepts.is_empty()
    }

    /// True if the socket can be closed: every connection has ended, the peers have answered this side's closes or had
    /// enough time for it (RFC 9000 section 10.2.1), and no accept is pending.
    pub fn may_end(&self) -> bool {
        let mut entries = self.connections.iter();
        self.responses.is_empty()
            && self.pending_accepts.is_empty()
            && !entries.any(|(_, entry)| !entry.drained && entry.connection.awaits_peer())
    }

    /// True if a new connection waits for the application's decision, or for the rest of its ClientHello.
    pub fn holds_back(&self) -> bool {
        !self.pending_accepts.is_empty()
    }

    /// The number of connections, including closed ones that are not removed yet.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    pub fn max_connections(&self) -> usize {
        self.settings.max_connections
    }

    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// The capacity of the table of connections, in entries. It shrinks after a peak.
    pub fn capacity(&self) -> usize {
        self.connections.capacity()
    }

    /// The number of incoming handshakes in progress.
    pub fn handshakes(&self) -> usize {
        self.accept_policy.handshakes()
    }

    pub fn stats(&self) -> EndpointStats {
        self.stats
    }

    /// Takes the `Closed` event of a connection that ended at its first packets, so that there is no connection object.
    /// Only an endpoint for a single connection has it.
    pub fn take_failed(&mut self) -> Option<Event> {
        self.failed.take()
    }
}

fn state_machine(
    settings: &EndpointSettings,
    server: Option<&ServerSetup>,
    next_id: NextId,
    tokens: &TokenContext,
    reset_key: Arc<dyn HmacKey>,
) -> quinn::Endpoint {
    let mut config = quinn::EndpointConfig::new(reset_key);
    let first = settings.first_connection_id.as_deref();
    let ids = EndpointConnectionIds::new(settings.connection_id_length, settings.worker, next_id);
    let ids = ids
        .with_first_id(first)
        .answering_for(settings.empty_places.clone());
    config
        .supported_versions(KNOWN_VERSIONS.to_vec())
        .cid_generator(move || Box::new(ids.clone()))
        .rng_seed(settings.rng_seed)
        // A restarted server must reset many connections, so quinn-proto's limit is off and `RESETS` limits them.
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

/// The maximum number of datagrams in a GSO batch that every kernel accepts (`UDP_MAX_SEGMENTS` is 128 since Linux 6.9,
/// and 64 before).
pub const GSO_SEGMENTS_MAX: usize = 64;
/// The rate of stateless resets. Random packets cause them as well as lost connections (RFC 9000 section 10.3.3).
const RESETS: Rate = Rate {
    per_second: 1_000.0,
    burst: 1_000,
};
/// How long a client's handshake may last if its idle time-out is disabled.
const HANDSHAKE_WITHOUT_IDLE_TIMEOUT: Duration = Duration::from_secs(30);
