//! The life of request streams: opening, rejection, waiting for QPACK, abandonment and reset.
//!
//! Not here: parsing the frames of one stream (`request/`), and unidirectional streams (`unidirectional_stream`).

use bytes::Bytes;

use super::connection::Connection;
use super::error::{Code, ConnectionError, RemoteError};
use super::event::{Event, Role};
use super::field_validation::Method;
use super::quic_sink::Sink;
use super::request::{Half, Receiver, RequestStream};
use super::stream_id;

/// The state of a client's request stream, as far as the stream's identifier determines it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The identifier is not that of a request stream, or is above QUIC's limit.
    Impossible,
    /// The client may open the stream, and nothing has arrived on it.
    ToCome,
    /// Data has arrived on the stream. The stream may have ended since.
    Begun,
}

/// Methods for hosts that read the beginning of a stream themselves, before they pass the stream to this connection.
impl Connection {
    /// Server: the state of a client's request stream.
    pub fn place(&self, stream_id: u64) -> Place {
        match stream_id::is_client_bidi(stream_id) && stream_id < self.request_ids.end() {
            false => Place::Impossible,
            true if self.request_ids.is_unused(stream_id) => Place::ToCome,
            true => Place::Begun,
        }
    }

    /// Server: records that a bidirectional stream of the client is used for something else than a request.
    pub fn note_used(&mut self, stream_id: u64) {
        self.request_ids.mark_used(stream_id);
    }

    /// True if data of this stream was passed in before.
    pub fn is_known(&self, stream_id: u64) -> bool {
        if stream_id::is_unidirectional(stream_id) {
            let is_push = self.requests.contains_key(&stream_id);
            return is_push
                || self.unidirectional.contains_key(&stream_id)
                || self.critical.is_peers(stream_id);
        }
        match self.role == Role::Server && stream_id::is_client_bidi(stream_id) {
            true => !self.request_ids.is_unused(stream_id),
            false => self.requests.contains_key(&stream_id),
        }
    }

    /// The progress of both directions of a stream, the received direction first; `None` if the stream is not open.
    pub fn halves(&self, stream_id: u64) -> Option<(Half, Half)> {
        let stream = self.requests.get(&stream_id)?;
        Some((stream.recv, stream.send))
    }

    /// True if data was sent or received on a client's request stream. The oldest skipped streams may be counted as
    /// used.
    pub fn was_used(&self, stream_id: u64) -> bool {
        stream_id::is_client_bidi(stream_id) && !self.request_ids.is_unused(stream_id)
    }

    /// The identifiers of open bidirectional streams and push streams, unsorted.
    pub fn stream_ids(&self) -> impl Iterator<Item = u64> {
        self.requests.keys().copied()
    }

    /// Records that the host has reset this side's direction of a stream on QUIC itself.
    pub fn note_reset(&mut self, stream_id: u64) {
        if let Some(stream) = self.requests.get_mut(&stream_id) {
            stream.send = Half::Done;
            self.remove_if_done(stream_id);
        }
    }

    /// Records that the host has sent STOP_SENDING for a stream on QUIC itself (RFC 9000 section 19.5).
    pub fn note_stopped(&mut self, out: &mut dyn Sink, stream_id: u64) {
        let Some(mut stream) = self.requests.remove(&stream_id) else {
            return;
        };
        if stream.recv != Half::Done {
            self.stop_decoding(&mut stream, stream_id);
            if !stream.fin_received() {
                self.abandoned.note(stream_id);
            }
        }
        if !stream.is_done() {
            self.requests.insert(stream_id, stream);
        }
        self.flush_decoder(out);
    }

    /// Raises the [configured](super::Settings::max_requests) limit of open request streams, if there is one. A lower
    /// limit is ignored, because QUIC cannot revoke a limit.
    pub fn raise_max_requests(&mut self, max: u64) {
        self.request_ids.raise_max_open(max);
    }
}

impl Connection {
    pub(super) fn receive_request(
        &mut self,
        out: &mut dyn Sink,
        stream_id: u64,
        data: Bytes,
        fin: bool,
    ) -> Result<(), ConnectionError> {
        if !self.requests.contains_key(&stream_id) && !self.open_request(out, stream_id, fin)? {
            return Ok(());
        }
        self.with_stream(out, stream_id, |stream, receiver| {
            stream.receive(receiver, data, fin)
        })
    }

