//! The data streams of sessions: opening, reading, writing and ending them, and the credit of their session.
//!
//! The data stays in QUIC: it is read there when the host asks for it, and written into QUIC's queues. This file has
//! the state of a stream that its session needs. Not here: finding the session of a peer's stream (`event_routing`).

use std::collections::VecDeque;

use bytes::Bytes;
use uringcore_h3::Role;
use uringcore_h3::stream_id::{is_server_initiated, is_unidirectional};
use uringcore_quic::{self as quic, Received, StreamEnd, StreamError};

use super::event::EventKind;
use super::pre_session_buffer::EarlyStream;
use super::session::Error;
use super::sessions::{LowerLayers, Sessions, end_stream};
use super::{error_code, session_capsule, stream_header};

/// One stream of a session. It is removed when both directions have ended and the host has released it.
#[derive(Debug)]
pub(super) struct DataStream {
    pub session_id: u64,
    pub sending: Sending,
    /// True if the host has not read the end of the peer's direction, and neither side has abandoned that direction.
    pub is_receiving: bool,
    /// True if both directions of the stream have ended and the session's counters include that.
    is_over: bool,
    /// True if the host has released the stream.
    is_forgotten: bool,
    /// Data that waits for the session's credit.
    waiting: Option<Box<Waiting>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    Open,
    /// The FIN of the stream is in QUIC's queue, and the peer has not acknowledged it.
    Finished,
    Over,
}

/// Bytes that exceed the session's credit. They belong to a message that was accepted when the stream had room, as on
/// any stream.
#[derive(Debug, Default)]
struct Waiting {
    pieces: VecDeque<Bytes>,
    fin: bool,
}

impl DataStream {
    fn new(session_id: u64, stream_id: u64, is_own: bool) -> Self {
        let is_uni = is_unidirectional(stream_id);
        Self {
            session_id,
            sending: match is_uni && !is_own {
                true => Sending::Over,
                false => Sending::Open,
            },
            is_receiving: !(is_uni && is_own),
            is_over: false,
            is_forgotten: false,
            waiting: None,
        }
    }
}

impl Sessions {
    pub(super) fn is_own(&self, stream_id: u64) -> bool {
        is_server_initiated(stream_id) == (self.role == Role::Server)
    }

    /// Adds a stream that the peer opened to its session.
    pub(super) fn adopt(&mut self, below: &mut LowerLayers<'_>, stream: EarlyStream) {
        let EarlyStream {
            stream_id,
            session_id,
            rest,
            stopped,
            ..
        } = stream;
        let unidirectional = is_unidirectional(stream_id);
        let Some(session) = self.table.get_mut(&session_id) else {
            // An earlier stream has ended the session.
            end_stream(below.quic, stream_id, error_code::SESSION_GONE);
            return;
        };
        session.streams.insert(stream_id);
        session.stats.streams_accepted[usize::from(unidirectional)] += 1;
        session.stats.streams_open += 1;
        let counted = match &mut session.flow {
            Some(flow) => flow.peer_opened(unidirectional),
            None => Ok(()),
        };
        let data_stream = DataStream::new(session_id, stream_id, false);
        self.streams.insert(stream_id, data_stream);
        if counted.is_err() {
            let reason = "more streams than the session may have";
            self.abort(below, session_id, error_code::FLOW_CONTROL_ERROR, reason);
            return;
        }
        let opened = EventKind::Opened {
            stream_id,
            unidirectional,
        };
        self.report(session_id, opened);
        let fin = rest.end == Some(StreamEnd::Finished);
        let goes_on = rest.end.is_none();
        if !rest.data.is_empty() || fin {
            let data = rest.data;
            let pushed = quic::Event::StreamData {
                stream_id,
                data,
                fin,
            };
            self.stream_event(below, stream_id, pushed);
        }
        if let Some(StreamEnd::Reset { error_code }) = rest.end {
            let reset = quic::Event::StreamReset {
                stream_id,
                error_code,
            };
            self.stream_event(below, stream_id, reset);
        }
        if goes_on {
            let readable = quic::Event::StreamReadable { stream_id };
            self.stream_event(below, stream_id, readable);
        }
        if let Some(error_code) = stopped {
            let stopped = quic::Event::StopSending {
                stream_id,
                error_code,
                unsent: 0,
            };
            self.stream_event(below, stream_id, stopped);
        }
    }

