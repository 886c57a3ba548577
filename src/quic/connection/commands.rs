//! The commands of a connection. They take effect at the endpoint's next `poll_transmit`. Not here: migration
//! (`migration`).

use std::time::Instant;

use bytes::Bytes;
use quinn_proto::{Dir, VarInt};

use super::Connection;
use crate::{
    CloseKind, DatagramError, Event, Priority, Received, StreamError, workarounds::transport_close,
};

impl Connection {
    /// Sends nothing until [`release`](Self::release), so that 0-RTT data of the application leaves in one flight with
    /// the ClientHello. Commands are accepted meanwhile. Has an effect only for a client that has sent nothing yet.
    ///
    /// If the connection is closed before `release`, it ends at once and never sends anything.
    pub fn hold(&mut self) {
        if self.is_client() {
            self.phase.hold(self.quinn.stats().udp_tx.datagrams);
        }
    }

    /// Sends the packets that [`hold`](Self::hold) has kept back.
    pub fn release(&mut self) {
        self.phase.release();
    }

    /// Queues `data` on a stream, and a FIN after it if `fin`. The first use of an ID of ours opens the stream, as
    /// soon as the peer's limit allows. Until then, and while the peer's window or the send window are full, data
    /// waits here without a bound: see [`set_watermarks`](Self::set_watermarks).
    pub fn send_stream(
        &mut self,
        stream_id: u64,
        data: Bytes,
        fin: bool,
    ) -> Result<(), StreamError> {
        self.phase.check_open()?;
        self.streams.send(stream_id, data, fin)?;
        self.events.note_full(self.streams.is_above_high_water());
        self.charge();
        Ok(())
    }

    /// Begins a stream that was just opened with the bytes `head`. The peer gets these bytes even if the stream is
    /// reset: the reset is sent after the peer has acknowledged them, which has the effect of RESET_STREAM_AT
    /// (draft-ietf-quic-reliable-stream-reset). The caller must keep no other reference to `head`.
    pub fn send_head(&mut self, stream_id: u64, head: Bytes) {
        self.streams.send_head(stream_id, head);
    }

    /// Sends RESET_STREAM (RFC 9000 section 3.1) and drops queued data.
    pub fn reset_stream(&mut self, stream_id: u64, error_code: u64) -> Result<(), StreamError> {
        self.phase.check_open()?;
        self.streams.reset(&mut self.quinn, stream_id, error_code)?;
        self.report_abandoned();
        Ok(())
    }

    /// Sends STOP_SENDING (RFC 9000 section 3.5). The stream is not read any more.
    pub fn stop_stream(&mut self, stream_id: u64, error_code: u64) -> Result<(), StreamError> {
        self.phase.check_open()?;
        let stopped = self.streams.stop(&mut self.quinn, stream_id, error_code);
        self.insert_resets();
        stopped
    }

    /// Stops reading a stream. The peer gets no more credit for it, so at most one window of data accumulates here.
    /// When the peer closes the connection all pauses end, and data that has arrived is delivered before `Closed`.
    pub fn pause_stream(&mut self, stream_id: u64) {
        if !self.phase.is_closed() {
            self.streams.pause(stream_id);
        }
    }

    pub fn resume_stream(&mut self, stream_id: u64) {
        if !self.phase.is_closed() && self.streams.resume(stream_id) {
            self.events.push_readable(stream_id);
        }
    }

    /// Switches to reading streams by [`read_stream`](Self::read_stream), after `StreamReadable` events. Unread data
    /// stays in quinn-proto, and the peer gets credit only for data that was read. So at most the receive windows of
    /// the settings are stored. When the peer closes the connection, unread data is delivered in `StreamData` events
    /// before `Closed`.
    pub fn read_on_demand(&mut self) {
        self.streams.read_on_demand();
    }

    /// Enables [`BatchHandled`](Event::BatchHandled) after each batch of datagrams and each timer. If a batch was
    /// handled before this call the event follows at once, because a server gets a connection with its first datagram.
    pub fn report_batches(&mut self) {
        self.events.report_batches(self.phase.is_closed());
    }

    /// Delivers one stream by `StreamData` although [`read_on_demand`](Self::read_on_demand) is set. Data that has
    /// arrived before this call must be [read](Self::read_stream) first.
    pub fn deliver_stream(&mut self, stream_id: u64) {
        self.streams.deliver(stream_id);
    }

    /// The limit of streams that the peer may have open at a time.
    pub fn max_streams(&self, unidirectional: bool) -> u64 {
        let dir = if unidirectional { Dir::Uni } else { Dir::Bi };
        self.account.max_streams(dir)
    }

    /// Changes the limit of streams that the peer may have open at a time. A lower limit takes effect as streams
    /// end.
    pub fn set_max_streams(&mut self, unidirectional: bool, count: u64) {
        let dir = if unidirectional { Dir::Uni } else { Dir::Bi };
        self.account.set_max_streams(&mut self.quinn, dir, count);
    }

    /// Reads at most `max` bytes that have arrived in order. Empty at the end of the stream and on a stopped stream.
    pub fn read_stream(&mut self, stream_id: u64, max: usize) -> Received {
        if self.phase.is_closed() {
            return Received::default();
        }
        let received = self.streams.take(&mut self.quinn, stream_id, max);
        self.insert_resets();
        received
    }

