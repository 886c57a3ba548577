//! One QUIC connection: commands in, [`Event`]s out.
//!
//! Methods are of three kinds: getters; commands, which are plain verbs; and what the endpoint
//! drives, which the host does not see. Commands take effect at the endpoint's next
//! `poll_transmit`. Not here: routing, timers and the table of connections (`endpoint`), and what
//! becomes of single streams (`streams`).

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Instant,
};

use bytes::Bytes;
use quinn_proto::{self as quinn, Dir, StreamEvent, VarInt};

use super::{
    CloseKind, DatagramError, EcnCounters, Event, Priority, StreamError, TransportSettings,
    congestion,
    datagrams::DatagramQueue,
    lost::{closed_event, internal},
    parameters::PeerParameters,
    path::{Local, Path},
    stream::Read,
    streams::{Heard, Streams},
    tokens::ConnectionTokens,
    watch::{Watch, close_filler},
};
use crate::{
    qlog::{ConnectionIds, Direction, Recorder},
    tls::{SessionDetails, TicketInbox, Versions},
};

mod key_use;
mod known;
mod migration;
mod versions;

use key_use::KeyUse;

/// A connection of an [`Endpoint`](super::Endpoint), which hands it out by its key.
pub struct Connection {
    /// The host's own tag. Nothing here looks at it.
    pub user: u64,
    quinn: quinn::Connection,
    phase: Phase,
    streams: Streams,
    datagrams: DatagramQueue,
    /// More waits than [`Self::is_full`] allows; `ConnectionWritable` will follow.
    was_full: bool,
    watch: Watch,
    ids: ConnectionIds,
    packet_log: Option<Arc<Recorder>>,
    /// Pings asked for before there was anything to ping with.
    early_pings: Vec<u64>,
    tickets: Arc<TicketInbox>,
    /// A client's tokens.
    tokens: Option<Arc<ConnectionTokens>>,
    events: VecDeque<Pending>,
    path: Path,
    peer_parameters: PeerParameters,
    /// Where the server would have this client go, once the handshake is confirmed.
    preferred: Option<SocketAddr>,
    use_preferred: bool,
    ecn: EcnCounters,
    cipher_suite: Option<u16>,
    key_use: KeyUse,
    alpn: Option<Vec<u8>>,
    server_name: Option<String>,
    /// We closed it, and repeat that when the peer goes on talking (RFC 9000 section 10.2.1).
    repeats_close: bool,
    versions: Arc<Versions>,
    /// Datagrams that were handed to the state machine in more than one piece.
    later_pieces: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Handshake,
    Established,
    /// `Closed` is among the events, or was.
    Closed,
}

/// An event, or what becomes one when the host polls.
enum Pending {
    Ready(Event),
    /// Read as late as possible, so that one event carries as much as possible.
    Readable(u64),
    Datagrams,
}

/// Getters.
impl Connection {
    /// The ID that the next stream of ours would have. Does not open it: sending does.
    pub fn next_stream_id(&self, unidirectional: bool) -> u64 {
        self.streams
            .next_id(if unidirectional { Dir::Uni } else { Dir::Bi })
    }

    /// Bytes of the stream that wait for the peer's limits or the send window. What the state
    /// machine has taken and the peer has not yet acknowledged is not counted.
    pub fn send_queue_bytes(&self, stream_id: u64) -> usize {
        self.streams.queued_bytes_of(stream_id)
    }

    /// Whether more than the high watermark waits on all streams together, or more than half of
    /// what may wait as datagrams. `ConnectionWritable` follows.
    pub fn is_full(&self) -> bool {
        self.was_full
    }

    /// The largest datagram that can be sent now; `None` before the handshake is complete, and when
    /// one of the sides has datagrams switched off.
    pub fn max_datagram_size(&mut self) -> Option<usize> {
        match self.phase {
            Phase::Established if self.datagrams.is_enabled() => self.quinn.datagrams().max_size(),
            _ => None,
        }
    }

    /// The largest datagram that the peer takes, whether or not this side takes any; `None` when it
    /// takes none, and while its transport parameters are unknown.
    pub fn peer_max_datagram_size(&mut self) -> Option<usize> {
        self.quinn.datagrams().max_size()
    }

    /// Whether the handshake is complete and the connection not closed.
    pub fn is_established(&self) -> bool {
        self.phase == Phase::Established
    }

