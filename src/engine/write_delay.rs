//! Holds written bytes for a time, so that one system call sends them with others.
//!
//! If a turn has short callbacks that write once each, one system call at its end is best; several writes of one callback
//! to one stream are best sent by one `send`. But a turn of long callbacks must not hold its first answer until the last
//! one is ready. So each write is either sent at once or held, depending on the clock and the last callbacks. Held bytes
//! leave when the turn ends, or when a callback ends and the hold has become too long. The rules:
//!
//! - A write is sent at once if no other callback waits in this turn and the running one has sent nothing yet. That send
//!   costs as much as the one at the end of the turn would, and the clock is not read.
//! - A write is sent at once if the callbacks since the last send were long ([`LONG_CALLBACK`] each, on average). But
//!   while most writes come in pieces (a head, then a body), it is held until its callback ends. A callback that writes
//!   again right after a write that was sent at once is such a case.
//! - If nothing has been sent for [`IDLE`], the next [`FIRST_WRITES`] writes are sent at once, in pieces or not.
//! - A callback may compute after it has written, which no rule can foresee. If it did so while its bytes were held, or
//!   after this rule or the last one sent them, the next [`PROMPT_WRITES`] writes are sent at once, in pieces or not. If
//!   it computed for [`COMPUTING`] or longer, all writes are sent at once for [`PROMPT_TIMES`] as long.
//!   Waiting in a system call counts as computing. Time in which a CPU quota or other processes stop the thread does not,
//!   if another such pause came in the [`SAMPLED_FOR`] before: separate sends would then cost most and gain nothing.
//! - A write to a QUIC connection that begins a hold is held until [`QUIC_SPACING`] after the last send. A write of the
//!   turn's last callback is not held.
//! - Outside of callbacks every write is sent at once, because no end of a callback or turn would send it.
//! - No byte is held longer than [`HOLD_MAX`] and the callback that runs then.
//!
//! While bytes are held, the clock is read when a callback ends. [`Times`] has the durations; an emulator, in which all
//! code is slower, has longer ones. `held_writes` lists the transports and connections with held bytes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use uringcore_io::{ThreadUsage, thread_usage};

use crate::callback_progress::CallbackProgress;

pub(crate) struct WriteDelay {
    times: Times,
    progress: Arc<CallbackProgress>,
    /// The time of the last send. The time of a lone write is set when the turn ends.
    last_sent: Instant,
    /// The time of the last send, or of the loop's last wake-up if that was later. Callbacks have run since.
    work_began: Instant,
    /// The callbacks that had ended by then.
    ended_before: usize,
    /// Parts that the running callback has still to run, the running one included.
    parts_left: usize,
    /// The running callback has written, and its bytes left at once.
    has_sent: bool,
    /// A lone write was sent in this turn without reading the clock.
    is_untimed: bool,
    /// The running callback's bytes were sent at once only because of `prompt` or `prompt_until`.
    is_prompt: bool,
    hold: Option<Hold>,
    /// The number of the next writes that are sent at once, under any other rule.
    prompt: u8,
    /// Until this time every write is sent at once.
    prompt_until: Instant,
    /// Callbacks that wrote in pieces, minus those that wrote once.
    in_pieces: u8,
    sample: Option<Sample>,
    /// Samples are taken until then, because a callback took [`COMPUTING`] or longer not long ago.
    sampled_until: Instant,
    /// Returns the usage of this thread.
    usage: fn() -> Option<ThreadUsage>,
}

/// The usage of the thread at a write whose time was read. It costs system calls, so a sample serves for
/// [`SAMPLE_AGE_MAX`], or until the loop sleeps.
struct Sample {
    at: Instant,
    usage: ThreadUsage,
}

struct Hold {
    since: Instant,
    /// Callbacks that have ended since then.
    callbacks: u32,
    /// The hold lasts until the running callback ends.
    is_for_callback: bool,
    /// The callback that began the hold wrote again to the same stream.
    is_in_pieces: bool,
    /// An earlier send of these bytes is not worth its cost.
    earliest: Instant,
}

impl Hold {
    fn is_overdue(&self, times: &Times, now: Instant) -> bool {
        self.is_long(times, now) && now >= self.earliest
            || now.saturating_duration_since(self.since) >= times.hold_max
    }

    /// True if the callbacks since the hold began were long.
    fn is_long(&self, times: &Times, now: Instant) -> bool {
        now.saturating_duration_since(self.since)
            >= times
                .long_callback
                .saturating_mul(self.callbacks.saturating_add(1))
    }
}

/// The durations below, or a multiple of them.
struct Times {
    long_callback: Duration,
    quic_spacing: Duration,
    idle: Duration,
    hold_max: Duration,
    long_hold: Duration,
    computing: Duration,
    sample_age_max: Duration,
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
            sample_age_max: SAMPLE_AGE_MAX.saturating_mul(factor),
        }
    }
}