    /// Makes the state of a new stream. False if the stream must not be read.
    fn open_request(
        &mut self,
        out: &mut dyn Sink,
        stream_id: u64,
        fin: bool,
    ) -> Result<bool, ConnectionError> {
        if self.abandoned.receive(stream_id, fin) {
            return Ok(false);
        }
        if stream_id::is_server_initiated(stream_id) {
            if self.role == Role::Server {
                // The host opened this stream directly on QUIC, so its content is not parsed here.
                return Ok(false);
            }
            if !self.settings.webtransport {
                // RFC 9114 section 6.1: without an extension a server must not open bidirectional streams.
                return Err(ConnectionError::new(
                    Code::H3_STREAM_CREATION_ERROR,
                    "a server opened a bidirectional stream",
                ));
            }
            self.requests
                .insert(stream_id, RequestStream::new_server_initiated(stream_id));
            return Ok(true);
        }
        let priority = self.early_priorities.take(stream_id);
        if self.role == Role::Server {
            self.request_ids.mark_used(stream_id);
            if self.goaway.excludes_request(stream_id) {
                // RFC 9114 section 5.2: the request came after this side's GOAWAY and is rejected, so the client may
                // send it on another connection.
                self.abort(out, stream_id, Code::H3_REQUEST_REJECTED, true, !fin);
                return Ok(false);
            }
        }
        let mut stream = RequestStream::new(stream_id);
        stream.priority = priority;
        self.requests.insert(stream_id, stream);
        Ok(true)
    }

