//! Converts the state machine's events into the host's. Not here: the reason of an end (`ending`).

use quinn_proto::{self as quinn, Dir, StreamEvent};

use super::ending::closed_event;
use super::{Connection, Phase, session_details};
use crate::{
    Event, Received, StreamEnd, paths::peer_parameters::PeerParameters, seams::early_data,
    streams::Heard,
};

/// An event, or a reference that is resolved when the host polls.
pub(super) enum Pending {
    Ready(Event),
    /// Read as late as possible, so that one event carries as much data as possible.
    Readable(u64),
    /// `early` if the first of them arrived before the handshake was complete.
    Datagrams {
        early: bool,
    },
    /// Delivered after all others.
    Batch,
}

/// The state of `BatchHandled` events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Batches {
    Unreported,
    /// Not reported, and there was a batch.
    Missed,
    Reported,
    /// The event is queued.
    Pending,
}

impl Connection {
    /// Takes the state machine's events. Called often, because its queue has no bound.
    pub(crate) fn pump(&mut self) {
        self.log_recovery();
        while let Some(event) = self.quinn.poll() {
            // Nothing follows the `Closed` event.
            if self.phase != Phase::Closed {
                self.take_over(event);
            }
        }
        self.take_over_arrivals();
        self.take_over_resets();
        self.streams.reset_given_up(&mut self.quinn);
        self.take_over_credentials();
        if let Some(pings) = self.observer.poll_pings() {
            if pings.send_again {
                self.quinn.ping();
            }
            if let Some(changes) = pings.keys_answered {
                self.key_use.answered(changes);
                self.advance_keys();
            }
            let answered = pings
                .answered
                .into_iter()
                .map(|uid| Event::PingAcknowledged { uid })
                .chain(pings.ids);
            if self.phase != Phase::Closed {
                self.events.extend(answered.map(Pending::Ready));
            }
        }
    }

    /// Called while a datagram or a timer is handled.
    pub(crate) fn note_batch(&mut self) {
        match self.batches {
            Batches::Unreported => self.batches = Batches::Missed,
            Batches::Reported if self.phase != Phase::Closed => {
                self.batches = Batches::Pending;
                self.events.push_back(Pending::Batch);
            }
            Batches::Missed | Batches::Reported | Batches::Pending => {}
        }
    }