    /// Whether the connection was closed, by whomever. The event that says so may still be queued.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    pub fn is_client(&self) -> bool {
        self.quinn.side().is_client()
    }

    /// The peer's address, which changes when the peer migrates (RFC 9000 section 9).
    pub fn remote_addr(&self) -> SocketAddr {
        self.path.remote(self.quinn.remote_address())
    }

    /// The local address that a server's connection arrived at, if the host said it.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.quinn.local_ip()
    }

    /// The application protocol, once negotiated.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.alpn.as_deref()
    }

    /// The name connected to, or on a server the name that the client asked for.
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }
}

/// Commands.
impl Connection {
    /// Queues `data` on a stream, and a FIN behind it if `fin`. The first use of an ID of ours
    /// opens the stream, as soon as the peer's limit allows; until then, and while the peer's
    /// window or the send window are full, data waits here without bound: see
    /// [`set_watermarks`](Self::set_watermarks).
    pub fn send_stream(
        &mut self,
        stream_id: u64,
        data: Bytes,
        fin: bool,
    ) -> Result<(), StreamError> {
        self.check_open()?;
        self.streams.send(stream_id, data, fin)?;
        self.was_full |= self.streams.is_above_high_water();
        Ok(())
    }

    /// Abandons our side of a stream (RFC 9000 section 3.1). What is still queued is dropped.
    pub fn reset_stream(&mut self, stream_id: u64, error_code: u64) -> Result<(), StreamError> {
        self.check_open()?;
        self.streams.reset(&mut self.quinn, stream_id, error_code)?;
        self.tell_abandoned();
        Ok(())
    }

    /// Asks the peer to send no more (RFC 9000 section 3.5). Nothing more is read.
    pub fn stop_stream(&mut self, stream_id: u64, error_code: u64) -> Result<(), StreamError> {
        self.check_open()?;
        self.streams.stop(&mut self.quinn, stream_id, error_code)
    }

    /// Stops reading a stream. The peer gets no more credit for it, so at most one window of data
    /// collects here. When the peer closes the connection all pauses end, and what had arrived is
    /// delivered before `Closed`.
    pub fn pause_stream(&mut self, stream_id: u64) {
        if self.phase != Phase::Closed {
            self.streams.pause(stream_id);
        }
    }

    pub fn resume_stream(&mut self, stream_id: u64) {
        if self.phase != Phase::Closed && self.streams.resume(stream_id) {
            self.events.push_back(Pending::Readable(stream_id));
        }
    }

    /// A stream whose queue grew above `high` bytes yields `StreamWritable` when it is at `low` or
    /// below, or `StreamAbandoned` when it is reset before that. The same marks hold for all
    /// streams together and `ConnectionWritable`.
    pub fn set_watermarks(&mut self, high: usize, low: usize) {
        self.streams.set_watermarks(high, low);
    }

    /// Serves a stream before those that are less urgent (RFC 9218). What is handed to the state
    /// machine already, about two congestion windows at most, keeps its place.
    pub fn set_priority(&mut self, stream_id: u64, priority: Priority) -> Result<(), StreamError> {
        self.check_open()?;
        self.streams
            .set_priority(&mut self.quinn, stream_id, priority)
    }

    /// Queues an unreliable datagram (RFC 9221). When the queue is full the oldest ones make room:
    /// of data that may be lost the newest is worth most. `stats` counts them.
    pub fn send_datagram(&mut self, data: Bytes) -> Result<(), DatagramError> {
        if self.phase == Phase::Closed {
            return Err(DatagramError::Closed);
        }
        let size_max = self.max_datagram_size();
        self.datagrams
            .push(data, self.phase == Phase::Established, size_max)?;
        self.was_full |= self.datagrams.is_half_full();
        Ok(())
    }

    /// Sends a PING and reports its acknowledgement with `uid`. Before the handshake is complete it
    /// waits for that.
    pub fn ping(&mut self, uid: u64) {
        match self.phase {
            Phase::Handshake => self.early_pings.push(uid),
            Phase::Established => {
                self.watch.expect_ping(uid);
                self.quinn.ping();
            }
            Phase::Closed => {}
        }
    }

    /// Changes the packet keys (RFC 9001 section 6). Ignored while a change is under way.
    pub fn request_key_update(&mut self) {
        self.quinn.force_key_update();
    }

    /// Goes over to another of the peer's connection IDs (RFC 9000 section 5.1). The state machine
    /// offers that to clients only; on a server nothing happens.
    pub fn change_connection_id(&mut self) {
        if self.is_client() && self.is_established() {
            self.quinn.local_address_changed();
        }
    }