    /// Runs one step of a stream's receiving half, and handles the error or the end that results.
    fn with_stream(
        &mut self,
        out: &mut dyn Sink,
        stream_id: u64,
        step: impl FnOnce(&mut RequestStream, &mut Receiver<'_>) -> Result<(), RemoteError>,
    ) -> Result<(), ConnectionError> {
        let Some(stream) = self.requests.get_mut(&stream_id) else {
            return Ok(());
        };
        let was_blocked = stream.blocked_on().is_some();
        let mut receiver = Receiver {
            role: self.role,
            webtransport: self.settings.webtransport,
            connect_protocol: self.settings.enable_connect_protocol,
            target_check: self.settings.target_check,
            max_push_id: self.settings.max_push_id,
            pushes: &mut self.pushes,
            headers_frame_max: self.settings.max_field_section_size,
            decoder: &mut self.decoder,
            events: &mut self.events,
            pending_input: &mut self.pending_input,
            useless_frames: &mut self.useless_frames,
            log: &mut self.log,
        };
        match step(stream, &mut receiver) {
            Ok(()) => {
                if stream.blocked_on().is_some() && !was_blocked {
                    self.blocked.push_back(stream_id);
                }
                if stream.announced
                    && let Some(priority) = stream.priority.take()
                {
                    self.events.push_back(Event::PriorityUpdate {
                        stream_id,
                        priority,
                    });
                }
                self.remove_if_done(stream_id);
                Ok(())
            }
            Err(RemoteError::Connection(error)) => Err(error),
            Err(RemoteError::TooLarge { fields, .. })
                if self.answers_large_requests && stream.is_request(self.role) =>
            {
                stream.method = Method::of(&fields);
                stream.announced = true;
                self.events
                    .push_back(Event::HeadersTooLarge { stream_id, fields });
                // RFC 9114 section 4.1: the whole response was sent, so the server stops reading the request.
                self.stop_reading(out, stream_id, Code::H3_NO_ERROR);
                Ok(())
            }
            Err(error) => {
                let error = error.into_inner();
                if self.strict && error.code != Code::H3_REQUEST_INCOMPLETE {
                    return Err(error);
                }
                self.abandon_malformed(out, stream_id, &error);
                Ok(())
            }
        }
    }

    /// Stops reading a stream with STOP_SENDING. This side can still send on the stream.
    pub(super) fn stop_reading(&mut self, out: &mut dyn Sink, stream_id: u64, code: Code) {
        let Some(mut stream) = self.requests.remove(&stream_id) else {
            return;
        };
        if stream.recv != Half::Done {
            self.stop_decoding(&mut stream, stream_id);
            self.abort(out, stream_id, code, false, !stream.fin_received());
        }
        if !stream.is_done() {
            self.requests.insert(stream_id, stream);
        }
    }

    /// Ends both directions of a stream because the peer's message is malformed. The host gets an event if it had an
    /// event of the stream before.
    fn abandon_malformed(&mut self, out: &mut dyn Sink, stream_id: u64, error: &ConnectionError) {
        let Some(stream) = self.requests.get(&stream_id) else {
            return;
        };
        log::debug!("request on stream {stream_id} is abandoned: {error}");
        if stream.announced || self.role == Role::Client {
            self.events.push_back(Event::Reset {
                stream_id,
                code: error.code.0,
                local: true,
            });
        }
        self.drop_request(out, stream_id, error.code);
    }

    /// Ends the open directions of a stream, and drops the stream's state.
    pub(super) fn drop_request(&mut self, out: &mut dyn Sink, stream_id: u64, code: Code) {
        let Some(mut stream) = self.requests.remove(&stream_id) else {
            return;
        };
        let receiving = stream.recv != Half::Done;
        if receiving {
            self.stop_decoding(&mut stream, stream_id);
        }
        let stop = receiving && !stream.fin_received();
        self.abort(out, stream_id, code, stream.send != Half::Done, stop);
    }

    /// Resets this side's direction of a stream (`reset`), and stops the peer's (`stop`).
    fn abort(&mut self, out: &mut dyn Sink, stream_id: u64, code: Code, reset: bool, stop: bool) {
        if reset {
            out.reset_stream(stream_id, code);
        }
        if stop {
            out.stop_sending(stream_id, code);
            self.abandoned.note(stream_id);
        }
    }

    fn stop_decoding(&mut self, stream: &mut RequestStream, stream_id: u64) {
        stream.stop_receiving(&mut self.pending_input);
        self.blocked.retain(|&blocked| blocked != stream_id);
        if !stream.is_webtransport() {
            // RFC 9204 section 2.2.2.2: the peer's encoder gets a stream cancellation.
            self.decoder.cancel_stream(stream_id);
        }
    }

    pub(super) fn receive_reset(&mut self, out: &mut dyn Sink, stream_id: u64, code: u64) {
        let Some(mut stream) = self.requests.remove(&stream_id) else {
            if self.role == Role::Server
                && stream_id::is_client_bidi(stream_id)
                && self.request_ids.mark_used(stream_id)
            {
                self.early_priorities.take(stream_id);
                // The stream was reset before any data arrived, so there will be no response (RFC 9114 section 4.1).
                // QUIC allows the client another stream only after this side's direction has ended too. If the stream
                // was used before, this side's direction has ended already.
                self.abort(out, stream_id, Code::H3_REQUEST_INCOMPLETE, true, false);
            }
            return;
        };
        if stream.recv == Half::Done {
            self.requests.insert(stream_id, stream);
            return;
        }
        self.stop_decoding(&mut stream, stream_id);
        if stream.announced || self.role == Role::Client {
            self.events.push_back(Event::Reset {
                stream_id,
                code,
                local: false,
            });
            if !stream.is_done() {
                self.requests.insert(stream_id, stream);
            }
        } else {
            // The host has got no event of the request, so it cannot end this side's direction of the stream. The
            // direction is ended here.
            self.abort(
                out,
                stream_id,
                Code::H3_REQUEST_INCOMPLETE,
                stream.send != Half::Done,
                false,
            );
        }
    }

    pub(super) fn remove_if_done(&mut self, stream_id: u64) {
        if self
            .requests
            .get(&stream_id)
            .is_some_and(RequestStream::is_done)
        {
            self.requests.remove(&stream_id);
        }
    }

    /// Continues with the streams whose field sections can be decoded now, in the order in which they were blocked.
    pub(super) fn resume_blocked(&mut self, out: &mut dyn Sink) -> Result<(), ConnectionError> {
        let inserted = self.decoder.insert_count();
        for _ in 0..self.blocked.len() {
            let Some(stream_id) = self.blocked.pop_front() else {
                break;
            };
            let ready = self
                .requests
                .get(&stream_id)
                .and_then(RequestStream::blocked_on)
                .is_some_and(|required| required <= inserted);
            if ready {
                // If a later field section of the stream also waits for QPACK, the stream is queued again.
                self.resume(out, stream_id)?;
            } else {
                self.blocked.push_back(stream_id);
            }
        }
        Ok(())
    }

    fn resume(&mut self, out: &mut dyn Sink, stream_id: u64) -> Result<(), ConnectionError> {
        let mut blocked_again = false;
        let result = self.with_stream(out, stream_id, |stream, receiver| {
            let result = stream.resume(receiver);
            blocked_again = stream.blocked_on().is_some();
            result
        });
        if blocked_again && self.requests.contains_key(&stream_id) {
            self.blocked.push_back(stream_id);
        }
        result
    }
}
