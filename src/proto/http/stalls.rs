//! Responses of which their client takes nothing: since when, and when they are given up.
//!
//! A response that waits while its client takes one that goes before it (RFC 9218 section 10) is held back by nobody's
//! fault: its time begins when that one stops. Not here: what has room (`responses`), who goes first (`priority`).

use std::time::{Duration, Instant};

use super::connection::Connection;
use crate::h3::{Code, Priority};
use crate::quic;

/// What waits of a response for its client to take something.
#[derive(Debug)]
pub(super) struct Writing {
    /// Since when nothing was taken.
    since: Instant,
    /// What waited then.
    queued: usize,
    /// Among the connection's responses.
    priority: Priority,
    /// It waits for room in the connection as a whole too: its place among those that do.
    pub place: Option<u64>,
}

impl Writing {
    pub fn new(queued: usize, priority: Priority, now: Instant) -> Self {
        Self {
            since: now,
            queued,
            priority,
            place: None,
        }
    }

    fn look(&mut self, queued: usize, taken: &mut Taken, now: Instant) {
        if queued != self.queued {
            self.since = now;
            self.queued = queued;
            taken.note(self.priority, now);
        }
    }

    /// Whether the client has had its time. What has left is QUIC's to repeat, or to give up with the connection.
    fn is_over(&self, taken: &Taken, patience: Duration, now: Instant) -> bool {
        let held_back = taken.before(self.priority);
        let since = held_back.map_or(self.since, |until| until.max(self.since));
        self.queued > 0 && now.saturating_duration_since(since) > patience
    }
}

/// When something of a response was last taken, by its urgency.
#[derive(Debug, Default)]
pub(super) struct Taken([Option<Instant>; URGENCIES]);

impl Taken {
    pub fn note(&mut self, priority: Priority, now: Instant) {
        if let Some(last) = self.0.get_mut(usize::from(priority.urgency)) {
            *last = Some(now);
        }
    }

    /// The same of those that go before this one: the more urgent and, where they come one after the other,
    /// its equals.
    fn before(&self, priority: Priority) -> Option<Instant> {
        let equals = usize::from(!priority.incremental);
        let count = (usize::from(priority.urgency) + equals).min(URGENCIES);
        self.0[..count].iter().flatten().max().copied()
    }
}

impl Connection {
    /// Something of a response was taken.
    pub(super) fn note_taken(&mut self, stream_id: u64, now: Instant) {
        let priority = match self.unacknowledged.get(&stream_id) {
            Some(writing) => writing.priority,
            None => self.rank(stream_id),
        };
        self.taken.note(priority, now);
    }

    /// Gives up the responses of which nothing was taken for too long.
    pub(super) fn give_up_stalled(&mut self, quic: &mut quic::Connection, now: Instant) {
        let knows_priorities = self.knows_priorities;
        let taken = &mut self.taken;
        for (&stream_id, exchange) in &mut self.exchanges {
            if let Some(writing) = &mut exchange.writing {
                writing.priority = exchange.wishes.rank(knows_priorities);
                writing.look(quic.send_queue_bytes(stream_id), taken, now);
            }
        }
        for (&stream_id, writing) in &mut self.unacknowledged {
            writing.look(quic.send_queue_bytes(stream_id), taken, now);
        }
        let is_over = |writing: &Writing| writing.is_over(taken, self.limits.send_timeout, now);
        let waiting = self.exchanges.iter();
        let stalled: Vec<u64> = waiting
            .filter(|(_, exchange)| exchange.writing.as_ref().is_some_and(is_over))
            .map(|(&stream_id, _)| stream_id)
            .collect();
        let whole = self.unacknowledged.iter();
        let left: Vec<u64> = whole
            .filter(|(_, writing)| is_over(writing))
            .map(|(&stream_id, _)| stream_id)
            .collect();
        for stream_id in stalled {
            self.h3
                .cancel_request(stream_id, Code::H3_REQUEST_CANCELLED.0);
            self.abort(stream_id);
        }
        for stream_id in left {
            // HTTP/3 is done with it. A stream that refuses has ended.
            let _ = quic.reset_stream(stream_id, Code::H3_REQUEST_CANCELLED.0);
            self.unacknowledged.remove(&stream_id);
            self.calmed(now);
        }
    }

    /// How a response stands among those of its connection.
    pub(super) fn rank(&self, stream_id: u64) -> Priority {
        let wishes = self.exchanges.get(&stream_id).map(|it| it.wishes);
        wishes.unwrap_or_default().rank(self.knows_priorities)
    }
}

/// RFC 9218 section 4.1.
const URGENCIES: usize = 8;
