//! Responses of which their client reads nothing, or too little: the times at which they stalled and are
//! abandoned.
//!
//! A response that waits while its client reads one with precedence (RFC 9218 section 10) is not stalled: its
//! time begins when that one stops. Not here: room in queues (`responses`), and precedence (`response_priority`).
//!
//! The minimum rate is enforced by a balance of time for each response. A gap between two reads costs its
//! length, and bytes that were read earn the time that they last at the minimum rate. A balance below zero
//! abandons the response. A response begins with the grace period and never has more than that, so a fast
//! start does not pay for hours. A gap costs at most the grace period, so a player that pauses with a full
//! buffer and then continues keeps its response; the time-out ends longer pauses. Responses of one urgency
//! share the client's rate, so each has to reach a part of it.

use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use uringcore_h3::Priority;

use super::limits::Limits;

/// A response that waits for its client to read.
#[derive(Debug)]
pub(super) struct Writing {
    /// Since when nothing was read.
    since: Instant,
    /// The queued bytes at that time.
    queued: usize,
    /// The response's priority among those of the connection.
    pub priority: Priority,
    /// The response's place among those that also wait for room in the connection as a whole.
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

    fn update(&mut self, queued: usize, round: &mut Round, now: Instant) {
        round.add_sharing(self.priority, self.queued);
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
    fn settle_balance(&mut self, round: &Round, limits: &Limits, now: Instant) {
        let Some((bytes, since)) = self.took else {
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

    /// The reason to abandon the response, if there is one. QUIC retransmits data that was sent, or ends the
    /// connection.
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
    /// Indexed by urgency: the number of waiting responses, and of responses that were read from since the
    /// last check.
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

    fn add_sharing(&mut self, priority: Priority, queued: usize) {
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
struct Taken([Option<Instant>; URGENCIES]);

impl Taken {
    pub fn note(&mut self, priority: Priority, now: Instant) {
        if let Some(last) = self.0.get_mut(usize::from(priority.urgency)) {
            *last = Some(now);
        }
    }

    /// The time of the last read from a response that has precedence: a more urgent one or, if the response
    /// is not incremental, one of equal urgency.
    fn last_preferred_read(&self, priority: Priority) -> Option<Instant> {
        let equals = usize::from(!priority.incremental);
        let count = (usize::from(priority.urgency) + equals).min(URGENCIES);
        self.0[..count].iter().flatten().max().copied()
    }
}

/// Responses that wait for their client to read, apart from those that also wait for the host.
#[derive(Debug, Default)]
pub(super) struct StalledResponses {
    /// Responses that are wholly in QUIC's queues and not wholly acknowledged. Closing the connection earlier would
    /// drop the queued data.
    unacknowledged: FxHashMap<u64, Writing>,
    taken: Taken,
    /// The place of the next response that waits for room in the connection as a whole.
    next_place: u64,
}

/// A response of which nothing was read for too long, or too little.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stalled {
    pub stream_id: u64,
    pub why: TooSlow,
    /// It was wholly in QUIC's queues, and is forgotten here.
    pub is_whole: bool,
}

impl StalledResponses {
    /// True if all responses were acknowledged.
    pub fn is_empty(&self) -> bool {
        self.unacknowledged.is_empty()
    }

    /// A response is wholly in QUIC's queues.
    pub fn answered(&mut self, stream_id: u64, writing: Writing) {
        self.unacknowledged.insert(stream_id, writing);
    }

    /// A response was wholly acknowledged, or will never be.
    pub fn ended(&mut self, stream_id: u64) {
        self.unacknowledged.remove(&stream_id);
    }

    /// The client has read something of a response, whose priority is `rank()` while its host still writes it.
    pub fn note_read(&mut self, stream_id: u64, rank: impl FnOnce() -> Priority, now: Instant) {
        let priority = match self.unacknowledged.get(&stream_id) {
            Some(writing) => writing.priority,
            None => rank(),
        };
        self.taken.note(priority, now);
    }

    /// A place behind all responses that wait for room in the connection as a whole.
    pub fn take_place(&mut self) -> u64 {
        self.next_place += 1;
        self.next_place - 1
    }

    /// Finds the responses of which nothing was read for too long, or too little. `waiting`: those whose hosts wait.
    /// `queued` returns the bytes in a stream's queue.
    pub fn check(
        &mut self,
        waiting: &mut [(u64, &mut Writing)],
        queued: impl Fn(u64) -> usize,
        limits: &Limits,
        now: Instant,
    ) -> Vec<Stalled> {
        let mut round = Round::new(self.taken);
        for (stream_id, writing) in &mut *waiting {
            writing.update(queued(*stream_id), &mut round, now);
        }
        for (&stream_id, writing) in &mut self.unacknowledged {
            writing.update(queued(stream_id), &mut round, now);
        }
        self.taken = round.taken;
        let mut stalled = Vec::new();
        let mut settle = |stream_id, writing: &mut Writing, is_whole| {
            writing.settle_balance(&round, limits, now);
            let why = writing.is_over(&round.taken, limits, now);
            stalled.extend(why.map(|why| Stalled {
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
        stalled
    }

    /// Frees unused capacity.
    pub fn free_capacity(&mut self) {
        self.unacknowledged.shrink_to_fit();
    }
}

/// RFC 9218 section 4.1.
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

    fn stalled(stream_id: u64, is_whole: bool) -> Stalled {
        Stalled {
            stream_id,
            why: TooSlow::Nothing,
            is_whole,
        }
    }

    #[test]
    fn unread_whole_responses_are_reported_once() {
        let (begin, limits) = (Instant::now(), limits());
        let mut stalls = StalledResponses::default();
        let new = || Writing::new(100, Priority::default(), &limits, begin);
        let mut writing = new();
        stalls.answered(4, new());
        let after = |seconds| begin + Duration::from_secs(seconds);
        let mut check = |stalls: &mut StalledResponses, queued: usize, now| {
            stalls.check(&mut [(0, &mut writing)], |_| queued, &limits, now)
        };
        assert_eq!(check(&mut stalls, 100, after(10)), []);
        // Something of both was read, so their time begins again.
        assert_eq!(check(&mut stalls, 50, after(11)), []);
        assert_eq!(check(&mut stalls, 50, after(21)), []);
        let both = [stalled(0, false), stalled(4, true)];
        assert_eq!(check(&mut stalls, 50, after(22)), both);
        assert!(stalls.is_empty());
        assert_eq!(check(&mut stalls, 50, after(23)), [stalled(0, false)]);
    }

    #[test]
    fn an_acknowledged_response_is_not_stalled() {
        let (begin, limits) = (Instant::now(), limits());
        let mut stalls = StalledResponses::default();
        stalls.answered(4, Writing::new(1, Priority::default(), &limits, begin));
        stalls.ended(4);
        assert!(stalls.is_empty());
        let late = begin + Duration::from_secs(60);
        assert_eq!(stalls.check(&mut [], |_| 1, &limits, late), []);
    }

    #[test]
    fn each_waiting_response_gets_the_next_place() {
        let mut stalls = StalledResponses::default();
        assert_eq!([stalls.take_place(), stalls.take_place()], [0, 1]);
    }
}