    /// Handles a QUIC event of a stream in the table.
    pub(super) fn stream_event(
        &mut self,
        below: &mut LowerLayers<'_>,
        stream_id: u64,
        mut event: quic::Event,
    ) {
        use quic::Event as Quic;
        let Some(stream) = self.streams.get_mut(&stream_id) else {
            return;
        };
        let session_id = stream.session_id;
        let (mut received, mut not_sent) = (0, 0);
        match &mut event {
            Quic::StreamData { data, fin, .. } => {
                received = data.len();
                stream.is_receiving &= !*fin;
            }
            Quic::StreamReset { error_code, .. } => {
                *error_code = error_code::from_wire(*error_code);
                self.abandon_unread(stream_id);
            }
            Quic::StopSending {
                error_code, unsent, ..
            } => {
                *error_code = error_code::from_wire(*error_code);
                stream.sending = Sending::Over;
                stream.waiting = None;
                not_sent = *unsent;
            }
            Quic::StreamFinished { .. } => stream.sending = Sending::Over,
            // The stream has no room while data of it waits for the session's credit.
            Quic::StreamWritable { .. } if stream.waiting.is_some() => return,
            _ => {}
        }
        let stream = self.streams.get(&stream_id);
        // After the host has released a finished stream, the stream may still wait for the event of its end.
        let is_end = matches!(
            event,
            Quic::StreamFinished { .. } | Quic::StopSending { .. }
        );
        if stream.is_some_and(|stream| !stream.is_forgotten || is_end) {
            self.report(session_id, EventKind::Quic(event));
        }
        self.read(below, session_id, received);
        self.not_sent(below, session_id, not_sent);
        self.settle_stream(below, stream_id);
    }

    // Commands -----------------------------------------------------------------------------------

    /// Opens a stream in a session. `None` while QUIC or the session's credit allows no more; an event follows when it
    /// does.
    pub(super) fn open_stream(
        &mut self,
        below: &mut LowerLayers<'_>,
        session_id: u64,
        unidirectional: bool,
    ) -> Result<Option<u64>, Error> {
        let at = usize::from(unidirectional);
        let session = self.table.get_mut(&session_id);
        let Some(session) = session.filter(|session| session.is_open) else {
            return Err(Error::Gone);
        };
        if let Some(flow) = &mut session.flow
            && !flow.may_open(unidirectional)
        {
            session.wants_stream[at] = true;
            self.send_due_credit(below, session_id);
            return Ok(None);
        }
        let Some(stream_id) = below.quic.open_stream(unidirectional) else {
            if below.quic.is_closed() {
                return Err(Error::Gone);
            }
            self.waiting_to_open[at].insert(session_id);
            return Ok(None);
        };
        if let Some(flow) = &mut session.flow {
            flow.opened(unidirectional);
        }
        session.stats.streams_opened[at] += 1;
        session.stats.streams_open += 1;
        session.streams.insert(stream_id);
        let stream = DataStream::new(session_id, stream_id, true);
        self.streams.insert(stream_id, stream);
        // Draft section 4.4: the header is delivered even if the stream is reset.
        let header = stream_header::written(stream_id, session_id);
        below.quic.send_head(stream_id, header);
        Ok(Some(stream_id))
    }

    /// QUIC allows this side to open more streams. Reports that to the sessions that wait for it.
    pub(super) fn streams_available(&mut self, unidirectional: bool) {
        let at = usize::from(unidirectional);
        let mut waiting: Vec<u64> = self.waiting_to_open[at].drain().collect();
        waiting.sort_unstable();
        for session_id in waiting {
            let available = quic::Event::StreamsAvailable { unidirectional };
            self.report(session_id, EventKind::Quic(available));
        }
    }

    /// Queues data on a stream. With `fin` the stream ends after the data.
    pub(super) fn send_stream(
        &mut self,
        below: &mut LowerLayers<'_>,
        stream_id: u64,
        mut data: Bytes,
        fin: bool,
    ) -> Result<(), StreamError> {
        let Some(stream) = self.streams.get_mut(&stream_id) else {
            return Err(StreamError::Over);
        };
        let Some(session) = self.table.get_mut(&stream.session_id) else {
            return Err(StreamError::Over);
        };
        if stream.waiting.as_ref().is_some_and(|waiting| waiting.fin) {
            return Err(StreamError::Finished);
        }
        let length = data.len();
        let mut rest = Bytes::new();
        if let Some(flow) = &mut session.flow {
            let room = match &stream.waiting {
                Some(_) => 0,
                None => flow.room(),
            };
            rest = data.split_off(length.min(room));
        }
        let is_whole = rest.is_empty() && stream.waiting.is_none();
        let sent = data.len();
        below.quic.send_stream(stream_id, data, fin && is_whole)?;
        session.stats.bytes_sent += length as u64;
        if let Some(flow) = &mut session.flow {
            flow.sent(sent);
        }
        if is_whole {
            stream.sending = match fin {
                true => Sending::Finished,
                false => stream.sending,
            };
            return Ok(());
        }
        if stream.waiting.is_none() {
            session.waiting_streams.push_back(stream_id);
        }
        let waiting = stream.waiting.get_or_insert_default();
        waiting.pieces.extend((!rest.is_empty()).then_some(rest));
        waiting.fin = fin;
        if let Some(flow) = &mut session.flow {
            flow.note_blocked();
        }
        let session_id = stream.session_id;
        self.send_due_credit(below, session_id);
        Ok(())
    }

