//! The time-outs of a connection, and freeing the capacity of an idle connection.

use std::time::Instant;

use uringcore_h3::Code;
use uringcore_quic as quic;

use super::Connection;
use crate::http3::event::Event;

impl Connection {
    /// True if [`tick`](Self::tick) has to be called, because a time-out is running or has expired.
    pub fn is_due(&self, now: Instant) -> bool {
        let have_sessions = self
            .webtransport_sessions
            .as_ref()
            .is_some_and(|it| it.is_due());
        !self.is_drained()
            || have_sessions
            || self.idle_timer.may_free_capacity(now)
            || self.is_idle(now)
    }

    /// Abandons requests and responses whose time-out has expired. The host calls this about once a second.
    pub fn tick(&mut self, quic: &mut quic::Connection, now: Instant) {
        let timeout = self.limits.header_timeout;
        for stream_id in self.header_deadlines.take_overdue(timeout, now) {
            // RFC 9114 section 4.1.1: the code means that the request was not processed.
            let code = Code::H3_REQUEST_REJECTED;
            self.h3.end_stream(quic, stream_id, code, now);
            self.start_idle_timer(now);
        }
        for stream_id in self.exchanges.take_overdue(&self.limits, now) {
            self.events.push(Event::BodyTimedOut { stream_id });
        }
        self.abandon_slowly_read(quic, now);
        self.tick_sessions(quic, now);
        if self.is_drained() && self.idle_timer.may_free_capacity(now) {
            self.free_capacity(quic);
        }
        if self.is_idle(now) {
            self.idle_timer.begin(now);
            self.events.push(Event::Idle);
        }
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.is_drained() && self.idle_timer.has_lasted(self.limits.keep_alive, now)
    }

    /// Abandons responses of which the client has read too little, or nothing, for too long.
    fn abandon_slowly_read(&mut self, quic: &mut quic::Connection, now: Instant) {
        let queued = |stream_id| quic.send_queue_bytes(stream_id);
        let mut waiting = self.exchanges.waiting();
        let slow = self
            .slowly_read_responses
            .check(&mut waiting, queued, &self.limits, now);
        for response in &slow {
            self.events.push(Event::TooSlow(response.why));
        }
        let code = Code::H3_REQUEST_CANCELLED;
        let has_whole = slow.iter().any(|response| response.is_whole);
        for response in slow {
            let stream_id = response.stream_id;
            if response.is_whole {
                // `h3` has passed the whole response to QUIC, so it is reset there. An error means that the stream has
                // ended.
                let _ = quic.reset_stream(stream_id, code.0);
            } else {
                self.h3.end_stream(quic, stream_id, code, now);
                self.abort(stream_id);
            }
        }
        if has_whole {
            self.start_idle_timer(now);
        }
    }

    /// Frees the unused capacity of an idle connection.
    fn free_capacity(&mut self, quic: &mut quic::Connection) {
        self.idle_timer.capacity_freed();
        self.h3.free_capacity();
        self.exchanges.free_capacity();
        self.slowly_read_responses.free_capacity();
        self.header_deadlines.free_capacity();
        if let Some(attached) = &mut self.webtransport_sessions {
            attached.free_capacity();
        }
        self.events.free_capacity();
        quic.rest();
    }
}
