//! The sessions of one connection, for both roles.
//!
//! This file has the table of sessions, and their beginning and end. Not here: data streams (`data_streams`), passing
//! events to sessions (`event_routing`), data on CONNECT streams (`connect_stream`), and the interface for hosts
//! (`session_commands`).
//!
//! A session ends before its CONNECT stream. When it ends its streams are reset and the host gets the event; the
//! CONNECT stream is then tracked as *closing* until the peer has ended it. A stream that is reset right after it was
//! opened still counts on both sides, because its header is delivered before the reset.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use rustc_hash::{FxHashMap, FxHashSet};
use uringcore_h3::{self as h3, Code, Field, LocalError, Role};
use uringcore_quic as quic;

use super::data_streams::DataStream;
use super::event::{Event, EventKind};
use super::event_routing::UnidentifiedStream;
use super::flow_control::FlowControl;
use super::pre_session_buffer::{EarlyStream, PreSessionBuffer};
use super::session::{Closing, Error, Session, SessionStats};
use super::{Draft, Limits, draft_versions, error_code, protocol_negotiation, session_capsule};
use crate::h3_driver::{H3Driver, QuicSink};

/// The sessions of one HTTP/3 connection, with their streams.
///
/// A session exists from its request on. It is *asked* until the server has answered, then *open* until either side
/// ends it. After that only its CONNECT stream is tracked, as *closing*, until both sides have ended it.
///
/// Invariants: each stream in `streams` belongs to a session in `table`, which lists it; a stream is in at most one of
/// `streams`, `unidentified` and `pre_session`.
///
/// Bounds: [`Limits`], and QUIC's limit of streams. A session without streams takes about 0.6 kB.
pub struct Sessions {
    pub(super) role: Role,
    pub(super) limits: Limits,
    pub(super) table: FxHashMap<u64, Session>,
    pub(super) streams: FxHashMap<u64, DataStream>,
    /// Streams of the peer whose header is incomplete.
    pub(super) unidentified: FxHashMap<u64, UnidentifiedStream>,
    pub(super) pre_session: PreSessionBuffer,
    pub(super) closing: FxHashMap<u64, Closing>,
    /// Sessions that wait until QUIC allows another stream, bidirectional or unidirectional.
    pub(super) waiting_to_open: [FxHashSet<u64>; 2],
    pub(super) events: VecDeque<Event>,
    /// The event that HTTP/3 has to handle after the one that `route` has just returned.
    pub(super) second_event: Option<quic::Event>,
    /// Sessions whose peer has sent STOP_SENDING on the CONNECT stream, with the time of that. The peer's last capsule
    /// may still arrive.
    pub(super) stopped_reading: Vec<(u64, Instant)>,
    /// The number of requests that the peer abandoned before they were answered, counted since the last
    /// `take_abandoned_requests`.
    abandoned_requests: u32,
    /// QUIC's limits of the peer's streams before the first session has raised them. `None` until then.
    base_limits: Option<[u64; 2]>,
}

/// The HTTP/3 and QUIC connections below the sessions, for one call.
pub(crate) struct LowerLayers<'a> {
    pub h3: &'a mut H3Driver,
    pub quic: &'a mut quic::Connection,
    pub now: Instant,
}

impl LowerLayers<'_> {
    /// The HTTP/3 connection, and the sink for its commands.
    pub fn parts(&mut self) -> (&mut h3::Connection, QuicSink<'_>) {
        self.h3.parts(self.quic, self.now)
    }

    pub fn send_headers<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        stream_id: u64,
        fields: &[(N, V)],
        fin: bool,
    ) -> Result<(), LocalError> {
        let (h3, mut out) = self.parts();
        h3.send_headers(&mut out, stream_id, fields, fin)
    }

    pub fn send_data(&mut self, stream_id: u64, data: Bytes, fin: bool) -> Result<(), LocalError> {
        let (h3, mut out) = self.parts();
        h3.send_data(&mut out, stream_id, data, fin)
    }

    pub fn cancel_request(&mut self, stream_id: u64, code: Code) {
        let (h3, mut out) = self.parts();
        h3.cancel_request(&mut out, stream_id, code.0);
    }
}

