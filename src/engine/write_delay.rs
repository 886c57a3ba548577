//! How long written bytes wait for others to leave with.
//!
//! A turn of short callbacks that each write once is best sent with one system call at its end, and several
//! writes of one callback to one stream with one `send`. A turn of long callbacks must not hold its first answer
//! back until the last one is made. So a write is either sent at once or held, by what the clock and the last
//! callbacks say. Held bytes leave when the turn ends or when a callback ends and the hold has become too long:
//!
//! - A write is sent at once if no other callback waits in this turn and this one has sent nothing yet: that send
//!   costs what the one at the end of the turn would have cost, and the clock is not read.
//! - A write is sent at once if the callbacks since the last send were long ([`LONG_CALLBACK`] each, on average).
//! - It is held all the same while most writes come in pieces (a head, then a body): then it leaves when its
//!   callback ends. A second write of a callback, right behind one that was sent at once, shows this.
//! - When nothing has been sent for [`IDLE`], the next [`FIRST_WRITES`] writes are sent at once, in pieces or not.
//! - Nobody can foresee that a callback computes after it has written. If it did so while its bytes were held, or
//!   after this rule or the last one sent them, the next [`PROMPT_WRITES`] writes are sent at once, in pieces or not.
//!   If it computed for [`COMPUTING`] or longer, so are all writes for [`PROMPT_TIMES`] as long.
//! - A write to a QUIC connection that begins a hold stays held for [`QUIC_SPACING`] after the last send, and one of
//!   the turn's last callback is not held.
//! - Outside of callbacks every write is sent at once, for no callback's end and no turn's would send it.
//! - Nothing is held for longer than [`HOLD_MAX`] and the callback that is running then.
//!
//! While bytes are held, the clock is read when a callback ends. [`Times`] has these durations; an emulator, in which
//! all code is slower, has longer ones. Not here: what is held (`turn::writes`), and the sending.

use std::time::{Duration, Instant};

pub(crate) struct WriteDelay {
    times: Times,
    /// When written bytes last left; those of a lone write are noted when the turn ends.
    last_sent: Instant,
    /// When they did, or when the loop last woke up: all time since is the callbacks'.
    work_began: Instant,
    /// Callbacks that have ended since then.
    callbacks: u32,
    /// Callbacks that the turn has still to run, the running one included. None: nobody ends one.
    callbacks_left: usize,
    /// Parts that the running callback has still to run, the running one included.
    parts_left: usize,
    /// The running callback has written, and its bytes left at once.
    has_sent: bool,
    /// A lone write has left in this turn, and the clock was not read for it.
    is_untimed: bool,
    /// The running callback's bytes left at once only because of `prompt` or `prompt_until`.
    is_prompt: bool,
    hold: Option<Hold>,
    /// So many writes are sent at once, whatever else holds.
    prompt: u8,
    /// Until then every write is.
    prompt_until: Instant,
    /// Callbacks that wrote in pieces, less those that wrote once.
    in_pieces: u8,
}

struct Hold {
    since: Instant,
    /// Callbacks that have ended since then.
    callbacks: u32,
    /// Only until the running callback ends.
    is_for_callback: bool,
    /// The callback that began it wrote more to the same stream.
    is_in_pieces: bool,
    /// A send of these bytes is not worth its cost before.
    earliest: Instant,
}

impl Hold {
    fn is_overdue(&self, times: &Times, now: Instant) -> bool {
        self.is_long(times, now) && now >= self.earliest
            || now.saturating_duration_since(self.since) >= times.hold_max
    }

    /// True if the callbacks since then were long.
    fn is_long(&self, times: &Times, now: Instant) -> bool {
        now.saturating_duration_since(self.since)
            >= times
                .long_callback
                .saturating_mul(self.callbacks.saturating_add(1))
    }
}

/// The constants below, or a multiple of them.
struct Times {
    long_callback: Duration,
    quic_spacing: Duration,
    idle: Duration,
    hold_max: Duration,
    long_hold: Duration,
    computing: Duration,
}

impl Times {
    fn multiplied(factor: u32) -> Self {
        Self {
            long_callback: LONG_CALLBACK.saturating_mul(factor),
            quic_spacing: QUIC_SPACING.saturating_mul(factor),
            idle: IDLE.saturating_mul(factor),
            hold_max: HOLD_MAX.saturating_mul(factor),
            long_hold: LONG_HOLD.saturating_mul(factor),
            computing: COMPUTING.saturating_mul(factor),
        }
    }
}