    /// Sends waiting data of the session's streams, one stream after the other, because the session has more credit.
    pub(super) fn credit_granted(&mut self, below: &mut LowerLayers<'_>, session_id: u64) {
        let Some(session) = self.table.get_mut(&session_id) else {
            return;
        };
        let Some(flow) = &mut session.flow else {
            return;
        };
        let mut writable = Vec::new();
        while let Some(&stream_id) = session.waiting_streams.front() {
            // A stream that was abandoned meanwhile has no waiting data.
            if let Some(stream) = self.streams.get_mut(&stream_id)
                && let Some(waiting) = &mut stream.waiting
            {
                while flow.room() > 0
                    && let Some(piece) = waiting.pieces.front_mut()
                {
                    let now = piece.split_to(piece.len().min(flow.room()));
                    flow.sent(now.len());
                    // An error means that the stream has ended; an event follows.
                    let _ = below.quic.send_stream(stream_id, now, false);
                    if piece.is_empty() {
                        waiting.pieces.pop_front();
                    }
                }
                if !waiting.pieces.is_empty() {
                    flow.note_blocked();
                    break;
                }
                if waiting.fin {
                    stream.sending = Sending::Finished;
                    let _ = below.quic.send_stream(stream_id, Bytes::new(), true);
                }
                stream.waiting = None;
                writable.extend((!stream.is_forgotten).then_some(stream_id));
            }
            session.waiting_streams.pop_front();
        }
        for stream_id in writable {
            if !below.quic.is_stream_full(stream_id) {
                let event = quic::Event::StreamWritable { stream_id };
                self.report(session_id, EventKind::Quic(event));
            }
        }
        self.send_due_credit(below, session_id);
    }

    pub(super) fn is_stream_full(&self, quic: &quic::Connection, stream_id: u64) -> bool {
        let stream = self.streams.get(&stream_id);
        stream.is_some_and(|stream| stream.waiting.is_some()) || quic.is_stream_full(stream_id)
    }

    /// True if data that this side sent, or the end of the stream, is not acknowledged yet.
    pub(super) fn is_sending(&self, quic: &quic::Connection, stream_id: u64) -> bool {
        let stream = self.streams.get(&stream_id);
        stream.is_some_and(|stream| stream.waiting.is_some()) || quic.is_sending(stream_id)
    }

    /// True if the session has a stream that the host has finished and that is not wholly acknowledged.
    pub(super) fn is_finishing(&self, session_id: u64) -> bool {
        let is_finishing = |stream_id| {
            let stream: Option<&DataStream> = self.streams.get(stream_id);
            stream.is_some_and(|stream| {
                let is_held = stream.waiting.as_ref().is_some_and(|waiting| waiting.fin);
                is_held || stream.sending == Sending::Finished
            })
        };
        let session = self.table.get(&session_id);
        session.is_some_and(|session| session.streams.iter().any(is_finishing))
    }

    /// Reads at most `max` bytes.
    pub(super) fn read_stream(
        &mut self,
        below: &mut LowerLayers<'_>,
        stream_id: u64,
        max: usize,
    ) -> Received {
        let Some(stream) = self.streams.get_mut(&stream_id) else {
            return Received::default();
        };
        let session_id = stream.session_id;
        let mut received = below.quic.read_stream(stream_id, max);
        match &mut received.end {
            None => {}
            Some(StreamEnd::Finished) => stream.is_receiving = false,
            Some(StreamEnd::Reset { error_code }) => {
                *error_code = error_code::from_wire(*error_code);
                self.abandon_unread(stream_id);
            }
        }
        self.read(below, session_id, received.data.len());
        if received.end.is_some() {
            self.settle_stream(below, stream_id);
        }
        received
    }

    /// Counts bytes that were read from a session's stream.
    fn read(&mut self, below: &mut LowerLayers<'_>, session_id: u64, count: usize) {
        if count == 0 {
            return;
        }
        let Some(session) = self.table.get_mut(&session_id) else {
            return;
        };
        session.stats.bytes_received += count as u64;
        let Some(flow) = &mut session.flow else {
            return;
        };
        match flow.received(count) {
            Ok(()) => self.send_due_credit(below, session_id),
            Err(_) => {
                let reason = "more data than the session may have";
                self.abort(below, session_id, error_code::FLOW_CONTROL_ERROR, reason);
            }
        }
    }