/// A session request that the server must answer.
#[derive(Debug)]
pub struct SessionRequest {
    pub protocols: Vec<String>,
    pub draft: Draft,
}

impl Sessions {
    pub fn new(role: Role, limits: Limits) -> Self {
        Self {
            role,
            limits,
            table: FxHashMap::default(),
            streams: FxHashMap::default(),
            unidentified: FxHashMap::default(),
            pre_session: PreSessionBuffer::default(),
            closing: FxHashMap::default(),
            waiting_to_open: Default::default(),
            events: VecDeque::new(),
            second_event: None,
            stopped_reading: Vec::new(),
            abandoned_requests: 0,
            base_limits: None,
        }
    }

    /// Adds the settings that HTTP/3 has to announce for sessions.
    pub fn prepare(limits: &Limits, settings: &mut h3::Settings) {
        settings.webtransport = true;
        settings.h3_datagram = true;
        settings.enable_connect_protocol = true;
        settings.extra.extend(draft_versions::offers(limits));
    }

    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// True if no session is open, and no CONNECT stream of a closed session remains.
    pub fn is_drained(&self) -> bool {
        self.table.is_empty() && self.closing.is_empty()
    }

    /// True if a time-out is running.
    pub fn is_due(&self) -> bool {
        let has_early = !self.unidentified.is_empty() || !self.pre_session.is_empty();
        has_early || !self.closing.is_empty() || !self.stopped_reading.is_empty()
    }

    /// Takes the number of requests that the peer abandoned before they were answered, since the last call.
    pub fn take_abandoned_requests(&mut self) -> u32 {
        std::mem::take(&mut self.abandoned_requests)
    }

    /// Frees unused capacity.
    pub fn free_capacity(&mut self) {
        self.table.shrink_to_fit();
        self.streams.shrink_to_fit();
        self.unidentified.shrink_to_fit();
        self.closing.shrink_to_fit();
        self.events.shrink_to_fit();
        self.waiting_to_open
            .iter_mut()
            .for_each(FxHashSet::shrink_to_fit);
    }

    pub(super) fn report(&mut self, session_id: u64, what: EventKind) {
        self.events.push_back(Event { session_id, what });
    }

    // Session requests at a server --------------------------------------------------------------

    /// Adds a session that a client has requested. The application gets the request later, after
    /// [`check_request`](Self::check_request). Returns false if the request was rejected, because the client has as
    /// many sessions as it may have.
    pub(crate) fn add_request(&mut self, below: &mut LowerLayers<'_>, session_id: u64) -> bool {
        if self.table.len() >= self.limits.sessions {
            self.reject(below, session_id, Code::H3_REQUEST_REJECTED);
            return false;
        }
        self.table.insert(session_id, Session::default());
        true
    }

    /// Checks a session request, after the client's SETTINGS have arrived, and sets the session's draft. `None` if the
    /// session was rejected.
    pub(crate) fn check_request(
        &mut self,
        below: &mut LowerLayers<'_>,
        session_id: u64,
        names_h3: bool,
        fields: &[Field],
    ) -> Option<SessionRequest> {
        let peer = below.h3.received_settings()?;
        let confirms_draft_02 = fields
            .iter()
            .any(|(name, _)| &**name == draft_versions::DRAFT_02_REQUEST);
        let spoken = Draft::common(&self.limits.drafts, peer).or_else(|| {
            // Some clients announce their draft only in the request, and not in SETTINGS.
            let said = match (names_h3, confirms_draft_02) {
                (true, _) => Some(Draft::Fifteen),
                (false, true) => Some(Draft::Two),
                (false, false) => None,
            };
            said.filter(|said| self.limits.drafts.contains(said))
        });
        let verdict = match spoken {
            None => Err(Code::H3_MESSAGE_ERROR),
            // Draft section 3.1: a session requires HTTP datagrams. draft-02 does not have this rule.
            Some(spoken) if spoken > Draft::Two && !draft_versions::takes_datagrams(peer) => {
                Err(Code::H3_MESSAGE_ERROR)
            }
            Some(spoken) => {
                let flow = self.flow(spoken, peer);
                // Draft section 5.1: without flow control only one session at a time is allowed.
                let is_one = spoken.has_flow_control() && flow.is_none();
                match is_one && self.table.values().any(|other| other.draft.is_some()) {
                    true => Err(Code::H3_REQUEST_REJECTED),
                    false => Ok((spoken, flow)),
                }
            }
        };
        let session = self.table.get_mut(&session_id)?;
        match verdict {
            Ok((spoken, flow)) => {
                session.draft = Some(spoken);
                session.flow = flow;
                session.confirms_draft_02 = confirms_draft_02;
                session.protocols = protocol_negotiation::offered(fields);
                Some(SessionRequest {
                    protocols: session.protocols.clone(),
                    draft: spoken,
                })
            }
            Err(code) => {
                self.table.remove(&session_id);
                self.reject(below, session_id, code);
                None
            }
        }
    }