impl WriteDelay {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            times: Times::multiplied(1),
            // The first write of all is not held.
            last_sent: now.checked_sub(IDLE).unwrap_or(now),
            work_began: now,
            callbacks: 0,
            callbacks_left: 0,
            parts_left: 0,
            has_sent: false,
            is_untimed: false,
            is_prompt: false,
            hold: None,
            prompt: 0,
            prompt_until: now,
            in_pieces: 0,
        }
    }

    /// All code takes `factor` times as long as it does on a processor.
    pub(crate) fn slow_down(&mut self, factor: u32) {
        self.times = Times::multiplied(factor);
    }

    /// The turn has so many callbacks to run. `woke_up` is when the loop last came out of a sleep.
    pub(crate) fn begin_callbacks(&mut self, count: usize, woke_up: Instant) {
        self.callbacks_left = count;
        if woke_up > self.work_began {
            self.work_began = woke_up;
            self.callbacks = 0;
        }
    }

    /// True while bytes are held: the next ones leave with them, and the clock is not read.
    pub(crate) fn is_holding(&self) -> bool {
        self.hold.is_some()
    }

    /// More was written to a stream whose bytes are held.
    pub(crate) fn add_piece(&mut self) {
        if let Some(hold) = &mut self.hold {
            hold.is_in_pieces |= hold.callbacks == 0;
        }
    }

    /// The running callback has so many parts, each of which ends like a callback. They handle so many events, whose
    /// cost before the first part is not that of a long callback.
    pub(crate) fn begin_parts(&mut self, parts: usize, events: usize) {
        self.parts_left = parts;
        let events = u32::try_from(events).unwrap_or(u32::MAX);
        self.callbacks = self.callbacks.saturating_add(events);
    }

    /// True if bytes that are written to a transport now leave at once; otherwise they are held.
    pub(crate) fn sends(&mut self, now: impl FnOnce() -> Instant) -> bool {
        if self.is_holding() {
            return false;
        }
        if self.is_alone() {
            self.has_sent = true;
            self.is_untimed = true;
            self.prompt = self.prompt.saturating_sub(1);
            return true;
        }
        let now = now();
        let leaves = self.leaves_at_once(now, Duration::ZERO);
        if leaves {
            self.sent(now);
        }
        leaves
    }

    /// The time, if what is written to a QUIC connection now leaves at once; otherwise it is held.
    pub(crate) fn sends_quic(&mut self, now: impl FnOnce() -> Instant) -> Option<Instant> {
        if self.is_holding() {
            return None;
        }
        let now = now();
        if !self.leaves_at_once(now, self.times.quic_spacing) {
            return None;
        }
        self.sent(now);
        Some(now)
    }

    /// True if nothing else in the turn would share a send with bytes that are written now.
    fn is_alone(&self) -> bool {
        self.callbacks_left == 0
            || self.is_last() && !self.has_sent && self.in_pieces < MANY_IN_PIECES
    }

    /// Sends within a turn are `spacing` apart.
    fn leaves_at_once(&mut self, now: Instant, spacing: Duration) -> bool {
        if self.callbacks_left == 0 {
            return true;
        }
        let work = now.saturating_duration_since(self.work_began);
        let callbacks = self.callbacks.saturating_add(2);
        // Behind a lone write, whose time was not read, the work was done before it.
        let is_behind_lone = self.is_untimed && self.has_sent;
        let is_long = !is_behind_lone && work >= self.times.long_callback.saturating_mul(callbacks);
        let is_next_piece = std::mem::take(&mut self.has_sent) && !is_long;
        if is_next_piece {
            self.note_pieces(true);
        }
        let since_sent = now.saturating_duration_since(self.last_sent);
        if since_sent >= self.times.idle {
            // A lone write in front of this one was the first.
            let writes = FIRST_WRITES - u8::from(self.is_untimed);
            self.prompt = self.prompt.max(writes);
        }
        // The send at the end of the turn would cost no less.
        let is_spaced = since_sent >= spacing || self.is_last();
        if (self.prompt > 0 || now < self.prompt_until) && is_spaced {
            self.prompt = self.prompt.saturating_sub(1);
            self.is_prompt = true;
            return true;
        }
        let is_quiet = is_spaced && (is_long || self.is_last() && !is_next_piece);
        if is_quiet && self.in_pieces < MANY_IN_PIECES {
            return true;
        }
        self.hold = Some(Hold {
            since: now,
            callbacks: 0,
            is_for_callback: is_quiet,
            is_in_pieces: false,
            earliest: self.last_sent + spacing,
        });
        false
    }

    /// Bytes that were written leave at once.
    fn sent(&mut self, now: Instant) {
        self.has_sent = true;
        self.is_untimed = false;
        self.last_sent = now;
        self.work_began = now;
        self.callbacks = 0;
    }

    /// No other callback of the turn waits, nor a part of this one.
    fn is_last(&self) -> bool {
        self.callbacks_left <= 1 && self.parts_left <= 1
    }

    /// A callback has ended, and the turn has so many left: turns that ran inside it have counted their own. True
    /// if what is held has to leave now.
    #[inline]
    pub(crate) fn end_callback(&mut self, left: usize, now: impl FnOnce() -> Instant) -> bool {
        let is_due = self.end_one(left == 0, now);
        self.callbacks_left = left;
        self.parts_left = 0;
        is_due
    }

    /// A part of the running callback has ended. The callback's other parts follow, or its end.
    pub(crate) fn end_part(&mut self, now: impl FnOnce() -> Instant) -> bool {
        let is_due = self.end_one(self.is_last(), now);
        self.parts_left = self.parts_left.saturating_sub(1);
        is_due
    }

    #[inline]
    fn end_one(&mut self, is_last: bool, now: impl FnOnce() -> Instant) -> bool {
        self.callbacks = self.callbacks.saturating_add(1);
        if self.hold.is_none() && !self.has_sent {
            return false;
        }
        self.is_due(is_last, now)
    }

    fn is_due(&mut self, is_last: bool, now: impl FnOnce() -> Instant) -> bool {
        let has_sent = std::mem::take(&mut self.has_sent);
        let was_prompt = std::mem::take(&mut self.is_prompt);
        if let Some(hold) = &mut self.hold {
            hold.callbacks = hold.callbacks.saturating_add(1);
            // The end of the turn sends what is held, right after the last callback.
            return !is_last && (hold.is_for_callback || hold.is_overdue(&self.times, now()));
        }
        if has_sent {
            self.note_pieces(false);
        }
        if has_sent && was_prompt {
            self.note_computing(self.last_sent, now());
        }
        false
    }

    /// The callback that wrote at `since` has ended.
    fn note_computing(&mut self, since: Instant, now: Instant) {
        let computed = now.saturating_duration_since(since);
        if computed >= self.times.long_hold {
            self.prompt = PROMPT_WRITES;
        }
        if computed >= self.times.computing {
            let prompt = computed.saturating_mul(PROMPT_TIMES).min(PROMPT_MAX);
            self.prompt_until = self.prompt_until.max(now + prompt);
        }
    }

    /// What was held leaves.
    pub(crate) fn release(&mut self, now: Instant) {
        let Some(hold) = self.hold.take() else {
            return;
        };
        if hold.is_long(&self.times, now) {
            self.note_computing(hold.since, now);
        }
        if hold.is_for_callback {
            self.note_pieces(hold.is_in_pieces);
        }
        self.last_sent = now;
        self.work_began = now;
        self.callbacks = 0;
    }

    fn note_pieces(&mut self, is_in_pieces: bool) {
        self.in_pieces = match is_in_pieces {
            true => (self.in_pieces + 1).min(IN_PIECES_MAX),
            false => self.in_pieces.saturating_sub(1),
        };
    }

    /// The turn is over, and nothing is held.
    pub(crate) fn end_turn(&mut self) {
        if std::mem::take(&mut self.is_untimed) {
            // At the earliest.
            self.last_sent = self.work_began;
        }
        self.has_sent = false;
        self.is_prompt = false;
        self.callbacks_left = 0;
        self.parts_left = 0;
    }
}

