//! How long written bytes wait for others to leave with.
//!
//! A turn of short callbacks that each write once is best sent with one system call at its end, and several
//! writes of one callback to one stream with one `send`. A turn of long callbacks must not hold its first answer
//! back until the last one is made. So a write is either sent at once or held, by what the clock and the last
//! callbacks say. Held bytes leave when the turn ends or when a callback ends and the hold has become too long:
//!
//! - A write is sent at once if the callbacks since the last send were long ([`LONG_CALLBACK`] each, on
//!   average), if nothing has been sent for [`IDLE`], or if no other callback waits in this turn: that send costs
//!   what the one at the end of the turn would have cost.
//! - It is held all the same while most writes come in pieces (a head, then a body): then it leaves when its
//!   callback ends. A second write of a callback, right behind one that was sent at once, shows this.
//! - Nobody can foresee that a callback computes after it has written. One that did so while its bytes were held
//!   makes the next [`PROMPT_WRITES`] writes leave at once, in pieces or not.
//! - Nothing is held for longer than [`HOLD_MAX`] and the callback that is running then.
//!
//! While bytes are held the clock is read after the first callbacks and then after each fourth. Not here: what is
//! held (`turn::writes`), and the sending.

use std::time::{Duration, Instant};

pub(crate) struct WriteDelay {
    /// When written bytes last left.
    last_sent: Instant,
    /// When they did, or when the loop last woke up: all time since is the callbacks'.
    work_began: Instant,
    /// Callbacks that have ended since then.
    callbacks: u32,
    /// Callbacks that the turn has still to run, the running one included.
    callbacks_left: usize,
    /// The running callback has written, and its bytes left at once.
    has_sent: bool,
    hold: Option<Hold>,
    /// So many writes are sent at once, whatever else holds.
    prompt: u8,
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
}

impl Hold {
    fn is_overdue(&self, now: Instant) -> bool {
        self.is_long(now) || now.saturating_duration_since(self.since) >= HOLD_MAX
    }

    /// Whether the callbacks since then were long.
    fn is_long(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since)
            >= LONG_CALLBACK.saturating_mul(self.callbacks.saturating_add(1))
    }
}

impl WriteDelay {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            // The first write of all is not held.
            last_sent: now.checked_sub(IDLE).unwrap_or(now),
            work_began: now,
            callbacks: 0,
            callbacks_left: 0,
            has_sent: false,
            hold: None,
            prompt: 0,
            in_pieces: 0,
        }
    }

    /// The turn has so many callbacks to run. `woke_up` is when the loop last came out of a sleep.
    pub(crate) fn begin_callbacks(&mut self, count: usize, woke_up: Instant) {
        self.callbacks_left = count;
        if woke_up > self.work_began {
            self.work_began = woke_up;
            self.callbacks = 0;
        }
    }

    /// Whether bytes are held: the next ones go with them, and no clock is asked.
    pub(crate) fn is_holding(&self) -> bool {
        self.hold.is_some()
    }

    /// More was written to a stream whose bytes are held.
    pub(crate) fn add_piece(&mut self) {
        if let Some(hold) = &mut self.hold {
            hold.is_in_pieces |= hold.callbacks == 0;
        }
    }

    /// The running callback does the work of so many more.
    pub(crate) fn count_callbacks(&mut self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.callbacks = self.callbacks.saturating_add(count);
    }

    /// Whether bytes that are written now leave at once; otherwise they are held from now on. To be asked while
    /// nothing is held.
    pub(crate) fn leaves_at_once(&mut self, now: Instant) -> bool {
        let since_sent = now.saturating_duration_since(self.last_sent);
        let is_close = since_sent < LONG_CALLBACK * 2;
        if self.has_sent && is_close {
            self.has_sent = false;
            self.note_pieces(true);
        }
        let work = now.saturating_duration_since(self.work_began);
        let is_quiet = work >= LONG_CALLBACK.saturating_mul(self.callbacks.saturating_add(2))
            || since_sent >= IDLE
            || self.callbacks_left <= 1 && !is_close;
        if self.prompt > 0 {
            self.prompt -= 1;
            return true;
        }
        if is_quiet && self.in_pieces < MANY_IN_PIECES {
            return true;
        }
        self.hold = Some(Hold {
            since: now,
            callbacks: 0,
            is_for_callback: is_quiet,
            is_in_pieces: false,
        });
        false
    }

    /// Bytes that were written left at once.
    pub(crate) fn sent(&mut self, now: Instant) {
        self.has_sent = true;
        self.last_sent = now;
        self.work_began = now;
        self.callbacks = 0;
    }

    /// A callback has ended. True if what is held has to leave now.
    #[inline]
    pub(crate) fn end_callback(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.callbacks = self.callbacks.saturating_add(1);
        self.callbacks_left = self.callbacks_left.saturating_sub(1);
        if self.hold.is_none() && !self.has_sent {
            return false;
        }
        self.is_due(now)
    }

    /// Something as long as a callback has ended, and others follow within the same one.
    pub(crate) fn end_part(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.callbacks_left = self.callbacks_left.saturating_add(1);
        self.end_callback(now)
    }

    fn is_due(&mut self, now: impl FnOnce() -> Instant) -> bool {
        let has_sent = std::mem::take(&mut self.has_sent);
        if let Some(hold) = &mut self.hold {
            hold.callbacks = hold.callbacks.saturating_add(1);
            // The end of the turn sends it, right after the last callback.
            if self.callbacks_left == 0 {
                return false;
            }
            // A long callback shows at the next look.
            let looks = hold.callbacks < LOOKS_EACH || hold.callbacks.is_multiple_of(LOOKS_EACH);
            return hold.is_for_callback || looks && hold.is_overdue(now());
        }
        if has_sent {
            self.note_pieces(false);
        }
        if has_sent && self.prompt > 0 {
            let worked = now().saturating_duration_since(self.last_sent);
            if worked >= LONG_HOLD {
                self.prompt = PROMPT_WRITES;
            }
        }
        false
    }

    /// What was held leaves.
    pub(crate) fn release(&mut self, now: Instant) {
        let Some(hold) = self.hold.take() else {
            return;
        };
        if now.saturating_duration_since(hold.since) >= LONG_HOLD && hold.is_long(now) {
            self.prompt = PROMPT_WRITES;
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
        self.has_sent = false;
        self.callbacks_left = 0;
    }
}

/// A callback of this length is worth a send of its own, which costs about a hundredth of it beyond its share of
/// one at the end of the turn.
const LONG_CALLBACK: Duration = Duration::from_micros(25);
/// A program that has not sent for so long is not busy sending.
const IDLE: Duration = Duration::from_micros(500);
/// Turns of short callbacks that take longer send more than once.
const HOLD_MAX: Duration = Duration::from_micros(500);
/// A callback that has computed for so long, while what it had written was held, has delayed its answer.
const LONG_HOLD: Duration = Duration::from_micros(250);
/// After so many callbacks the clock is read less often, each time that so many have ended.
const LOOKS_EACH: u32 = 4;
const PROMPT_WRITES: u8 = 64;
/// From here on a first write waits for the next ones of its callback.
const MANY_IN_PIECES: u8 = 4;
const IN_PIECES_MAX: u8 = 8;

#[cfg(test)]
mod tests;