    pub(super) fn flow(&self, spoken: Draft, peer: &h3::PeerSettings) -> Option<FlowControl> {
        let allowed = draft_versions::initial_credit(spoken, peer)?;
        let streams = [self.limits.streams_bidi, self.limits.streams_uni];
        Some(FlowControl::new(allowed, streams, self.limits.window))
    }

    /// Rejects a session that was not reported to the host.
    fn reject(&mut self, below: &mut LowerLayers<'_>, session_id: u64, code: Code) {
        below.cancel_request(session_id, code);
        self.reject_buffered_streams(below.quic, session_id);
    }

    /// Accepts a session: sends 200.
    pub(super) fn accept(
        &mut self,
        below: &mut LowerLayers<'_>,
        session_id: u64,
        fields: &[(&[u8], &[u8])],
        protocol: Option<&str>,
    ) -> Result<(), Error> {
        let session = self.unanswered_session(session_id)?;
        let mut lines: Vec<(&[u8], &[u8])> = vec![(b":status", b"200")];
        if session.confirms_draft_02 {
            lines.push((
                draft_versions::DRAFT_02_RESPONSE,
                draft_versions::DRAFT_02_VALUE,
            ));
        }
        let mut taken = String::new();
        if let Some(protocol) = protocol {
            // Draft section 3.3: only an offered protocol may be chosen.
            if !session.protocols.iter().any(|offered| offered == protocol) {
                let reason = format!("the client has not offered the protocol {protocol:?}");
                return Err(Error::Invalid(reason));
            }
            taken.push_str(&protocol_negotiation::written([protocol]).unwrap_or_default());
            lines.push((protocol_negotiation::TAKEN, taken.as_bytes()));
        }
        lines.extend_from_slice(fields);
        match below.send_headers(session_id, &lines, false) {
            Ok(()) => self.opened(below, session_id),
            Err(LocalError::FieldSectionTooLarge { .. }) => {
                // The client accepts only header sections that are smaller than any response's. The host can do nothing
                // about that, so it gets no error of its own.
                let reason = "the client accepts no response of that size";
                self.abort(below, session_id, Code::H3_REQUEST_REJECTED, reason);
                return Err(Error::Gone);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Refuses a session with another status. No `Ended` event follows.
    pub(super) fn refuse(
        &mut self,
        below: &mut LowerLayers<'_>,
        session_id: u64,
        status: u16,
        fields: &[(&[u8], &[u8])],
    ) -> Result<(), Error> {
        self.unanswered_session(session_id)?;
        if !(300..=999).contains(&status) {
            return Err(Error::Invalid(format!("{status} refuses nothing")));
        }
        let text = status.to_string();
        let mut lines: Vec<(&[u8], &[u8])> = vec![(b":status", text.as_bytes())];
        lines.extend_from_slice(fields);
        let mut said = below.send_headers(session_id, &lines, true);
        match said {
            Err(LocalError::InvalidField(reason)) => return Err(Error::Invalid(reason)),
            // The client may accept a response that has only the status.
            Err(_) => said = below.send_headers(session_id, &lines[..1], true),
            Ok(()) => {}
        }
        let mut closing = Closing::new(below.now);
        closing.is_ended = true;
        closing.is_acknowledged = said.is_err();
        match said {
            // RFC 9114 section 4.1: after the complete response the server stops reading the request.
            Ok(()) => {
                let (h3, mut out) = below.parts();
                h3.stop_receiving(&mut out, session_id, Code::H3_NO_ERROR.0);
            }
            Err(_) => below.cancel_request(session_id, Code::H3_REQUEST_REJECTED),
        }
        self.closing.insert(session_id, closing);
        self.table.remove(&session_id);
        self.reject_buffered_streams(below.quic, session_id);
        self.update_closing(session_id, |_| {});
        Ok(())
    }

    fn unanswered_session(&self, session_id: u64) -> Result<&Session, Error> {
        let asked = |session: &&Session| !session.is_open && session.draft.is_some();
        match self.table.get(&session_id).filter(asked) {
            Some(session) if self.role == Role::Server => Ok(session),
            _ => Err(Error::Gone),
        }
    }

    // Open ---------------------------------------------------------------------------------------

    /// Opens a session, because the server has answered with 2xx, and handles the input that waited for this.
    pub(super) fn opened(&mut self, below: &mut LowerLayers<'_>, session_id: u64) {
        let Some(session) = self.table.get_mut(&session_id) else {
            return;
        };
        session.is_open = true;
        let unread = std::mem::take(&mut session.unread);
        self.raise_stream_limits(below);
        let (streams, datagrams) = self.pre_session.take(session_id);
        for stream in streams {
            self.adopt(below, stream);
        }
        for data in datagrams {
            self.report_datagram(session_id, data);
        }
        if !unread.is_empty() {
            self.on_connect_data(below, session_id, unread.freeze(), false);
        }
    }

    /// Raises QUIC's limits of the peer's streams for the streams of sessions and, on a server, for further sessions.
    /// The configured limits are for requests only. They are raised in steps, because QUIC stores a state for each
    /// stream.
    pub(super) fn raise_stream_limits(&mut self, below: &mut LowerLayers<'_>) {
        let quic = &mut *below.quic;
        let base = *self
            .base_limits
            .get_or_insert_with(|| [false, true].map(|uni| quic.max_streams(uni)));
        let mut limits = base;
        if self.table.values().any(|session| session.is_open) {
            let sessions = match self.role {
                Role::Server => self.table.len().next_multiple_of(STREAM_LIMIT_STEP) as u64,
                Role::Client => 0,
            };
            limits[0] += self.limits.streams_bidi + sessions;
            limits[1] += self.limits.streams_uni;
        }
        for unidirectional in [false, true] {
            let count = limits[usize::from(unidirectional)];
            if quic.max_streams(unidirectional) != count {
                quic.set_max_streams(unidirectional, count);
                if !unidirectional {
                    below.h3.raise_max_requests(count);
                }
            }
        }
    }

    /// Handles the peer's request to end a session. It is reported once.
    pub(super) fn drain_requested(&mut self, session_id: u64) {
        let draft = self.draft(session_id);
        if self.is_reported(draft)
            && let Some(session) = self.table.get_mut(&session_id)
            && !std::mem::replace(&mut session.has_received_drain, true)
        {
            self.report(session_id, EventKind::Draining);
        }
    }

    /// Handles the peer's GOAWAY (draft section 4.7). It processes no request from `first_unprocessed` on.
    pub(super) fn peer_goes_away(&mut self, below: &mut LowerLayers<'_>, first_unprocessed: u64) {
        let mut ids: Vec<u64> = self.table.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let is_open = self.table.get(&id).is_some_and(|session| session.is_open);
            match self.role == Role::Client && !is_open && id >= first_unprocessed {
                true => {
                    let reason = "the server accepts no further sessions";
                    self.abort(below, id, Code::H3_REQUEST_CANCELLED, reason);
                }
                false => self.drain_requested(id),
            }
        }
    }

    // Closing -------------------------------------------------------------------------------------

    /// True if the peer has sent STOP_SENDING on the CONNECT stream. The peer then never acknowledges this side's data
    /// on it.
    pub(super) fn has_stopped_reading(&self, id: u64) -> bool {
        self.stopped_reading
            .iter()
            .any(|&(session_id, _)| session_id == id)
    }

    /// Closes a session with WT_CLOSE_SESSION.
    pub(super) fn close(&mut self, below: &mut LowerLayers<'_>, id: u64, code: u32, reason: &str) {
        match self.table.get(&id) {
            None => {}
            Some(session) if session.is_open => {
                let reason = session_capsule::shortened(reason);
                let word = session_capsule::close(code, reason);
                let is_said = below.send_data(id, word, true).is_ok();
                let mut closing = Closing::new(below.now);
                closing.is_acknowledged = !is_said || self.has_stopped_reading(id);
                self.closing.insert(id, closing);
                self.end(below, id, code, reason, true);
                self.update_closing(id, |_| {});
            }
            Some(_) => {
                self.reset(below, id, Code::H3_REQUEST_CANCELLED);
                self.end(below, id, code, session_capsule::shortened(reason), false);
            }
        }
    }

    /// Resets the CONNECT stream of a session.
    fn reset(&self, below: &mut LowerLayers<'_>, id: u64, code: Code) {
        below.cancel_request(id, code);
        if self.role == Role::Client && self.draft(id).is_none() {
            // A request that was not sent has no state in `h3`, so its stream is reset in QUIC.
            end_stream(below.quic, id, code);
        }
    }

    /// Ends a session abruptly, by a reset of its CONNECT stream.
    pub(super) fn abort(&mut self, below: &mut LowerLayers<'_>, id: u64, code: Code, reason: &str) {
        self.reset(below, id, code);
        self.end(below, id, 0, reason, false);
    }

    /// Ends a session that the peer has aborted, or whose CONNECT stream is malformed.
    pub(super) fn aborted_by_peer(&mut self, below: &mut LowerLayers<'_>, id: u64) {
        let is_answered = self.table.get(&id).is_none_or(|session| session.is_open);
        if !is_answered && self.role == Role::Server {
            self.abandoned_requests += 1;
        }
        self.abort(below, id, Code::H3_REQUEST_CANCELLED, "");
    }

    /// Ends a session and resets all its streams, as draft section 6 requires.
    pub(super) fn end(
        &mut self,
        below: &mut LowerLayers<'_>,
        session_id: u64,
        code: u32,
        reason: &str,
        is_clean: bool,
    ) {
        let Some(session) = self.table.remove(&session_id) else {
            return;
        };
        self.stopped_reading.retain(|&(id, _)| id != session_id);
        for stream_id in session.streams {
            self.streams.remove(&stream_id);
            end_stream(below.quic, stream_id, error_code::SESSION_GONE);
        }
        for openers in &mut self.waiting_to_open {
            openers.remove(&session_id);
        }
        self.reject_buffered_streams(below.quic, session_id);
        if self.is_reported(session.draft) {
            self.report(session_id, ended(session.stats, code, reason, is_clean));
        }
        self.raise_stream_limits(below);
    }

    /// True if the host has got an event about the session. On a server the request is the first such event.
    fn is_reported(&self, draft: Option<Draft>) -> bool {
        draft.is_some() || self.role == Role::Client
    }

    /// Rejects the streams that wait for a session that has ended or will not exist.
    pub(super) fn reject_buffered_streams(&mut self, quic: &mut quic::Connection, session_id: u64) {
        let (streams, _) = self.pre_session.take(session_id);
        for stream in streams {
            end_stream(quic, stream.stream_id, error_code::SESSION_GONE);
        }
    }

    /// Ends all sessions without sending anything, because the connection has ended.
    pub fn connection_lost(&mut self) {
        let reported = |(id, session): (&u64, &Session)| {
            let is_reported = self.is_reported(session.draft);
            is_reported.then_some((*id, session.stats))
        };
        let mut reported: Vec<(u64, SessionStats)> =
            self.table.iter().filter_map(reported).collect();
        reported.sort_unstable_by_key(|(id, _)| *id);
        for (session_id, stats) in reported {
            self.report(session_id, ended(stats, 0, "", false));
        }
        self.table.clear();
        self.streams.clear();
        self.unidentified.clear();
        self.closing.clear();
        self.waiting_to_open = Default::default();
        self.pre_session = PreSessionBuffer::default();
    }

    /// Changes the state of a closing CONNECT stream, and forgets the stream when both directions have ended.
    pub(super) fn update_closing(&mut self, session_id: u64, note: impl FnOnce(&mut Closing)) {
        let Some(closing) = self.closing.get_mut(&session_id) else {
            return;
        };
        note(closing);
        let is_over = closing.is_over();
        if closing.is_acknowledged && !std::mem::replace(&mut closing.is_reported, true) {
            self.report(session_id, EventKind::Released);
        }
        if is_over {
            self.closing.remove(&session_id);
        }
    }

    /// Removes a closing CONNECT stream from the table.
    pub(super) fn drop_closing(&mut self, session_id: u64) {
        self.update_closing(session_id, |closing| {
            closing.is_acknowledged = true;
            closing.is_ended = true;
        });
    }

    // Time ---------------------------------------------------------------------------------------

    /// Abandons sessions and streams whose time-out has expired.
    pub(crate) fn tick(&mut self, below: &mut LowerLayers<'_>) {
        let (now, patience) = (below.now, self.limits.patience);
        let is_overdue = |since: Instant| now.saturating_duration_since(since) > patience;
        let table = &self.table;
        let is_unasked = |id: u64| !table.contains_key(&id);
        let late = self
            .pre_session
            .take_streams(|stream| is_overdue(stream.since) && is_unasked(stream.session_id));
        for stream in late {
            end_stream(
                below.quic,
                stream.stream_id,
                error_code::BUFFERED_STREAM_REJECTED,
            );
        }
        if self.pre_session.streams() == 0 {
            self.pre_session.drop_datagrams(is_unasked);
        }
        let slow = |(id, unidentified): (&u64, &UnidentifiedStream)| {
            is_overdue(unidentified.since).then_some(*id)
        };
        let slow: Vec<u64> = self.unidentified.iter().filter_map(slow).collect();
        for stream_id in slow {
            self.unidentified.remove(&stream_id);
            end_stream(below.quic, stream_id, Code::H3_REQUEST_REJECTED);
        }
        let left = |(id, closing): (&u64, &Closing)| is_overdue(closing.since).then_some(*id);
        let left: Vec<u64> = self.closing.iter().filter_map(left).collect();
        for session_id in left {
            // Draft section 6: the peer has not ended its direction of the stream in time.
            below.cancel_request(session_id, error_code::SESSION_GONE);
            self.drop_closing(session_id);
        }
        let given_up = self
            .stopped_reading
            .extract_if(.., |&mut (_, since)| is_overdue(since));
        for (session_id, _) in given_up.collect::<Vec<_>>() {
            below.cancel_request(session_id, error_code::SESSION_GONE);
            self.aborted_by_peer(below, session_id);
        }
    }

    // Input before its session ---------------------------------------------------------------------

    /// Buffers a stream until its session is open. If the buffer is full, the stream is rejected.
    pub(super) fn buffer_stream(&mut self, below: &mut LowerLayers<'_>, stream: EarlyStream) {
        if let Err(stream) = self
            .pre_session
            .add_stream(stream, self.limits.early_streams)
        {
            end_stream(
                below.quic,
                stream.stream_id,
                error_code::BUFFERED_STREAM_REJECTED,
            );
        }
    }

    pub(super) fn buffer_datagram(&mut self, session_id: u64, data: Bytes) {
        let max = self.limits.early_datagram_bytes;
        if !self.pre_session.add_datagram(session_id, data, max)
            && let Some(session) = self.table.get_mut(&session_id)
        {
            session.stats.datagrams_dropped += 1;
        }
    }
}

fn ended(stats: SessionStats, code: u32, reason: &str, is_clean: bool) -> EventKind {
    EventKind::Ended {
        code,
        reason: reason.to_owned(),
        is_clean,
        stats,
    }
}

/// Ends the directions that a stream has: resets this side's, and stops the peer's.
pub(super) fn end_stream(quic: &mut quic::Connection, stream_id: u64, code: Code) {
    // An error means that the direction does not exist or has ended.
    let _ = quic.reset_stream(stream_id, code.0);
    let _ = quic.stop_stream(stream_id, code.0);
}

/// The number by which QUIC's limit of bidirectional streams is raised at a time for further sessions.
const STREAM_LIMIT_STEP: usize = 32;