    /// Closes the connection at once: nothing that is queued or unacknowledged is sent any more.
    /// `frame_type` makes it a close of the transport about a frame of that type (RFC 9000 section
    /// 19.19), none makes it the application's. Numbers of 2^62 or more become the largest one
    /// below; of the reason, 512 bytes are sent. A second close does nothing.
    ///
    /// Before the handshake is complete the peer sees APPLICATION_ERROR instead of the code (RFC
    /// 9000 section 10.2.3).
    pub fn close(&mut self, now: Instant, error_code: u64, frame_type: Option<u64>, reason: &[u8]) {
        self.pump();
        if self.phase == Phase::Closed {
            return;
        }
        let code = VarInt::from_u64(error_code).unwrap_or(VarInt::MAX);
        let frame_type = frame_type.map(|kind| kind.min(VarInt::MAX.into_inner()));
        let reason = truncated(reason);
        let mut wire_reason = Vec::new();
        if let Some(frame_type) = frame_type {
            self.watch.close_as_transport(frame_type);
            wire_reason.resize(close_filler(frame_type), 0);
        }
        wire_reason.extend_from_slice(reason);
        self.quinn.close(now, code, wire_reason.into());
        self.begin_to_repeat_close();
        // The host is done with the data: what it has not read by now it does not want.
        self.events
            .retain(|event| matches!(event, Pending::Ready(_)));
        self.closed(Event::Closed {
            error_code: code.into_inner(),
            frame_type,
            reason: String::from_utf8_lossy(reason).into_owned(),
            kind: CloseKind::Local,
        });
    }

    fn check_open(&self) -> Result<(), StreamError> {
        match self.phase {
            Phase::Closed => Err(StreamError::Closed),
            Phase::Handshake | Phase::Established => Ok(()),
        }
    }
}

