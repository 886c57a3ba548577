//! An HTTP/3 connection: passes received data to its streams, and queues events for the host.
//!
//! This file has the queue of events, received datagrams, and the reaction to errors of the peer. `request_streams.rs`
//! has the life of a request from its first byte to its end, `send.rs` the commands that send, and `request/` the
//! receiving half of one stream.
//!
//! It is synchronous on purpose: an asynchronous HTTP/3 library would need a task, a waker and a lock for each
//! request.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};
use uringcore_wire::varint;

use super::abandoned_streams::AbandonedStreams;
use super::critical_streams::{self, CriticalStream, CriticalStreams};
use super::early_priorities::EarlyPriorities;
use super::error::{Code, ConnectionError};
use super::event::{Event, Role};
use super::frame_header;
use super::frame_type;
use super::goaway::GoAway;
use super::peer_capabilities::PeerCapabilities;
use super::pending_input_budget::PendingInputBudget;
use super::push::Pushes;
use super::qlog_entries::{Logged, QlogEntries};
use super::qpack::{Decoder, DecoderSettings, Encoder, EncoderSettings};
use super::quic_sink::Sink;
use super::request::{Half, RequestStream};
use super::request_stream_ids::RequestStreamIds;
use super::settings::{PeerSettings, Settings};
use super::stream_id;
use super::stream_id_map::StreamMap;
use super::stream_type;
use super::unidirectional_stream::{UnidirectionalKind, UnidirectionalStream};
use super::useless_frame_budget::UselessFrameBudget;

/// The state of an HTTP/3 connection (RFC 9114) of a client or a server. It needs a QUIC connection of the host below.
///
/// - Input: `handle_*`. The host passes in received data, in the order of each stream.
/// - Commands: `send_*`, [`cancel_request`](Self::cancel_request) and
///   [`create_webtransport_stream`](Self::create_webtransport_stream).
/// - Output: most of these methods get a [`Sink`], which carries out commands on QUIC. After each of them the host
///   calls [`poll_event`](Self::poll_event) until it returns `None`.
///
/// The connection reacts to errors of the peer itself. After a connection error it calls [`Sink::close`] and ignores
/// all further input. After a stream error it abandons that request (but see [`set_strict`](Self::set_strict)).
///
/// Bounds: a peer can make the connection hold the QPACK table, [`Settings::max_unfinished_size`] and
/// [`Settings::max_blocked_size`] bytes, and about 200 bytes for each stream that QUIC allows. If the host polls after
/// each call, the queue of events has only the events of one call. Useless frames (unknown frames and streams, empty
/// DATA frames, QPACK instructions, PRIORITY_UPDATE, GOAWAY, CANCEL_PUSH, MAX_PUSH_ID) may occur 4,096 times, and 64
/// times more for each field section. Then the connection is closed with H3_EXCESSIVE_LOAD.
#[derive(Debug)]
pub struct Connection {
    pub(super) role: Role,
    pub(super) settings: Settings,
    pub(super) peer: PeerCapabilities,
    pub(super) strict: bool,
    pub(super) answers_large_requests: bool,

    pub(super) critical: CriticalStreams,

    pub(super) requests: StreamMap<RequestStream>,
    pub(super) unidirectional: StreamMap<UnidirectionalStream>,
    /// The streams that this side has stopped reading, and on which more data may arrive.
    pub(super) abandoned: AbandonedStreams,
    /// Streams whose field sections wait for the peer's QPACK encoder stream, the oldest first.
    /// SETTINGS_QPACK_BLOCKED_STREAMS bounds their number.
    pub(super) blocked: VecDeque<u64>,
    pub(super) pending_input: PendingInputBudget,
    pub(super) useless_frames: UselessFrameBudget,
    pub(super) request_ids: RequestStreamIds,
    pub(super) early_priorities: EarlyPriorities,
    pub(super) goaway: GoAway,
    pub(super) pushes: Pushes,

    pub(super) encoder: Encoder,
    pub(super) decoder: Decoder,
    pub(super) events: VecDeque<Event>,
    pub(super) closed: bool,
    pub(super) log: QlogEntries,
    /// The buffer in which field sections are encoded, one after the other.
    pub(super) section: Vec<u8>,
}

