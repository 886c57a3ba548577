//! Converts quinn-proto's events into events for the application. Not here: their queue (`event_queue`), and the
//! reason of a connection's end (`close_reason`).

use quinn_proto::{self as quinn, Dir, StreamEvent};

use super::close_reason::closed_event;
use super::{Connection, event_queue::Pending, session_details};
use crate::{Event, Received, StreamEnd, streams::Readiness, workarounds::rejected_early_data};

impl Connection {
    /// Takes all events from quinn-proto. Called often, because its queue has no bound. Returns false if nothing has
    /// happened, so that there is nothing more to send than before.
    pub(crate) fn pump(&mut self) -> bool {
        self.log.recovery(&self.quinn);
        let mut has_changed = false;
        while let Some(event) = self.quinn.poll() {
            has_changed = true;
            // `Closed` is the last event of a connection.
            if !self.phase.is_closed() {
                self.take_over(event);
            }
        }
        self.take_over_arrivals();
        has_changed |= self.take_over_resets();
        has_changed |= self.streams.send_deferred_resets(&mut self.quinn);
        self.take_over_credentials();
        if let Some(observed) = self.observer.poll() {
            has_changed = true;
            if observed.pings.send_again {
                self.quinn.ping();
            }
            if let Some(changes) = observed.pings.keys_answered {
                self.key_updates.answered(changes);
                self.advance_keys();
            }
            if !self.phase.is_closed() {
                let answered = observed.pings.answered.into_iter();
                let answered = answered.map(|uid| Event::PingAcknowledged { uid });
                self.events.extend(answered.chain(observed.ids));
            }
        }
        has_changed
    }

    /// Called while a datagram or a timer is handled.
    pub(crate) fn note_batch(&mut self) {
        self.events.note_batch(self.phase.is_closed());
    }

