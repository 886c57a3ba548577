//! Finds responses of which the client reads nothing, or too little, and which are therefore abandoned.
//!
//! The time of a response does not count while the client reads another response with precedence over it (RFC 9218
//! section 10). It begins when that reading stops. Not here: room in queues (`response_commands`), and priorities
//! (`response_priority`).
//!
//! The minimum rate is enforced with a balance of seconds for each response. The time between two reads is subtracted.
//! For read bytes, the time that they last at the minimum rate is added. A response whose balance is below zero is
//! abandoned. The balance begins with the grace period and never exceeds it, so that a fast start does not excuse
//! hours of slow reading. One gap between reads subtracts at most the grace period, so that a media player may pause
//! with a full buffer and continue; the time-out limits longer pauses. Responses of equal urgency share the client's
//! rate, so each of them has to reach only a part of it.

use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use uringcore_h3::Priority;

use super::limits::Limits;
use crate::response_errors::TooSlow;

/// The progress of a response that waits for its client to read.
#[derive(Debug)]
pub(crate) struct Writing {
    /// The time since which the client has read nothing.
    since: Instant,
    /// The number of queued bytes at the time `since`.
    queued: usize,
    /// The response's priority among the responses of the connection.
    pub priority: Priority,
    /// The position of the response among those that wait for room in the connection's queues. `None` if the response
    /// waits only for room in its own queue.
    pub place: Option<u64>,
    /// The number of seconds for which the client may still read more slowly than the minimum rate.
    balance: f64,
    /// The bytes that the client read between the last two checks, and the time of its last read before that. `None` if
    /// it read nothing.
    last_read: Option<(usize, Instant)>,
}

impl Writing {
    pub fn new(queued: usize, priority: Priority, limits: &Limits, now: Instant) -> Self {
        Self {
            since: now,
            queued,
            priority,
            place: None,
            balance: limits.send_rate_grace.as_secs_f64(),
            last_read: None,
        }
    }

    fn update(&mut self, queued: usize, round: &mut Round, now: Instant) {
        round.add_sharing(self.priority, self.queued);
        self.last_read = None;
        if queued != self.queued {
            if queued < self.queued {
                self.last_read = Some((self.queued - queued, self.since));
                round.add_reader(self.priority);
            }
            self.since = now;
            self.queued = queued;
            round.taken.note(self.priority, now);
        }
    }

    /// Updates the balance, after all responses have been checked.
    fn settle_balance(&mut self, round: &Round, limits: &Limits, now: Instant) {
        let Some((bytes, since)) = self.last_read else {
            return;
        };
        let grace = limits.send_rate_grace.as_secs_f64();
        let since = round
            .before
            .last_preferred_read(self.priority)
            .map_or(since, |it| it.max(since));
        let gap = match round.is_held_back(self.priority) {
            true => Duration::ZERO,
            false => now.saturating_duration_since(since),
        };
        let earned = (bytes * round.sharing(self.priority)) as f64 / limits.send_rate.max(1) as f64;
        self.balance = (self.balance - gap.as_secs_f64().min(grace) + earned).min(grace);
    }

    /// The reason why the response has to be abandoned now; `None` if it continues. Data that was sent and not yet
    /// acknowledged needs no time-out here, because QUIC or TCP retransmits it or ends the connection.
    fn is_over(&self, taken: &Taken, limits: &Limits, now: Instant) -> Option<TooSlow> {
        if self.queued == 0 {
            return None;
        }
        let held_back = taken.last_preferred_read(self.priority);
        let since = held_back.map_or(self.since, |until| until.max(self.since));
        if now.saturating_duration_since(since) > limits.send_timeout {
            return Some(TooSlow::Nothing);
        }
        (limits.send_rate > 0 && self.balance < 0.0).then_some(TooSlow::Little)
    }
}