/// A callback of this length is worth a send of its own, which costs about a hundredth of it beyond its share of
/// one at the end of the turn.
const LONG_CALLBACK: Duration = Duration::from_micros(25);
/// The streams of a QUIC connection share packets, and a datagram costs its sender and its receiver several
/// microseconds: those that a turn sends before its end are so far apart.
const QUIC_SPACING: Duration = Duration::from_micros(100);
/// A program that has not sent for so long is not busy sending.
const IDLE: Duration = Duration::from_micros(500);
/// Turns of short callbacks that take longer send more than once.
const HOLD_MAX: Duration = Duration::from_micros(500);
/// A callback that has computed for so long, while what it had written was held, has delayed its answer.
const LONG_HOLD: Duration = Duration::from_micros(250);
const PROMPT_WRITES: u8 = 64;
/// Longer than a process usually waits for its processor, so the program computes behind its writes now and then. It
/// loses little by sends of their own. A process that a CPU quota stops for so long looks the same.
const COMPUTING: Duration = Duration::from_millis(10);
const PROMPT_TIMES: u32 = 10;
const PROMPT_MAX: Duration = Duration::from_secs(10);
/// A head and its body.
const FIRST_WRITES: u8 = 2;
/// From here on a first write waits for the next ones of its callback.
const MANY_IN_PIECES: u8 = 4;
const IN_PIECES_MAX: u8 = 8;

#[cfg(test)]
mod tests;