    /// The next event for the host.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        loop {
            match self.events.pop_front()? {
                Pending::Ready(event) => {
                    match event {
                        Event::Closed { .. } => self.release_receiving(),
                        // More data was written since, and another event will follow.
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
                    self.say_resets();
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
                        self.events.push_front(Pending::Datagrams { early });
                        return Some(Event::Datagram { data, early });
                    }
                }
                // Nothing follows the end.
                Pending::Batch if self.phase == Phase::Closed => {}
                Pending::Batch if !self.events.is_empty() => self.events.push_back(Pending::Batch),
                Pending::Batch => {
                    self.batches = Batches::Reported;
                    return Some(Event::BatchHandled);
                }
            }
        }
    }

    /// Applies RESET_STREAM_AT frames, which the state machine does not support.
    fn take_over_resets(&mut self) {
        for reset in self.observer.resets().take_found() {
            if self.phase != Phase::Closed && self.streams.reset_at(reset) {
                self.readable(reset.stream_id);
            }
        }
        let resets = self.observer.resets();
        if resets.is_due() && self.quinn.stats().frame_rx.reset_stream != self.resets_taken {
            resets.said();
        }
        self.say_resets();
    }

    /// Queues RESET_STREAM frames for the state machine, for resets that it has not seen.
    pub(super) fn say_resets(&mut self) {
        let due = self.streams.take_resets_due();
        if !due.is_empty() {
            self.observer.resets().say(due);
            self.resets_taken = self.quinn.stats().frame_rx.reset_stream;
        }
    }

    /// Tickets and tokens that a client can use in its next connections.
    fn take_over_credentials(&mut self) {
        if !self.is_client() {
            return;
        }
        let tickets = self.tickets.take().into_iter();
        let tickets = tickets.map(|ticket| Event::SessionTicket(Box::new(ticket)));
        let tokens = self.tokens.as_ref().map(|tokens| tokens.take_new());
        let tokens = tokens.into_iter().flatten();
        let events =
            tickets.chain(tokens.map(|(token, version)| Event::NewToken { token, version }));
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
            quinn::Event::DatagramReceived => {
                let early = self.phase == Phase::Handshake && !self.is_client();
                self.events.push_back(Pending::Datagrams { early });
            }
            // Datagrams are passed on before every transmission.
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
                self.peers_limits.opened(&mut self.quinn, dir);
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
                let unsent = self.streams.queued_bytes_of(id.into());
                if self.streams.stopped(&mut self.quinn, id.into(), error_code) {
                    let error_code = error_code.into_inner();
                    self.push(Event::StopSending {
                        stream_id: id.into(),
                        error_code,
                        unsent,
                    });
                }
                self.tell_abandoned();
            }
            // Waiting streams are opened before every transmission.
            StreamEvent::Available { dir } => {
                if self.streams.is_read_on_demand() {
                    self.push(Event::StreamsAvailable {
                        unidirectional: dir == Dir::Uni,
                    });
                }
            }
        }
    }

    pub(super) fn tell_abandoned(&mut self) {
        for stream_id in self.streams.take_abandoned() {
            self.push(Event::StreamAbandoned { stream_id });
        }
    }

    fn readable(&mut self, stream_id: u64) {
        let is_early = self.phase == Phase::Handshake;
        match self.streams.readable(&mut self.quinn, stream_id, is_early) {
            Heard::Nothing => {}
            Heard::Readable if self.streams.is_on_demand(stream_id) => {
                self.push(Event::StreamReadable { stream_id });
            }
            Heard::Readable => self.events.push_back(Pending::Readable(stream_id)),
            Heard::Reset { error_code } => self.push(Event::StreamReset {
                stream_id,
                error_code,
            }),
        }
    }

    /// The result of a client's 0-RTT data. Also false if it could not send any.
    fn early_data_accepted(&mut self) -> bool {
        let is_accepted = early_data::is_accepted(&self.quinn);
        match is_accepted {
            Some(true) => {
                self.streams.early_accepted();
                self.datagrams.early_accepted();
            }
            Some(false) => {
                self.streams.early_rejected();
                self.datagrams.early_rejected(&self.quinn);
                if let Some(log) = &self.packet_log {
                    log.early_data_rejected();
                }
            }
            None => {}
        }
        is_accepted.unwrap_or(false)
    }

    /// After rejected 0-RTT data: the server's limits replace those that the ticket remembers (RFC 9000 section
    /// 7.4.1), which the state machine uses.
    fn limit_room(&mut self, initial_max_data: u64) {
        let Some(watched) = self.observer.max_data() else {
            return;
        };
        // A MAX_DATA frame may have arrived in the datagram that completed the handshake.
        let allowed = watched.max(initial_max_data);
        if self.early_max_data > allowed && early_data::is_accepted(&self.quinn) == Some(false) {
            self.streams.set_room(Some(allowed));
            self.counted_max_data = Some(allowed);
            self.observer.expect_max_data(allowed);
        } else {
            self.observer.forget_max_data();
        }
    }

    fn established(&mut self) {
        self.phase = Phase::Established;
        let details = session_details(&self.quinn);
        let resumed = details.resumed;
        self.cipher_suite = details.cipher_suite;
        self.group = details.group;
        let peers = PeerParameters::read(&details.peer_parameters.unwrap_or_default());
        if self.use_preferred && self.is_client() {
            self.preferred = peers.preferred_like(self.quinn.remote_address());
        }
        let initial_max_data = peers.initial_max_data;
        self.peer_parameters = peers;
        self.limit_room(initial_max_data);
        if let Some(tokens) = &self.tokens {
            tokens.set_version(self.versions.current());
        }
        let early_data_accepted = match self.is_client() {
            true => self.early_data_accepted(),
            // The server has the keys only if it accepts the data.
            false => self.quinn.has_0rtt(),
        };
        self.push(Event::HandshakeCompleted {
            alpn: self.alpn.clone(),
            early_data_accepted,
            session_resumed: resumed,
        });
        for uid in std::mem::take(&mut self.early_pings) {
            self.ping(uid);
        }
    }
}