impl Connection {
    /// Makes a connection and sends its SETTINGS at once.
    ///
    /// `uni_streams` are the identifiers of three unidirectional streams of this side: the control stream, the QPACK
    /// encoder stream and the QPACK decoder stream. They are written to in this order.
    pub fn new(role: Role, settings: Settings, uni_streams: [u64; 3], out: &mut dyn Sink) -> Self {
        let bounded = |value: u64| usize::try_from(value).unwrap_or(usize::MAX / 8);
        let decoder = Decoder::new(DecoderSettings {
            max_table_capacity: bounded(settings.qpack_max_table_capacity),
            blocked_streams: bounded(settings.qpack_blocked_streams),
            max_field_section_size: bounded(settings.max_field_section_size),
            max_fields: bounded(settings.max_fields),
        });
        let mut connection = Self {
            role,
            peer: PeerCapabilities::default(),
            strict: false,
            answers_large_requests: false,
            critical: CriticalStreams::new(uni_streams),
            requests: StreamMap::default(),
            unidirectional: StreamMap::default(),
            abandoned: AbandonedStreams::default(),
            blocked: VecDeque::new(),
            pending_input: PendingInputBudget::new(&settings),
            useless_frames: UselessFrameBudget::default(),
            request_ids: RequestStreamIds::new(settings.max_requests),
            early_priorities: EarlyPriorities::default(),
            goaway: GoAway::new(role),
            pushes: Pushes::default(),
            encoder: Encoder::new(EncoderSettings {
                table_capacity: ENCODER_TABLE_CAPACITY,
                may_block: settings.qpack_may_block,
            }),
            decoder,
            events: VecDeque::new(),
            closed: false,
            log: QlogEntries::default(),
            section: Vec::new(),
            settings,
        };
        connection.open_critical_streams(out);
        connection
    }

    /// Treats every stream error of the peer as a connection error, which RFC 9114 section 8 allows. For hosts that
    /// cannot report the failure of a single request to their application. Off by default.
    pub fn set_strict(&mut self, strict: bool) {
        self.strict = strict;
    }

    /// For servers. If true, a request with a too large header section is reported as [`Event::HeadersTooLarge`], and
    /// the host answers it, also in strict mode. By default such a request is abandoned with H3_EXCESSIVE_LOAD, without
    /// an event.
    pub fn set_answers_large_requests(&mut self, answers: bool) {
        self.answers_large_requests = answers;
    }

    /// Starts to collect qlog entries about frames and stream types, including those of the streams that were opened
    /// already. The host takes them with [`take_log`](Self::take_log) after each call. Off by default.
    pub fn open_log(&mut self) {
        self.log.open();
        for (stream_id, stream_type) in self.critical.own_types() {
            self.log.stream_type(stream_id, stream_type, None);
        }
    }

    /// Removes and returns the qlog entries since the last call.
    pub fn take_log(&mut self) -> Vec<Logged> {
        self.log.take()
    }

    /// Sets if the peer's transport parameters allow DATAGRAM frames. If they do not, SETTINGS with H3_DATAGRAM are an
    /// error (RFC 9297 section 2.1.1). Before this is set, such SETTINGS are accepted.
    pub fn set_peer_quic_datagrams(&mut self, enabled: bool) {
        self.peer.set_quic_datagrams(enabled);
    }

    /// Handles data on a stream that the peer sends on; `fin` marks the end of the stream.
    pub fn handle_stream_data(
        &mut self,
        out: &mut dyn Sink,
        stream_id: u64,
        data: Bytes,
        fin: bool,
    ) {
        if self.closed {
            return;
        }
        let is_known = self.requests.contains_key(&stream_id);
        let result = if !stream_id::is_unidirectional(stream_id) || is_known {
            self.receive_request(out, stream_id, data, fin)
        } else if self.role == Role::Client && self.push_id(stream_id).is_some() {
            // Data on a push stream that this side has already finished with. The stream's type must not be parsed
            // again.
            Ok(())
        } else {
            self.receive_uni(out, stream_id, data, fin)
        };
        if let Err(error) = result {
            self.close(out, error);
        }
        self.flush_decoder(out);
    }

    /// Handles a reset of the peer's direction of a stream (RFC 9000 section 19.4).
    pub fn handle_stream_reset(&mut self, out: &mut dyn Sink, stream_id: u64, code: u64) {
        if self.closed {
            return;
        }
        if stream_id::is_unidirectional(stream_id) {
            if self.critical.is_peers(stream_id) {
                self.close(out, critical_streams::closed());
                return;
            }
            // Only the reset of a WebTransport stream is an event. Other streams may be reset without a consequence,
            // even before their type has arrived (RFC 9114 section 6.2).
            if let Some(UnidirectionalStream {
                kind: UnidirectionalKind::WebTransport { .. },
                ..
            }) = self.unidirectional.remove(&stream_id)
            {
                self.events.push_back(Event::Reset {
                    stream_id,
                    code,
                    local: false,
                });
            }
            if self.requests.contains_key(&stream_id) {
                // The reset stream is a push stream.
                self.receive_reset(out, stream_id, code);
                self.flush_decoder(out);
            }
            return;
        }
        self.abandoned.forget(stream_id);
        self.receive_reset(out, stream_id, code);
        self.flush_decoder(out);
    }