/// What the endpoint drives.
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
        if side.is_server() {
            events.push_back(Pending::Ready(Event::Accepted));
        }
        let mut streams = Streams::new(side, settings.send_window);
        if side.is_client() && quinn.has_0rtt() {
            streams.begin_early();
        }
        Self {
            user: 0,
            phase: Phase::Handshake,
            streams,
            tickets: details.tickets,
            tokens,
            datagrams: DatagramQueue::new(
                settings.datagram_recv_bytes.is_some(),
                settings.datagram_send_bytes,
            ),
            ids: details.tap.ids(),
            packet_log: details.tap.recorder().cloned(),
            watch: Watch::new(details.tap.clone()),
            was_full: false,
            early_pings: Vec::new(),
            events,
            path: Path::new(local, has_preferred),
            peer_parameters: PeerParameters::default(),
            preferred: None,
            use_preferred: settings.use_preferred_address,
            ecn: EcnCounters::default(),
            cipher_suite: None,
            key_use: KeyUse::new(details.tap, settings.key_update_packets),
            alpn: None,
            server_name,
            repeats_close: false,
            versions: details.versions,
            later_pieces: 0,
            quinn,
        }
    }

    pub(super) fn quinn(&mut self) -> &mut quinn::Connection {
        &mut self.quinn
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.phase == Phase::Handshake
    }

    /// Whether the peer may not have heard that it is over: it was we who closed, and no close of the
    /// peer's has answered.
    pub(super) fn has_more_to_say(&self) -> bool {
        match self.phase {
            Phase::Handshake | Phase::Established => true,
            Phase::Closed => self.repeats_close && !self.watch.peer_has_closed(),
        }
    }

    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Takes over what the state machine has to say. Often: its own queue has no bound.
    pub(super) fn pump(&mut self) {
        self.log_metrics();
        while let Some(event) = self.quinn.poll() {
            // Of a closed connection only its end remains to be told, and that has been.
            if self.phase != Phase::Closed {
                self.take_over(event);
            }
        }
        self.take_over_credentials();
        if let Some(news) = self.watch.poll_pings() {
            if news.send_again {
                self.quinn.ping();
            }
            let answered = news
                .answered
                .into_iter()
                .map(|uid| Event::PingAcknowledged { uid })
                .chain(news.ids);
            if self.phase != Phase::Closed {
                self.events.extend(answered.map(Pending::Ready));
            }
        }
    }

    /// The next event for the host.
    pub(super) fn poll_event(&mut self) -> Option<Event> {
        loop {
            match self.events.pop_front()? {
                Pending::Ready(event) => return Some(event),
                Pending::Readable(stream_id) => {
                    match self.streams.read(&mut self.quinn, stream_id) {
                        Read::Nothing => {}
                        Read::Data { data, fin } => {
                            return Some(Event::StreamData {
                                stream_id,
                                data,
                                fin,
                            });
                        }
                        Read::Reset { error_code } => {
                            return Some(Event::StreamReset {
                                stream_id,
                                error_code,
                            });
                        }
                    }
                }
                Pending::Datagrams => {
                    if let Some(data) = self.quinn.datagrams().recv() {
                        self.events.push_front(Pending::Datagrams);
                        return Some(Event::Datagram { data });
                    }
                }
            }
        }
    }

    /// Gets everything that may be sent into the state machine. A batch has up to `batch_size`
    /// bytes.
    pub(super) fn prepare_transmit(&mut self, batch_size: usize) {
        self.pump();
        // A client may send on streams as soon as it has 0-RTT keys; a server that reads such data
        // may answer it (RFC 9001 section 4.6.1).
        let is_early = self.phase == Phase::Handshake && self.quinn.has_0rtt();
        if self.phase == Phase::Established || is_early {
            self.hand_over(batch_size);
        }
        let is_low = self.streams.is_below_low_water() && self.datagrams.is_nearly_empty();
        if self.was_full && is_low && self.phase != Phase::Closed {
            self.was_full = false;
            let queued_bytes = self.streams.queued_bytes();
            self.push(Event::ConnectionWritable { queued_bytes });
        }
    }

    fn hand_over(&mut self, batch_size: usize) {
        let served_before = self.streams.served();
        for stream_id in self.streams.flush(&mut self.quinn) {
            self.events
                .push_back(Pending::Ready(Event::StreamWritable { stream_id }));
        }
        if self.streams.served() != served_before {
            self.datagrams.streams_advance();
        }
        if self.phase == Phase::Established {
            self.datagrams.feed(&mut self.quinn, batch_size);
        }
    }

    /// The next batch, of up to `segments` datagrams.
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        segments: usize,
        buf: &mut Vec<u8>,
    ) -> Option<quinn::Transmit> {
        if let Some(log) = &self.packet_log {
            log.set_time(now);
        }
        if let Some(transmit) = self.quinn.poll_transmit(now, segments, buf) {
            self.ecn.sent(&transmit);
            if self.is_confirmed() {
                self.key_use.sent(&mut self.quinn);
            }
            if let Some(log) = &self.packet_log {
                let size = transmit.segment_size.unwrap_or(transmit.size);
                log.datagrams(Direction::Sent, transmit.size, size);
            }
            return Some(transmit);
        }
        buf.clear();
        if self.phase != Phase::Established || !self.datagrams.probe(&mut self.quinn) {
            return None;
        }
        let transmit = self.quinn.poll_transmit(now, segments, buf);
        self.datagrams.probed(&self.quinn, transmit.is_some());
        if transmit.is_none() {
            buf.clear();
        }
        transmit
    }

    /// Ends the connection without a word to the peer, who is not there or never was.
    pub(super) fn abandon(&mut self, reason: String, kind: CloseKind) {
        self.pump();
        if self.phase != Phase::Closed {
            self.closed(internal(reason, kind));
        }
    }

    /// What a client can use in its next connections.
    fn take_over_credentials(&mut self) {
        let tickets = self.tickets.take().into_iter();
        let tickets = tickets.map(|ticket| Event::SessionTicket(Box::new(ticket)));
        let tokens = self.tokens.as_ref().map(|tokens| tokens.take_new());
        let tokens = tokens.into_iter().flatten();
        let events = tickets.chain(tokens.map(|token| Event::NewToken { token }));
        if self.phase != Phase::Closed {
            self.events.extend(events.map(Pending::Ready));
        }
    }

    fn take_over(&mut self, event: quinn::Event) {
        match event {
            quinn::Event::HandshakeDataReady => {
                let details = session_details(&self.quinn);
                self.alpn = details.alpn;
                if details.server_name.is_some() {
                    self.server_name = details.server_name;
                }
                self.push(Event::ProtocolNegotiated {
                    alpn: self.alpn.clone(),
                });
            }
            quinn::Event::Connected => self.established(),
            quinn::Event::Stream(event) => self.take_over_stream(event),
            quinn::Event::DatagramReceived => self.events.push_back(Pending::Datagrams),
            // They are fed in before every transmission.
            quinn::Event::DatagramsUnblocked => {}
            quinn::Event::ConnectionLost { reason } => {
                if matches!(reason, quinn::ConnectionError::TransportError(_)) {
                    self.begin_to_repeat_close();
                }
                let held_back = self.streams.end_pauses();
                self.events
                    .extend(held_back.into_iter().map(Pending::Readable));
                self.closed(closed_event(reason));
            }
        }
    }

    fn take_over_stream(&mut self, event: StreamEvent) {
        match event {
            StreamEvent::Opened { dir } => {
                while let Some(id) = self.quinn.streams().accept(dir) {
                    self.streams.accepted(id.into());
                    self.readable(id.into());
                }
            }
            StreamEvent::Readable { id } => self.readable(id.into()),
            StreamEvent::Writable { id } => self.streams.writable(id.into()),
            StreamEvent::Finished { id } => {
                if self.streams.finished(id.into()) {
                    self.push(Event::StreamFinished {
                        stream_id: id.into(),
                    });
                }
            }
            StreamEvent::Stopped { id, error_code } => {
                if self.streams.stopped(&mut self.quinn, id.into(), error_code) {
                    let error_code = error_code.into_inner();
                    self.push(Event::StopSending {
                        stream_id: id.into(),
                        error_code,
                    });
                }
                self.tell_abandoned();
            }
            // Waiting streams are opened before every transmission.
            StreamEvent::Available { .. } => {}
        }
    }

    fn tell_abandoned(&mut self) {
        for stream_id in self.streams.take_abandoned() {
            self.push(Event::StreamAbandoned { stream_id });
        }
    }

    fn readable(&mut self, stream_id: u64) {
        let is_early = self.phase == Phase::Handshake;
        match self.streams.readable(&mut self.quinn, stream_id, is_early) {
            Heard::Nothing => {}
            Heard::Readable => self.events.push_back(Pending::Readable(stream_id)),
            Heard::Reset { error_code } => self.push(Event::StreamReset {
                stream_id,
                error_code,
            }),
        }
    }

    fn established(&mut self) {
        self.phase = Phase::Established;
        let details = session_details(&self.quinn);
        let resumed = details.resumed;
        self.cipher_suite = details.cipher_suite;
        let peers = PeerParameters::read(&details.peer_parameters.unwrap_or_default());
        if self.use_preferred && self.is_client() {
            self.preferred = peers.preferred_like(self.quinn.remote_address());
        }
        self.peer_parameters = peers;
        if let Some(tokens) = &self.tokens {
            tokens.set_version(self.versions.current());
        }
        // A server has the keys only if it accepts the data.
        let early_data_accepted = match self.is_client() {
            true => self.quinn.accepted_0rtt(),
            false => self.quinn.has_0rtt(),
        };
        if self.is_client() && self.quinn.has_0rtt() {
            match early_data_accepted {
                true => self.streams.early_accepted(),
                false => self.streams.early_rejected(),
            }
        }
        self.push(Event::HandshakeCompleted {
            alpn: self.alpn.clone(),
            early_data_accepted,
            session_resumed: resumed,
        });
        for uid in std::mem::take(&mut self.early_pings) {
            self.ping(uid);
        }
    }

    fn begin_to_repeat_close(&mut self) {
        self.repeats_close = true;
        self.watch.expect_close();
    }

    fn closed(&mut self, event: Event) {
        self.phase = Phase::Closed;
        congestion::open_window(self.quinn.congestion_state());
        self.datagrams.clear();
        self.push(event);
    }

    fn push(&mut self, event: Event) {
        self.events.push_back(Pending::Ready(event));
    }
}

fn session_details(quinn: &quinn::Connection) -> SessionDetails {
    let details = quinn.crypto_session().handshake_data();
    let details = details.and_then(|details| details.downcast().ok());
    *details.expect("the sessions are ours, and always have details")
}

/// A close must fit into one packet next to an ACK. Cut between characters.
fn truncated(reason: &[u8]) -> &[u8] {
    let Some(rest) = reason.get(REASON_MAX..) else {
        return reason;
    };
    let is_inside_character = |byte: &u8| byte & 0xc0 == 0x80;
    let cut = match rest.first().is_some_and(is_inside_character) {
        true => reason[..REASON_MAX]
            .iter()
            .rposition(|b| !is_inside_character(b))
            .unwrap_or(0),
        false => REASON_MAX,
    };
    &reason[..cut]
}

const REASON_MAX: usize = 512;