impl WriteDelay {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            times: Times::multiplied(1),
            progress: Arc::default(),
            // The first write of all is not held.
            last_sent: now.checked_sub(IDLE).unwrap_or(now),
            work_began: now,
            ended_before: 0,
            parts_left: 0,
            has_sent: false,
            is_untimed: false,
            is_prompt: false,
            hold: None,
            prompt: 0,
            prompt_until: now,
            in_pieces: 0,
            sample: None,
            sampled_until: now,
            usage: thread_usage,
        }
    }

    /// All code takes `factor` times as long as it does on a processor.
    pub(crate) fn slow_down(&mut self, factor: u32) {
        self.times = Times::multiplied(factor);
    }

    /// The progress of the host, which counts its callbacks there.
    pub(crate) fn progress(&self) -> &Arc<CallbackProgress> {
        &self.progress
    }

    /// The loop may have slept; `woke_up` is the time of its last wake-up.
    pub(crate) fn note_wake_up(&mut self, woke_up: Instant) {
        if woke_up > self.work_began {
            self.begin_work(woke_up);
            // The sleep was one of the thread's waits.
            self.sample = None;
        }
    }

    fn begin_work(&mut self, now: Instant) {
        self.work_began = now;
        self.ended_before = self.progress.ended();
    }

    /// Callbacks that have ended since the last send or wake-up.
    fn callbacks(&self) -> u32 {
        let ended = self.progress.ended().wrapping_sub(self.ended_before);
        u32::try_from(ended).unwrap_or(u32::MAX)
    }

    /// True while bytes are held. The next bytes leave with them, and the clock is not read.
    pub(crate) fn is_holding(&self) -> bool {
        self.hold.is_some()
    }

    /// More was written to a stream whose bytes are held.
    pub(crate) fn add_piece(&mut self) {
        if let Some(hold) = &mut self.hold {
            hold.is_in_pieces |= hold.callbacks == 0;
        }
    }

    /// The running callback has `parts` parts, each of which ends like a callback. They handle `events` events; the time
    /// that those took before the first part does not count as a long callback.
    pub(crate) fn begin_parts(&mut self, parts: usize, events: usize) {
        self.parts_left = parts;
        self.progress.count_ended(events);
        // Its end is the end of its parts.
        self.progress.watch(true);
    }

    /// True if bytes written to a transport now are sent at once. Otherwise they are held.
    pub(crate) fn sends(&mut self, now: impl FnOnce() -> Instant) -> bool {
        if self.is_holding() {
            return false;
        }
        self.progress.watch(true);
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

    /// Returns the time if bytes written to a QUIC connection now are sent at once. Otherwise they are held.
    pub(crate) fn sends_quic(&mut self, now: impl FnOnce() -> Instant) -> Option<Instant> {
        if self.is_holding() {
            return None;
        }
        self.progress.watch(true);
        let now = now();
        if self.is_alone() {
            self.note_idle(now, FIRST_WRITES);
            self.prompt = self.prompt.saturating_sub(1);
        } else if !self.leaves_at_once(now, self.times.quic_spacing) {
            return None;
        }
        self.sent(now);
        Some(now)
    }

    /// True if nothing else in the turn would share a send with bytes written now.
    fn is_alone(&self) -> bool {
        self.progress.remaining() == 0
            || self.is_last() && !self.has_sent && self.in_pieces < MANY_IN_PIECES
    }

    /// Sends within a turn are `spacing` apart.
    fn leaves_at_once(&mut self, now: Instant, spacing: Duration) -> bool {
        if self.progress.remaining() == 0 {
            return true;
        }
        self.take_sample(now);
        let work = now.saturating_duration_since(self.work_began);
        let callbacks = self.callbacks().saturating_add(2);
        // The time of a lone write is not known; then the work was done before it.
        let is_behind_lone = self.is_untimed && self.has_sent;
        let is_long = !is_behind_lone && work >= self.times.long_callback.saturating_mul(callbacks);
        let is_next_piece = std::mem::take(&mut self.has_sent) && !is_long;
        if is_next_piece {
            self.note_pieces(true);
        }
        // A lone write before this one already counted as the first.
        let since_sent = self.note_idle(now, FIRST_WRITES - u8::from(self.is_untimed));
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

    /// If nothing was sent for a while, the next `writes` are sent at once. Returns the time since the last send.
    fn note_idle(&mut self, now: Instant, writes: u8) -> Duration {
        let since_sent = now.saturating_duration_since(self.last_sent);
        if since_sent >= self.times.idle {
            self.prompt = self.prompt.max(writes);
        }
        since_sent
    }

    /// Written bytes are sent at once.
    fn sent(&mut self, now: Instant) {
        self.has_sent = true;
        self.is_untimed = false;
        self.last_sent = now;
        self.begin_work(now);
    }

    /// True if neither another callback of the turn waits nor another part of the running one.
    fn is_last(&self) -> bool {
        self.progress.remaining() <= 1 && self.parts_left <= 1
    }

    /// A callback that was watched has ended, and the host has counted it. True if held bytes have to be sent now.
    pub(crate) fn end_callback(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.parts_left = 0;
        let is_due = self.is_due(self.progress.remaining() == 0, now);
        self.progress.watch(self.is_holding());
        is_due
    }

    /// A part of the running callback has ended. Another part follows, or the end of the callback.
    pub(crate) fn end_part(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.progress.count_ended(1);
        let is_due = self.is_due(self.is_last(), now);
        self.parts_left = self.parts_left.saturating_sub(1);
        is_due
    }

    fn is_due(&mut self, is_last: bool, now: impl FnOnce() -> Instant) -> bool {
        let has_sent = std::mem::take(&mut self.has_sent);
        let was_prompt = std::mem::take(&mut self.is_prompt);
        if let Some(hold) = &mut self.hold {
            hold.callbacks = hold.callbacks.saturating_add(1);
            // The end of the turn, right after the last callback, sends held bytes.
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
        if computed < self.times.computing {
            return;
        }
        if !self.was_stopped(since, computed) {
            let prompt = computed.saturating_mul(PROMPT_TIMES).min(PROMPT_MAX);
            self.prompt_until = self.prompt_until.max(now + prompt);
        }
        self.sampled_until = now + SAMPLED_FOR;
    }

    fn take_sample(&mut self, now: Instant) {
        let age_max = self.times.sample_age_max;
        let is_old = |sample: &Sample| now.saturating_duration_since(sample.at) >= age_max;
        if now < self.sampled_until && self.sample.as_ref().is_none_or(is_old) {
            self.sample = (self.usage)().map(|usage| Sample { at: now, usage });
        }
    }

    /// True if the thread was ready to run for `time` after `since`, and did not run for most of it. The sample was taken
    /// [`SAMPLE_AGE_MAX`] before `since` at most; without one the answer is no.
    fn was_stopped(&self, since: Instant, time: Duration) -> bool {
        let age_max = self.times.sample_age_max;
        let is_fresh = |sample: &&Sample| since.saturating_duration_since(sample.at) <= age_max;
        let Some(before) = self.sample.as_ref().filter(is_fresh) else {
            return false;
        };
        let Some(now) = (self.usage)() else {
            return false;
        };
        let used = now.processor.saturating_sub(before.usage.processor);
        now.waits == before.usage.waits && used < time / 2
    }

    /// Held bytes are sent.
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
        self.begin_work(now);
    }

    fn note_pieces(&mut self, is_in_pieces: bool) {
        self.in_pieces = match is_in_pieces {
            true => (self.in_pieces + 1).min(IN_PIECES_MAX),
            false => self.in_pieces.saturating_sub(1),
        };
    }

    /// The turn has ended, and nothing is held.
    pub(crate) fn end_turn(&mut self) {
        if std::mem::take(&mut self.is_untimed) {
            // The earliest possible time of the last send.
            self.last_sent = self.work_began;
        }
        self.has_sent = false;
        self.is_prompt = false;
        self.parts_left = 0;
        self.progress.begin(0);
        self.progress.watch(false);
    }
}

/// A callback of this length is worth its own send, which costs about a hundredth of it more than a share of the send at
/// the end of the turn.
const LONG_CALLBACK: Duration = Duration::from_micros(25);
/// The shortest time between datagrams that a turn sends before its end. The streams of a QUIC connection share packets,
/// and a datagram costs its sender and its receiver several microseconds.
const QUIC_SPACING: Duration = Duration::from_micros(100);
/// A program that has not sent for this time is not busy sending.
const IDLE: Duration = Duration::from_micros(500);
/// The longest hold. A longer turn of short callbacks sends more than once.
const HOLD_MAX: Duration = Duration::from_micros(500);
/// A callback that computed for this time while its bytes were held has delayed its answer.
const LONG_HOLD: Duration = Duration::from_micros(250);
const PROMPT_WRITES: u8 = 64;
/// The program computes after its writes from time to time, and loses little by separate sends.
const COMPUTING: Duration = Duration::from_millis(10);
/// A tenth of that, so that the usage before the computing does not count much.
const SAMPLE_AGE_MAX: Duration = Duration::from_millis(1);
const PROMPT_TIMES: u32 = 10;
const PROMPT_MAX: Duration = Duration::from_secs(10);
/// Longer than [`PROMPT_MAX`]. A process below a quota is stopped in each period of the quota, a tenth of a second.
const SAMPLED_FOR: Duration = Duration::from_secs(20);
/// A head and its body.
const FIRST_WRITES: u8 = 2;
/// From this number on a first write waits for the next ones of its callback.
const MANY_IN_PIECES: u8 = 4;
const IN_PIECES_MAX: u8 = 8;

#[cfg(test)]
mod tests;
