//! Responses of which their client reads nothing, or too little: since when, and when they are abandoned.
//!
//! A response that waits while its client reads one with precedence (RFC 9218 section 10) is not stalled: its time
//! begins when that one stops. Not here: room in queues (`responses`), and precedence (`priority`).
//!
//! The minimum rate is enforced by a balance of time for each response. A gap between two reads costs its length,
//! and bytes that were read earn the time that they last at the minimum rate. A balance below zero abandons the
//! response. A response begins with the grace period and never has more than that, so a fast start does not pay for
//! hours. A gap costs at most the grace period, so a player that pauses with a full buffer and then continues keeps
//! its response; the time-out ends longer pauses. Responses of one urgency share the client's rate, so each has to
//! reach a part of it.

use std::time::{Duration, Instant};

use uringcore_h3::{Code, Priority};
use uringcore_quic as quic;

use super::connection::Connection;
use super::event::Event;
use super::limits::Limits;

/// A response that waits for its client to read.
#[derive(Debug)]
pub(super) struct Writing {
    /// Since when nothing was read.
    since: Instant,
    /// The queued bytes at that time.
    queued: usize,
    /// Its priority among the connection's responses.
    priority: Priority,
    /// Its place among those that also wait for room in the connection as a whole.
    pub place: Option<u64>,
    /// Seconds for which the client may still stay below the minimum rate.
    balance: f64,
    /// Bytes that were read between the last two checks, and since when nothing was read before. `None` if the
    /// queue did not shrink.
    took: Option<(usize, Instant)>,
}

impl Writing {
    pub fn new(queued: usize, priority: Priority, limits: &Limits, now: Instant) -> Self {
        Self {
            since: now,
            queued,
            priority,
            place: None,
            balance: limits.send_rate_grace.as_secs_f64(),
            took: None,
        }
    }

    fn look(&mut self, queued: usize, round: &mut Round, now: Instant) {
        round.share(self.priority, self.queued);
        self.took = None;
        if queued != self.queued {
            if queued < self.queued {
                self.took = Some((self.queued - queued, self.since));
                round.took(self.priority);
            }
            self.since = now;
            self.queued = queued;
            round.taken.note(self.priority, now);
        }
    }

    /// Updates the balance after all responses were checked.
    fn settle(&mut self, round: &Round, limits: &Limits, now: Instant) {
        let Some((bytes, since)) = self.took else {
            return;
        };
        let grace = limits.send_rate_grace.as_secs_f64();
        let since = round
            .before
            .before(self.priority)
            .map_or(since, |it| it.max(since));
        let gap = match round.is_held_back(self.priority) {
            true => Duration::ZERO,
            false => now.saturating_duration_since(since),
        };
        let earned = (bytes * round.sharing(self.priority)) as f64 / limits.send_rate.max(1) as f64;
        self.balance = (self.balance - gap.as_secs_f64().min(grace) + earned).min(grace);
    }

    /// The reason to abandon the response, if there is one. QUIC retransmits data that was sent, or ends the
    /// connection.
    fn is_over(&self, taken: &Taken, limits: &Limits, now: Instant) -> Option<TooSlow> {
        if self.queued == 0 {
            return None;
        }
        let held_back = taken.before(self.priority);
        let since = held_back.map_or(self.since, |until| until.max(self.since));
        if now.saturating_duration_since(since) > limits.send_timeout {
            return Some(TooSlow::Nothing);
        }
        (limits.send_rate > 0 && self.balance < 0.0).then_some(TooSlow::Little)
    }
}

/// Why a response was abandoned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooSlow {
    /// The client read nothing within the time-out.
    Nothing,
    /// The client read less than the minimum rate.
    Little,
}

/// One check of all responses.
struct Round {
    /// When something was read, with and without this check.
    taken: Taken,
    before: Taken,
    /// By urgency: waiting responses, and responses of which something was read since the last check.
    waiting: [usize; URGENCIES],
    takers: [usize; URGENCIES],
}

impl Round {
    fn new(taken: Taken) -> Self {
        Self {
            taken,
            before: taken,
            waiting: [0; URGENCIES],
            takers: [0; URGENCIES],
        }
    }