    /// Resets this side's direction of a stream.
    pub(super) fn reset_stream(
        &mut self,
        below: &mut LowerLayers<'_>,
        stream_id: u64,
        code: u32,
    ) -> Result<(), StreamError> {
        let Some(stream) = self.streams.get_mut(&stream_id) else {
            return Err(StreamError::Over);
        };
        let unsent = below.quic.send_queue_bytes(stream_id);
        below
            .quic
            .reset_stream(stream_id, error_code::to_wire(code))?;
        stream.sending = Sending::Over;
        stream.waiting = None;
        let session_id = stream.session_id;
        self.not_sent(below, session_id, unsent);
        self.settle_stream(below, stream_id);
        Ok(())
    }

    /// Gives `count` bytes of flow-control credit back to the session, for queued bytes that will never be sent.
    fn not_sent(&mut self, below: &mut LowerLayers<'_>, session_id: u64, count: usize) {
        let session = self.table.get_mut(&session_id);
        if count > 0
            && let Some(flow) = session.and_then(|session| session.flow.as_mut())
        {
            flow.not_sent(count);
            self.credit_granted(below, session_id);
        }
    }

    /// Sends STOP_SENDING for a stream.
    pub(super) fn stop_stream(
        &mut self,
        below: &mut LowerLayers<'_>,
        stream_id: u64,
        code: u32,
    ) -> Result<(), StreamError> {
        if !self.streams.contains_key(&stream_id) {
            return Err(StreamError::Over);
        }
        below
            .quic
            .stop_stream(stream_id, error_code::to_wire(code))?;
        self.abandon_unread(stream_id);
        self.settle_stream(below, stream_id);
        Ok(())
    }

    /// The host is done with a stream. A stream that it has not finished is reset, and one that it has not read to the
    /// end is stopped. The data of a finished stream is still delivered.
    pub(super) fn forget_stream(&mut self, below: &mut LowerLayers<'_>, stream_id: u64) {
        let Some(stream) = self.streams.get_mut(&stream_id) else {
            return;
        };
        stream.is_forgotten = true;
        let is_finished = stream.waiting.as_ref().is_some_and(|waiting| waiting.fin);
        let (is_sending, is_receiving) = (
            stream.sending == Sending::Open && !is_finished,
            stream.is_receiving,
        );
        // An error means that the direction has already ended.
        if is_sending {
            let _ = self.reset_stream(below, stream_id, 0);
        }
        if is_receiving {
            let _ = self.stop_stream(below, stream_id, 0);
        }
        self.settle_stream(below, stream_id);
    }

    // Consequences -------------------------------------------------------------------------------

    /// Counts the unread data of an abandoned stream for the session's credit. Only QUIC has the number of bytes, so
    /// the maximum is counted; otherwise the peer would run out of credit.
    fn abandon_unread(&mut self, stream_id: u64) {
        let Some(stream) = self.streams.get_mut(&stream_id) else {
            return;
        };
        if !std::mem::replace(&mut stream.is_receiving, false) {
            return;
        }
        let session = self.table.get_mut(&stream.session_id);
        if let Some(flow) = session.and_then(|session| session.flow.as_mut()) {
            flow.abandoned(self.limits.window);
        }
    }

    /// Removes a stream that has ended. Counts it, so that the peer gets credit for another stream.
    fn settle_stream(&mut self, below: &mut LowerLayers<'_>, stream_id: u64) {
        let is_own = self.is_own(stream_id);
        let Some(stream) = self.streams.get_mut(&stream_id) else {
            return;
        };
        if stream.sending != Sending::Over || stream.is_receiving {
            return;
        }
        let session_id = stream.session_id;
        let is_new = !std::mem::replace(&mut stream.is_over, true);
        let is_forgotten = stream.is_forgotten;
        let Some(session) = self.table.get_mut(&session_id) else {
            return;
        };
        if is_forgotten {
            session.streams.remove(&stream_id);
            self.streams.remove(&stream_id);
        }
        if is_new {
            session.stats.streams_open -= 1;
            if let Some(flow) = &mut session.flow
                && !is_own
            {
                flow.peer_closed(is_unidirectional(stream_id));
            }
        }
        self.send_due_credit(below, session_id);
    }

    /// Sends the queued flow-control capsules of a session.
    pub(super) fn send_due_credit(&mut self, below: &mut LowerLayers<'_>, session_id: u64) {
        let Some(session) = self.table.get_mut(&session_id) else {
            return;
        };
        let Some(flow) = &mut session.flow else {
            return;
        };
        for (kind, value) in flow.take_due() {
            let word = session_capsule::number(kind, value);
            // An error means that the CONNECT stream has ended.
            let _ = below.send_data(session_id, word, false);
        }
    }
}
