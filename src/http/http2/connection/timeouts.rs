//! The time-outs of a connection, and freeing the capacity of an idle connection.

use std::time::{Duration, Instant};

use super::{Connection, Phase};
use crate::http2::error::Code;
use crate::http2::event::Event;
use crate::http2::useless_frame_budget::PER_SECOND;
use crate::response_errors::TooSlow;
use crate::slow_reader_detection::{Patience, ReadProgress};
use crate::tcp_output::{Closing, LINGER_TIME};

impl Connection {
    /// Enforces the time-outs. The host calls this about once a second. `unsent` is the number of written bytes that
    /// the host has not sent yet.
    pub fn tick(&mut self, unsent: usize, now: Instant) {
        let passed = |since: Instant| now.saturating_duration_since(since);
        match &mut self.phase {
            Phase::Over => {}
            Phase::Linger { since, .. } if unsent > 0 => *since = None,
            Phase::Linger { since, .. } => {
                if passed(*since.get_or_insert(now)) > LINGER_TIME {
                    self.close(Closing::Gracefully);
                }
            }
            _ => self.tick_open(unsent, now),
        }
        self.check_reader(unsent, now);
    }

    fn tick_open(&mut self, unsent: usize, now: Instant) {
        self.useless_frames.allow(PER_SECOND);
        let has_arrived = std::mem::take(&mut self.has_data_arrived);
        let timeout = self.limits.requests.header_timeout;
        if let Some(since) = self.incomplete_since
            && now.saturating_duration_since(since) > timeout
        {
            return match self.phase {
                Phase::Preface => self.close(Closing::Gracefully),
                // The client may be honest and its network slow, so this does not count as abuse.
                _ => self.fail(Code::EnhanceYourCalm, "a header section is too slow"),
            };
        }
        for stream_id in self.exchanges.take_overdue(&self.limits.requests, now) {
            self.events.push_back(Event::BodyTimedOut { stream_id });
        }
        self.abandon_slowly_read(now);
        self.reset_forgotten();
        self.go_away_late(now);
        if unsent > 0 || !self.is_drained() {
            self.idle_timer.begin(now);
        } else if self.idle_timer.has_lasted(self.idle_timeout(), now) {
            self.end_idle(now);
        } else if self.idle_timer.may_free_capacity(now) {
            self.free_capacity();
            // While the client sends, late frames of these streams may be under way.
            if !has_arrived {
                self.reset_streams.clear();
                self.idle_timer.capacity_freed();
            }
        }
    }

    /// The time for the next request. A new client has the time of a header section for its first one.
    fn idle_timeout(&self) -> Duration {
        let limits = &self.limits.requests;
        match self.requests {
            0 => limits.header_timeout,
            _ => limits.keep_alive,
        }
    }

    /// True if no request is open, and all responses are in the output.
    fn is_drained(&self) -> bool {
        self.streams.is_empty() && self.exchanges.is_empty()
    }

    /// Starts the idle timer, if the last open request has just ended.
    pub(super) fn start_idle_timer(&mut self, now: Instant) {
        if self.is_drained() {
            self.idle_timer.begin(now);
        }
    }

    /// Abandons the responses of which the client has read nothing, or too little, for too long.
    fn abandon_slowly_read(&mut self, now: Instant) {
        let streams = &self.streams;
        let queued = |stream_id: u64| {
            let stream = u32::try_from(stream_id)
                .ok()
                .and_then(|id| streams.get(&id));
            stream.map_or(0, |stream| stream.queue.bytes())
        };
        let mut waiting = self.exchanges.waiting();
        let limits = &self.limits.requests;
        let slow = self
            .slowly_read_responses
            .check(&mut waiting, queued, limits, now);
        for response in slow {
            self.events.push_back(Event::TooSlow(response.why));
            if let Ok(stream_id) = u32::try_from(response.stream_id)
                && self.streams.contains_key(&stream_id)
            {
                self.reset(stream_id, Code::Cancel);
                self.abort(stream_id);
            }
        }
    }

    /// Resets streams whose request does not end although its application has returned: a client keeps its direction of
    /// a WebSocket open, for example. It has a second for the end.
    fn reset_forgotten(&mut self) {
        let mut forgotten = Vec::new();
        for (&stream_id, stream) in &mut self.streams {
            if stream.is_sent() && self.exchanges.get(u64::from(stream_id)).is_none() {
                let had_time = std::mem::replace(&mut stream.is_reset_at_end, true);
                forgotten.extend(had_time.then_some(stream_id));
            }
        }
        for stream_id in forgotten {
            self.reset(stream_id, Code::NoError);
        }
    }

    /// Ends the connection if its client does not read, or too slowly.
    fn check_reader(&mut self, unsent: usize, now: Instant) {
        if unsent == 0 {
            self.read_progress = None;
            return;
        }
        let taken = self.written.saturating_sub(unsent as u64);
        let limits = &self.limits.requests;
        let patience = Patience {
            timeout: limits.send_timeout,
            rate: limits.send_rate,
            grace: limits.send_rate_grace,
        };
        let progress = self
            .read_progress
            .get_or_insert_with(|| ReadProgress::new(taken, patience, now));
        if let Some(why) = progress.check(taken, patience, now) {
            self.too_slow(why);
        }
    }

    fn too_slow(&mut self, why: TooSlow) {
        self.events.push_back(Event::TooSlow(why));
        self.shed();
    }

    /// Frees unused capacity. The next request has to allocate it again.
    fn free_capacity(&mut self) {
        self.decoder.free_capacity();
        self.scheduler.free_capacity();
        self.streams.shrink_to_fit();
        self.exchanges.free_capacity();
        self.slowly_read_responses.free_capacity();
        self.events.shrink_to_fit();
        if self.output.is_empty() {
            self.output.free_unused();
        }
    }
}