    fn share(&mut self, priority: Priority, queued: usize) {
        if let Some(count) = self.waiting.get_mut(usize::from(priority.urgency)) {
            *count += usize::from(queued > 0);
        }
    }

    fn took(&mut self, priority: Priority) {
        if let Some(count) = self.takers.get_mut(usize::from(priority.urgency)) {
            *count += 1;
        }
    }

    /// The number of responses that share the client's rate.
    fn sharing(&self, priority: Priority) -> usize {
        let waiting = self.waiting.get(usize::from(priority.urgency));
        waiting.map_or(1, |&count| count.max(1))
    }

    /// True if the client read something of a response that has precedence over one of this priority.
    fn is_held_back(&self, priority: Priority) -> bool {
        let urgency = usize::from(priority.urgency).min(URGENCIES);
        let equals = self.takers.get(urgency).is_some_and(|&count| count > 1);
        self.takers[..urgency].iter().any(|&count| count > 0) || (!priority.incremental && equals)
    }
}

/// When something of a response was last read, by its urgency.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Taken([Option<Instant>; URGENCIES]);

impl Taken {
    pub fn note(&mut self, priority: Priority, now: Instant) {
        if let Some(last) = self.0.get_mut(usize::from(priority.urgency)) {
            *last = Some(now);
        }
    }

    /// When something was last read of a response that has precedence: the more urgent ones and, if they are not
    /// incremental, those of equal urgency.
    fn before(&self, priority: Priority) -> Option<Instant> {
        let equals = usize::from(!priority.incremental);
        let count = (usize::from(priority.urgency) + equals).min(URGENCIES);
        self.0[..count].iter().flatten().max().copied()
    }
}

impl Connection {
    /// The client has read something of a response.
    pub(super) fn note_taken(&mut self, stream_id: u64, now: Instant) {
        let priority = match self.unacknowledged.get(&stream_id) {
            Some(writing) => writing.priority,
            None => self.rank(stream_id),
        };
        self.taken.note(priority, now);
    }

    /// Abandons the responses of which nothing was read for too long, or too little.
    pub(super) fn give_up_stalled(&mut self, quic: &mut quic::Connection, now: Instant) {
        let knows_priorities = self.knows_priorities;
        let mut round = Round::new(self.taken);
        for (&stream_id, exchange) in &mut self.exchanges {
            if let Some(writing) = &mut exchange.writing {
                writing.priority = exchange.wishes.rank(knows_priorities);
                writing.look(quic.send_queue_bytes(stream_id), &mut round, now);
            }
        }
        for (&stream_id, writing) in &mut self.unacknowledged {
            writing.look(quic.send_queue_bytes(stream_id), &mut round, now);
        }
        self.taken = round.taken;
        let (taken, limits) = (&self.taken, &self.limits);
        let over = |(stream_id, writing): (u64, &mut Writing)| {
            writing.settle(&round, limits, now);
            let why = writing.is_over(taken, limits, now)?;
            Some((stream_id, why))
        };
        let waiting = self.exchanges.iter_mut();
        let stalled: Vec<_> = waiting
            .filter_map(|(&stream_id, exchange)| Some((stream_id, exchange.writing.as_mut()?)))
            .filter_map(over)
            .collect();
        let whole = self.unacknowledged.iter_mut();
        let left: Vec<_> = whole
            .map(|(&stream_id, writing)| (stream_id, writing))
            .filter_map(over)
            .collect();
        for &(_, why) in stalled.iter().chain(&left) {
            self.events.push_back(Event::TooSlow(why));
        }
        for (stream_id, _) in stalled {
            self.end_stream(quic, stream_id, Code::H3_REQUEST_CANCELLED, now);
            self.abort(stream_id);
        }
        for (stream_id, _) in left {
            // HTTP/3 has finished with it. A stream that refuses has ended.
            let _ = quic.reset_stream(stream_id, Code::H3_REQUEST_CANCELLED.0);
            self.unacknowledged.remove(&stream_id);
            self.calmed(now);
        }
    }

    /// The priority of a response within its connection.
    pub(super) fn rank(&self, stream_id: u64) -> Priority {
        let wishes = self.exchanges.get(&stream_id).map(|it| it.wishes);
        wishes.unwrap_or_default().rank(self.knows_priorities)
    }
}

/// RFC 9218 section 4.1.
const URGENCIES: usize = 8;