    /// Handles the peer's STOP_SENDING (RFC 9000 section 19.5). The QUIC connection resets the stream itself.
    pub fn handle_stop_sending(&mut self, out: &mut dyn Sink, stream_id: u64, code: u64) {
        if self.closed {
            return;
        }
        if self.is_own_critical(stream_id) {
            self.close(out, critical_streams::closed());
            return;
        }
        if let Some(stream) = self.requests.get_mut(&stream_id) {
            stream.send = Half::Done;
            if stream.announced || self.role == Role::Client {
                self.events
                    .push_back(Event::StopSending { stream_id, code });
            }
            self.remove_if_done(stream_id);
        }
    }

    /// Handles the payload of a DATAGRAM frame (RFC 9297 section 2.1).
    pub fn handle_datagram(&mut self, out: &mut dyn Sink, mut data: Bytes) {
        if self.closed {
            return;
        }
        let error = |reason| ConnectionError::new(Code::H3_DATAGRAM_ERROR, reason);
        match varint::get(&data) {
            None => self.close(out, error("the datagram ends inside its quarter stream ID")),
            Some((quarter, _)) if quarter > varint::MAX / 4 => {
                self.close(out, error("quarter stream ID above 2^60-1"));
            }
            Some((quarter, _))
                if self.role == Role::Server && quarter * 4 >= self.request_ids.end() =>
            {
                // RFC 9297 section 2.1: the datagram names a request stream that the client cannot have opened yet.
                let reason = "a datagram of a request that cannot exist yet";
                self.close(out, ConnectionError::new(Code::H3_ID_ERROR, reason));
            }
            Some((quarter, used)) => {
                data.advance(used);
                let event = Event::Datagram {
                    stream_id: quarter * 4,
                    data,
                };
                self.useless_frames.allow_for(&event);
                self.events.push_back(event);
            }
        }
    }