    /// The next event for the application.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        loop {
            match self.events.pop(self.phase.is_closed())? {
                Pending::Ready(event) => {
                    match event {
                        Event::Closed { .. } => self.release_receiving(),
                        // The application has written more since, so the queue is full again. The event will be emitted
                        // later.
                        Event::StreamWritable { stream_id } if self.is_stream_full(stream_id) => {
                            continue;
                        }
                        Event::ConnectionWritable { .. } if self.is_full() => continue,
                        _ => {}
                    }
                    return Some(event);
                }
                Pending::Readable(stream_id) => {
                    let Received { data, end } = self.streams.read(&mut self.quinn, stream_id);
                    self.insert_resets();
                    if let Some(StreamEnd::Reset { error_code }) = end {
                        return Some(Event::StreamReset {
                            stream_id,
                            error_code,
                        });
                    }
                    let fin = end == Some(StreamEnd::Finished);
                    if fin || !data.is_empty() {
                        return Some(Event::StreamData {
                            stream_id,
                            data,
                            fin,
                        });
                    }
                }
                Pending::Datagrams { early } => {
                    if let Some(data) = self.quinn.datagrams().recv() {
                        self.events.push_more_datagrams(early);
                        return Some(Event::Datagram { data, early });
                    }
                }
                Pending::Batch => return Some(Event::BatchHandled),
            }
        }
    }

    /// Handles received RESET_STREAM_AT frames, which quinn-proto does not support. Returns false if there are none.
    fn take_over_resets(&mut self) -> bool {
        if !self.observer.uses_resets() && !self.streams.has_resets_due() {
            return false;
        }
        for reset in self.observer.take_resets() {
            if !self.phase.is_closed() && self.streams.reset_at(reset) {
                self.readable(reset.stream_id);
            }
        }
        self.observer.confirm_resets(&self.quinn);
        self.insert_resets();
        true
    }

    /// Inserts RESET_STREAM frames into the next packet for quinn-proto, for streams that a RESET_STREAM_AT has reset.
    pub(super) fn insert_resets(&mut self) {
        let due = self.streams.take_resets_due();
        self.observer.insert_resets(&self.quinn, due);
    }

    /// Emits events for session tickets and address tokens that a client can use in its next connections.
    fn take_over_credentials(&mut self) {
        if !self.is_client() {
            return;
        }
        let new = self.credentials.take_new();
        if !self.phase.is_closed() {
            self.events.extend(new);
        }
    }

    fn take_over(&mut self, event: quinn::Event) {
        match event {
            quinn::Event::HandshakeDataReady => {
                self.negotiated.negotiate(session_details(&self.quinn));
                self.events.push(Event::ProtocolNegotiated {
                    alpn: self.negotiated.alpn().map(<[u8]>::to_vec),
                });
            }
            quinn::Event::Connected => self.established(),
            quinn::Event::Stream(event) => self.take_over_stream(event),
            quinn::Event::DatagramReceived => {
                let early = self.is_handshaking() && !self.is_client();
                self.events.push_datagrams(early);
            }
            // Waiting datagrams are passed to quinn-proto before every transmission, so this event needs no action.
            quinn::Event::DatagramsUnblocked => {}
            quinn::Event::ConnectionLost { reason } => {
                if matches!(reason, quinn::ConnectionError::TransportError(_)) {
                    self.repeat_close();
                }
                for stream_id in self.streams.end_pauses() {
                    self.events.push_readable(stream_id);
                }
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
                self.account.streams_opened(&mut self.quinn, dir);
            }
            StreamEvent::Readable { id } => self.readable(id.into()),
            StreamEvent::Writable { id } => self.streams.writable(id.into()),
            StreamEvent::Finished { id } => {
                if self.streams.finished(id.into()) {
                    self.events.push(Event::StreamFinished {
                        stream_id: id.into(),
                    });
                }
            }
            StreamEvent::Stopped { id, error_code } => {
                let unsent = self.streams.queued_bytes_of(id.into());
                if self.streams.stopped(&mut self.quinn, id.into(), error_code) {
                    let error_code = error_code.into_inner();
                    self.events.push(Event::StopSending {
                        stream_id: id.into(),
                        error_code,
                        unsent,
                    });
                }
                self.report_abandoned();
            }
            // Waiting streams are opened before every transmission, so nothing else is done here.
            StreamEvent::Available { dir } => {
                if self.streams.is_read_on_demand() {
                    self.events.push(Event::StreamsAvailable {
                        unidirectional: dir == Dir::Uni,
                    });
                }
            }
        }
    }

    pub(super) fn report_abandoned(&mut self) {
        for stream_id in self.streams.take_abandoned() {
            self.events.push(Event::StreamAbandoned { stream_id });
        }
    }

    fn readable(&mut self, stream_id: u64) {
        let is_early = self.is_handshaking();
        match self.streams.readable(&mut self.quinn, stream_id, is_early) {
            Readiness::Nothing => {}
            Readiness::Readable if self.streams.is_on_demand(stream_id) => {
                self.events.push(Event::StreamReadable { stream_id });
            }
            Readiness::Readable => self.events.push_readable(stream_id),
            Readiness::Reset { error_code } => self.events.push(Event::StreamReset {
                stream_id,
                error_code,
            }),
        }
    }

    /// Returns true if the server has accepted a client's 0-RTT data. False if it rejected the data or there was none.
    fn early_data_accepted(&mut self) -> bool {
        let is_accepted = rejected_early_data::is_accepted(&self.quinn);
        match is_accepted {
            Some(true) => {
                self.streams.early_accepted();
                self.datagrams.early_accepted();
            }
            Some(false) => {
                self.streams.early_rejected();
                self.datagrams.early_rejected(&self.quinn);
                self.log.early_data_rejected();
            }
            None => {}
        }
        is_accepted.unwrap_or(false)
    }

    /// After rejected 0-RTT data, the server's limit on all streams' data replaces the ticket's, which quinn-proto
    /// still uses (RFC 9000 section 7.4.1).
    fn limit_early_streams(&mut self, initial_max_data: u64) {
        let Some(observed) = self.observer.max_data() else {
            return;
        };
        // The datagram that completed the handshake may also have contained a MAX_DATA frame.
        let allowed = observed.max(initial_max_data);
        let is_rejected = rejected_early_data::is_accepted(&self.quinn) == Some(false);
        match is_rejected && self.streams.early_limit().rejected(allowed) {
            true => self.observer.expect_max_data(allowed),
            false => self.observer.forget_max_data(),
        }
    }

    fn established(&mut self) {
        self.phase.establish();
        let details = session_details(&self.quinn);
        self.negotiated.establish(&details);
        if self.is_client() {
            let remote = self.quinn.remote_address();
            self.preferred
                .offered(self.negotiated.preferred_address(remote));
        }
        self.limit_early_streams(self.negotiated.initial_max_data());
        self.credentials.set_version(self.version());
        let early_data_accepted = match self.is_client() {
            true => self.early_data_accepted(),
            // A server has 0-RTT keys only if it accepts 0-RTT data.
            false => self.quinn.has_0rtt(),
        };
        self.events.push(Event::HandshakeCompleted {
            alpn: self.negotiated.alpn().map(<[u8]>::to_vec),
            early_data_accepted,
            session_resumed: details.resumed,
        });
        for uid in self.observer.take_early_pings() {
            self.ping(uid);
        }
    }
}