/// One pass over all responses that wait for their clients to read.
struct Round {
    /// The times at which the client last read from responses, including reads that this pass has found.
    taken: Taken,
    /// The times of the clients' last reads, as they were before this pass.
    before: Taken,
    /// For each urgency, the number of waiting responses.
    waiting: [usize; URGENCIES],
    /// For each urgency, the number of responses that the client has read from since the last pass.
    readers: [usize; URGENCIES],
}

impl Round {
    fn new(taken: Taken) -> Self {
        Self {
            taken,
            before: taken,
            waiting: [0; URGENCIES],
            readers: [0; URGENCIES],
        }
    }

    fn add_sharing(&mut self, priority: Priority, queued: usize) {
        if let Some(count) = self.waiting.get_mut(usize::from(priority.urgency)) {
            *count += usize::from(queued > 0);
        }
    }

    fn add_reader(&mut self, priority: Priority) {
        if let Some(count) = self.readers.get_mut(usize::from(priority.urgency)) {
            *count += 1;
        }
    }

    /// The number of responses of this urgency, which share the client's rate; at least one.
    fn sharing(&self, priority: Priority) -> usize {
        let waiting = self.waiting.get(usize::from(priority.urgency));
        waiting.map_or(1, |&count| count.max(1))
    }

    /// True if the client has read from a response with precedence over this priority since the last pass.
    fn is_held_back(&self, priority: Priority) -> bool {
        let urgency = usize::from(priority.urgency).min(URGENCIES);
        let equals = self.readers.get(urgency).is_some_and(|&count| count > 1);
        self.readers[..urgency].iter().any(|&count| count > 0) || (!priority.incremental && equals)
    }
}

/// For each urgency, the time at which the client last read from a response.
#[derive(Debug, Default, Clone, Copy)]
struct Taken([Option<Instant>; URGENCIES]);

impl Taken {
    pub fn note(&mut self, priority: Priority, now: Instant) {
        if let Some(last) = self.0.get_mut(usize::from(priority.urgency)) {
            *last = Some(now);
        }
    }

    /// The time of the last read from a response with precedence over this priority: a more urgent one, or one of
    /// equal urgency if the response is not incremental.
    fn last_preferred_read(&self, priority: Priority) -> Option<Instant> {
        let equals = usize::from(!priority.incremental);
        let count = (usize::from(priority.urgency) + equals).min(URGENCIES);
        self.0[..count].iter().flatten().max().copied()
    }
}

/// Finds responses that are read too slowly. The table has the responses that the application has finished; those that
/// it still writes are in the exchanges.
#[derive(Debug, Default)]
pub(crate) struct SlowlyReadResponses {
    /// Responses that are wholly in QUIC's queues and not wholly acknowledged. While there are any, the connection
    /// must not be closed, because the queued data would be lost.
    unacknowledged: FxHashMap<u64, Writing>,
    taken: Taken,
    /// The position that the next response that waits for room in the queues of the connection gets.
    next_place: u64,
}

/// A response of which the client has read nothing, or too little, for too long.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SlowlyRead {
    pub stream_id: u64,
    pub why: TooSlow,
    /// True if the response was wholly in QUIC's queues. `SlowlyReadResponses` no longer tracks it.
    pub is_whole: bool,
}

impl SlowlyReadResponses {
    /// True if all responses were wholly acknowledged.
    pub fn is_empty(&self) -> bool {
        self.unacknowledged.is_empty()
    }

    /// Adds a response that is wholly in QUIC's queues.
    pub fn answered(&mut self, stream_id: u64, writing: Writing) {
        self.unacknowledged.insert(stream_id, writing);
    }

    /// Removes a response that was wholly acknowledged, or will never be.
    pub fn ended(&mut self, stream_id: u64) {
        self.unacknowledged.remove(&stream_id);
    }