    /// Takes the next event for the host.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        pop(&mut self.events)
    }

    /// The SETTINGS of the peer. `None` until they have arrived.
    #[inline]
    pub fn received_settings(&self) -> Option<&PeerSettings> {
        self.peer.settings()
    }

    /// Replaces the peer's settings, for hosts that check SETTINGS themselves. The QPACK encoder continues to use the
    /// settings that were received.
    pub fn set_received_settings(&mut self, settings: PeerSettings) {
        self.peer.set_settings(settings);
    }

    /// Closes the connection because the host has found an error of the peer.
    pub fn fail(&mut self, out: &mut dyn Sink, code: Code, reason: String) {
        if !self.closed {
            self.close(out, ConnectionError::new(code, reason));
        }
    }

    /// Called by a host that has closed the connection: all further input is ignored and every command fails.
    pub fn set_closed(&mut self) {
        self.closed = true;
        self.forget_streams();
    }

    /// The settings that this side has sent, as identifiers and values in their order.
    pub fn sent_settings(&self) -> Vec<(u64, u64)> {
        self.settings.pairs()
    }

    pub fn role(&self) -> Role {
        self.role
    }

    /// True if the connection was closed for an error of the peer: all input is ignored and every command fails.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// True if the peer has sent GOAWAY: it accepts no more requests.
    pub fn is_peer_going_away(&self) -> bool {
        self.goaway.is_received()
    }

    /// True if a part of a request has arrived, but not its whole header section, or if the section waits for QPACK.
    /// The host limits the time for this.
    pub fn awaits_headers(&self, stream_id: u64) -> bool {
        let stream = self.requests.get(&stream_id);
        stream.is_some_and(|stream| !stream.announced && stream.is_request(self.role))
    }

    /// True if this side may still send on the stream of a request: it has not sent the stream's end, and neither side
    /// has abandoned the stream.
    pub fn is_sending(&self, stream_id: u64) -> bool {
        let stream = self.requests.get(&stream_id);
        stream.is_some_and(|stream| stream.send != Half::Done)
    }

    /// The number of received bytes that cannot be used yet: field sections that are incomplete or wait for the peer's
    /// QPACK encoder stream, and the data after them.
    pub fn unusable_bytes(&self) -> usize {
        self.pending_input.bytes()
    }

    /// Frees unused capacity, and state that only improves the compression of future field sections. For connections
    /// without traffic.
    pub fn free_capacity(&mut self) {
        self.requests.shrink_to_fit();
        self.unidirectional.shrink_to_fit();
        self.abandoned.shrink_to_fit();
        self.blocked.shrink_to_fit();
        self.events.shrink_to_fit();
        self.section = Vec::new();
        self.encoder.free_capacity();
        self.decoder.free_capacity();
    }

    /// True if this is one of this side's critical streams: the control stream and the two QPACK streams.
    pub fn is_own_critical(&self, stream_id: u64) -> bool {
        self.critical.is_own(stream_id)
    }

    /// The identifiers of this side's critical streams: control, QPACK encoder and QPACK decoder.
    pub fn own_streams(&self) -> [u64; 3] {
        self.critical.own()
    }

    /// The number of bidirectional streams that the connection has state for.
    pub fn open_requests(&self) -> usize {
        self.requests.len()
    }

    fn open_critical_streams(&mut self, out: &mut dyn Sink) {
        // Opens the control stream and the two QPACK streams, each with its type (RFC 9114 section 6.2.1, RFC 9204
        // section 4.2).
        let [control_id, encoder_id, decoder_id] = self.critical.own();
        let mut control = vec![stream_type::CONTROL as u8];
        if self.settings.separate_writes {
            out.write_critical(control_id, std::mem::take(&mut control).into());
        }
        control.extend_from_slice(&self.settings.to_frame());
        if self.settings.separate_writes {
            out.write_critical(control_id, std::mem::take(&mut control).into());
        }
        if let (Role::Client, Some(max)) = (self.role, self.settings.max_push_id) {
            let mut payload = Vec::new();
            varint::put(&mut payload, max);
            control.extend_from_slice(&frame_header::frame(frame_type::MAX_PUSH_ID, &[&payload]));
        }
        if !control.is_empty() {
            out.write_critical(control_id, control.into());
        }
        out.write_critical(
            encoder_id,
            Bytes::from_static(&[stream_type::QPACK_ENCODER as u8]),
        );
        out.write_critical(
            decoder_id,
            Bytes::from_static(&[stream_type::QPACK_DECODER as u8]),
        );
    }

    /// Sends queued instructions on the QPACK encoder stream. This must happen before a field section is sent that
    /// refers to the inserted entries.
    pub(super) fn flush_encoder(&mut self, out: &mut dyn Sink) {
        let encoder_id = self.critical.id(CriticalStream::Encoder);
        match self.encoder.take_instructions() {
            Some(data) => out.write_critical(encoder_id, data),
            None if self.settings.separate_writes => out.write_critical(encoder_id, Bytes::new()),
            None => {}
        }
    }

    pub(super) fn flush_decoder(&mut self, out: &mut dyn Sink) {
        if self.closed {
            return;
        }
        let decoder_id = self.critical.id(CriticalStream::Decoder);
        if self.settings.separate_writes {
            if self.decoder.take_has_decoded() {
                let data = self.decoder.take_instructions().unwrap_or_default();
                out.write_critical(decoder_id, data);
            }
            return;
        }
        if !self.decoder.wants_flush() {
            return;
        }
        if let Some(data) = self.decoder.take_instructions() {
            out.write_critical(decoder_id, data);
        }
    }

    /// Closes the connection because of an error of the peer.
    fn close(&mut self, out: &mut dyn Sink, error: ConnectionError) {
        log::debug!("HTTP/3 connection is closed: {error}");
        self.closed = true;
        out.close(error.code, error.reason);
        self.forget_streams();
    }

    /// Drops the state of all streams.
    fn forget_streams(&mut self) {
        // A host with `separate_writes` needs the open requests even after the end of the connection, so they are kept.
        if !self.settings.separate_writes {
            self.requests = StreamMap::default();
        }
        self.unidirectional = StreamMap::default();
        self.request_ids.forget_skipped();
        self.early_priorities = EarlyPriorities::default();
        self.blocked = VecDeque::new();
        self.pending_input.clear();
    }
}

/// Takes the first entry of a queue. When the queue is empty, frees capacity that only an exceptional call needed.
pub(super) fn pop<T>(queue: &mut VecDeque<T>) -> Option<T> {
    let next = queue.pop_front();
    if queue.is_empty() && queue.capacity() > QUEUE_KEPT_MAX {
        *queue = VecDeque::new();
    }
    next
}

/// A queue keeps capacity for this many entries, which ordinary calls do not exceed.
const QUEUE_KEPT_MAX: usize = 64;

/// The capacity of the dynamic table of this side's QPACK encoder in bytes, if the peer allows that much.
const ENCODER_TABLE_CAPACITY: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capacity_of_a_flood_of_events_is_freed() {
        let mut queue: VecDeque<u64> = (0..10_000).collect();
        while pop(&mut queue).is_some() {}
        assert!(queue.capacity() <= QUEUE_KEPT_MAX);
        queue.extend(0..QUEUE_KEPT_MAX as u64 / 2);
        let capacity = queue.capacity();
        while pop(&mut queue).is_some() {}
        assert_eq!(queue.capacity(), capacity);
    }
}