    /// Opens the next stream of this side and returns its ID. `None` if the connection is closed or the peer's limit is
    /// reached; then `StreamsAvailable` follows. The peer sees the stream when its first data arrives.
    pub fn open_stream(&mut self, unidirectional: bool) -> Option<u64> {
        if self.phase.is_closed() {
            return None;
        }
        let dir = if unidirectional { Dir::Uni } else { Dir::Bi };
        self.streams.open(&mut self.quinn, dir)
    }

    /// Sets the watermarks in bytes. A stream whose send queue has grown to `high` emits `StreamWritable` when the
    /// queue has fallen to `low`, or `StreamAbandoned` if the stream is reset before. The sum of all streams' queues
    /// has the same watermarks, and emits `ConnectionWritable`.
    pub fn set_watermarks(&mut self, high: usize, low: usize) {
        self.streams.set_watermarks(high, low);
    }

    /// Makes the stream emit [`StreamWritable`](Event::StreamWritable) once its send queue has fallen to the low
    /// watermark, although it never reached the high one. There is no event if the queue is that low already.
    pub fn report_when_low(&mut self, stream_id: u64) {
        self.streams.report_when_low(stream_id);
    }

    /// Frees unused capacity of the queues. An endpoint calls this for a connection that has been idle for a second.
    pub fn rest(&mut self) {
        self.events.rest();
        self.streams.rest();
        self.datagrams.rest();
    }

    /// Sets the watermarks of the sum of all streams' send queues, in bytes.
    pub fn set_connection_watermarks(&mut self, high: usize, low: usize) {
        self.streams.set_total_watermarks(high, low);
    }

    /// Sends data of this stream before data of less urgent streams (RFC 9218). Data that quinn-proto has taken before,
    /// at most about two congestion windows, keeps its order.
    pub fn set_priority(&mut self, stream_id: u64, priority: Priority) -> Result<(), StreamError> {
        self.phase.check_open()?;
        self.streams
            .set_priority(&mut self.quinn, stream_id, priority)
    }

    /// Queues an unreliable datagram (RFC 9221). A full queue drops its oldest datagrams, because the newest real-time
    /// data is worth most; `stats` counts the dropped ones.
    pub fn send_datagram(&mut self, data: Bytes) -> Result<(), DatagramError> {
        if self.phase.is_closed() {
            return Err(DatagramError::Closed);
        }
        let size_max = self.max_datagram_size();
        self.datagrams
            .push(data, self.phase.is_established(), size_max)?;
        self.events.note_full(self.datagrams.is_half_full());
        Ok(())
    }

    /// Sends a PING, after the handshake if that is in progress. `PingAcknowledged` with `uid` reports the answer.
    pub fn ping(&mut self, uid: u64) {
        if self.is_handshaking() {
            self.observer.keep_ping(uid);
        } else if self.is_established() {
            self.observer.expect_ping(uid);
            self.quinn.ping();
        }
    }

    /// Initiates a key update (RFC 9001 section 6) as soon as the handshake is confirmed and the peer has acknowledged
    /// a packet with the current keys.
    pub fn request_key_update(&mut self) {
        self.key_updates.request();
        self.advance_keys();
    }

    pub(super) fn advance_keys(&mut self) {
        if self.is_confirmed() {
            self.key_updates
                .advance(&mut self.quinn, &mut self.observer);
        }
    }

    /// Switches to another of the peer's connection IDs (RFC 9000 section 5.1). Does nothing on a server, because
    /// quinn-proto offers the switch to clients only.
    pub fn change_connection_id(&mut self) {
        if self.is_client() && self.is_established() {
            // The ID for the server's preferred address may be the next one, so that address cannot be used any more.
            self.preferred.take_offer();
            self.stop_probing();
            self.quinn.local_address_changed();
        }
    }

    /// Closes the connection at once. Queued and unacknowledged data is dropped. With `frame_type` the close is one of
    /// the transport and names that frame type (RFC 9000 section 19.19); with `None` it is the application's. A code of
    /// 2^62 or more becomes 2^62 - 1, and a reason is cut to 512 bytes. A second close does nothing.
    ///
    /// Before the handshake is complete the peer sees APPLICATION_ERROR instead of the code (RFC 9000 section 10.2.3).
    pub fn close(&mut self, now: Instant, error_code: u64, frame_type: Option<u64>, reason: &[u8]) {
        self.pump();
        if self.phase.is_closed() {
            return;
        }
        let code = VarInt::from_u64(error_code).unwrap_or(VarInt::MAX);
        let frame_type = frame_type.map(|kind| kind.min(VarInt::MAX.into_inner()));
        let reason = truncated(reason);
        let mut wire_reason = Vec::new();
        if let Some(frame_type) = frame_type {
            self.observer.close_as_transport(frame_type);
            wire_reason.resize(transport_close::filler(frame_type), 0);
        }
        wire_reason.extend_from_slice(reason);
        if !self.phase.is_held() {
            self.quinn.close(now, code, wire_reason.into());
            self.repeat_close();
        }
        // The application has closed the connection, so it gets no more data. Unread data is dropped.
        self.events.drop_unread();
        self.closed(Event::Closed {
            error_code: code.into_inner(),
            frame_type,
            reason: String::from_utf8_lossy(reason).into_owned(),
            kind: CloseKind::Local,
        });
        self.release_receiving();
    }
}

/// Cuts the reason at a character boundary, so that the close and an ACK fit in one packet.
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