    /// Records that the client has read from a response. `rank()` is the priority of a response that the
    /// application still writes.
    pub fn note_read(&mut self, stream_id: u64, rank: impl FnOnce() -> Priority, now: Instant) {
        let priority = match self.unacknowledged.get(&stream_id) {
            Some(writing) => writing.priority,
            None => rank(),
        };
        self.taken.note(priority, now);
    }

    /// Returns a position after all responses that wait for room in the queues of the connection.
    pub fn take_place(&mut self) -> u64 {
        self.next_place += 1;
        self.next_place - 1
    }

    /// Finds responses that are read too slowly. `waiting` are those that the application has not finished. `queued`
    /// returns the number of bytes in a stream's queue.
    pub fn check(
        &mut self,
        waiting: &mut [(u64, &mut Writing)],
        queued: impl Fn(u64) -> usize,
        limits: &Limits,
        now: Instant,
    ) -> Vec<SlowlyRead> {
        let mut round = Round::new(self.taken);
        for (stream_id, writing) in &mut *waiting {
            writing.update(queued(*stream_id), &mut round, now);
        }
        for (&stream_id, writing) in &mut self.unacknowledged {
            writing.update(queued(stream_id), &mut round, now);
        }
        self.taken = round.taken;
        let mut slow = Vec::new();
        let mut settle = |stream_id, writing: &mut Writing, is_whole| {
            writing.settle_balance(&round, limits, now);
            let why = writing.is_over(&round.taken, limits, now);
            slow.extend(why.map(|why| SlowlyRead {
                stream_id,
                why,
                is_whole,
            }));
            why.is_some()
        };
        for (stream_id, writing) in waiting {
            settle(*stream_id, writing, false);
        }
        self.unacknowledged
            .retain(|&stream_id, writing| !settle(stream_id, writing, true));
        slow
    }

    /// Frees unused capacity.
    pub fn free_capacity(&mut self) {
        self.unacknowledged.shrink_to_fit();
    }
}

/// The number of urgencies (RFC 9218 section 4.1).
const URGENCIES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            send_timeout: Duration::from_secs(10),
            send_rate: 0,
            ..Limits::default()
        }
    }

    fn slow(stream_id: u64, is_whole: bool) -> SlowlyRead {
        SlowlyRead {
            stream_id,
            why: TooSlow::Nothing,
            is_whole,
        }
    }

    #[test]
    fn unread_whole_responses_are_reported_once() {
        let (begin, limits) = (Instant::now(), limits());
        let mut responses = SlowlyReadResponses::default();
        let new = || Writing::new(100, Priority::default(), &limits, begin);
        let mut writing = new();
        responses.answered(4, new());
        let after = |seconds| begin + Duration::from_secs(seconds);
        let mut check = |responses: &mut SlowlyReadResponses, queued: usize, now| {
            responses.check(&mut [(0, &mut writing)], |_| queued, &limits, now)
        };
        assert_eq!(check(&mut responses, 100, after(10)), []);
        // The client has read from both responses, so the time of both starts again.
        assert_eq!(check(&mut responses, 50, after(11)), []);
        assert_eq!(check(&mut responses, 50, after(21)), []);
        let both = [slow(0, false), slow(4, true)];
        assert_eq!(check(&mut responses, 50, after(22)), both);
        assert!(responses.is_empty());
        assert_eq!(check(&mut responses, 50, after(23)), [slow(0, false)]);
    }

    #[test]
    fn an_acknowledged_response_is_not_slow() {
        let (begin, limits) = (Instant::now(), limits());
        let mut responses = SlowlyReadResponses::default();
        responses.answered(4, Writing::new(1, Priority::default(), &limits, begin));
        responses.ended(4);
        assert!(responses.is_empty());
        let late = begin + Duration::from_secs(60);
        assert_eq!(responses.check(&mut [], |_| 1, &limits, late), []);
    }

    #[test]
    fn each_waiting_response_gets_the_next_place() {
        let mut responses = SlowlyReadResponses::default();
        assert_eq!([responses.take_place(), responses.take_place()], [0, 1]);
    }
}
