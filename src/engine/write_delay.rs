//! Decides if written bytes are sent at once, or held for a short time so that one system call sends them with others.
//!
//! If a loop iteration has short callbacks that write once each, one system call at the end of the loop iteration is
//! best. Several writes of one callback to one stream are best sent by one `send`. But a loop iteration of long
//! callbacks must not hold its first answer until the last one is ready. So each write is sent at once or held,
//! depending on the clock and the last callbacks. Held bytes are sent when the loop iteration ends, or earlier, when a
//! callback ends and the hold has lasted too long. The rules:
//!
//! - A write is sent at once if no other callback waits in this loop iteration, and the running one has sent nothing
//!   yet. This send costs as much as one at the end of the loop iteration, and the clock is not read.
//! - A write is sent at once if the callbacks since the last send were long ([`LONG_CALLBACK`] each, on average). But
//!   while most callbacks write in pieces (a head, then a body), the write is held until its callback ends. A callback
//!   writes in pieces if it writes again right after a write that was sent at once.
//! - If nothing was sent for [`IDLE`], the next [`FIRST_WRITES`] writes are sent at once, in pieces or not.
//! - A callback may compute after it has written, which cannot be foreseen. If it has computed while its bytes were
//!   held, or after bytes that only this rule or the one before sent at once, then the next [`PROMPT_WRITES`] writes
//!   are sent at once, in pieces or not. If it computed for [`COMPUTING`] or longer, all writes are sent at once for
//!   [`PROMPT_TIMES`] as long. Waiting in a system call counts as computing. Time in which a CPU quota or other
//!   processes stop the thread does not count, if another such pause came in the [`SAMPLED_FOR`] before: separate sends
//!   would then cost most and gain nothing.
//! - A write to a QUIC connection that begins a hold is held until [`QUIC_SPACING`] after the last send. A write of
//!   the last callback of the loop iteration is not held.
//! - Outside of callbacks every write is sent at once, because no end of a callback or loop iteration would send it.
//! - No byte is held longer than [`HOLD_MAX`] and the callback that runs then.
//!
//! While bytes are held, the clock is read when a callback ends. [`Times`] has the durations. In an emulator, in which
//! all code is slower, they are longer. `held_writes` lists the transports and connections with held bytes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use uringcore_io::{ThreadUsage, thread_usage};

use crate::callback_progress::CallbackProgress;

pub(crate) struct WriteDelay {
    times: Times,
    progress: Arc<CallbackProgress>,
    /// The time of the last send. If that was a write whose time was not read, it is set at the end of the loop
    /// iteration.
    last_sent: Instant,
    /// The time of the last send, or of the loop's last wake-up if that was later. Since then only callbacks have run.
    work_began: Instant,
    /// The number of callbacks that had ended at `work_began`.
    ended_before: usize,
    /// The number of parts that the running callback has not ended yet, including the part that runs.
    parts_left: usize,
    /// True if the running callback has written and its bytes were sent at once.
    has_sent: bool,
    /// True if a write was sent at once in this loop iteration without reading the clock.
    is_untimed: bool,
    /// True if the bytes of the running callback were sent at once only because of `prompt` or `prompt_until`.
    is_prompt: bool,
    hold: Option<Hold>,
    /// The number of further writes that are sent at once, whatever the other rules say.
    prompt: u8,
    /// Until this time every write is sent at once.
    prompt_until: Instant,
    /// A count that rises with each callback that writes in pieces, and falls with each that writes once.
    in_pieces: u8,
    sample: Option<Sample>,
    /// Until this time samples of the thread's usage are taken, because a callback has taken [`COMPUTING`] or longer
    /// recently.
    sampled_until: Instant,
    /// Returns the processor time and the waits of this thread.
    usage: fn() -> Option<ThreadUsage>,
}

/// The usage of the thread at a write whose time was read. Sampling costs system calls, so a sample is used for
/// [`SAMPLE_AGE_MAX`], or until the loop sleeps.
struct Sample {
    at: Instant,
    usage: ThreadUsage,
}

struct Hold {
    since: Instant,
    /// The number of callbacks that have ended since the hold began.
    callbacks: u32,
    /// True if the bytes are held until the running callback ends.
    is_for_callback: bool,
    /// True if the callback that began the hold has written again to the same stream.
    is_in_pieces: bool,
    /// The earliest time for a send: before it, a send of these bytes is not worth its cost.
    earliest: Instant,
}

impl Hold {
    fn is_overdue(&self, times: &Times, now: Instant) -> bool {
        self.is_long(times, now) && now >= self.earliest
            || now.saturating_duration_since(self.since) >= times.hold_max
    }

    /// True if the callbacks since the hold began were long ones, on average.
    fn is_long(&self, times: &Times, now: Instant) -> bool {
        now.saturating_duration_since(self.since)
            >= times.long_callback.saturating_mul(self.callbacks.max(1))
    }
}

/// The constants below, multiplied if a test slows the clock down.
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
            // The last send counts as long ago, so that the very first write is not held.
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

    /// Multiplies all durations by `factor`, for an emulator in which all code takes `factor` times as long.
    pub(crate) fn slow_down(&mut self, factor: u32) {
        self.times = Times::multiplied(factor);
    }

    /// The counts of callbacks that the host and this object share.
    pub(crate) fn progress(&self) -> &Arc<CallbackProgress> {
        &self.progress
    }

    /// Called when the loop may have slept; `woke_up` is the time of its last wake-up.
    pub(crate) fn note_wake_up(&mut self, woke_up: Instant) {
        if woke_up > self.work_began {
            self.begin_work(woke_up);
            // The thread has waited without using the processor, so the sample would be wrong.
            self.sample = None;
        }
    }

    fn begin_work(&mut self, now: Instant) {
        self.work_began = now;
        self.ended_before = self.progress.ended();
    }

    /// The number of callbacks that have ended since the last send or wake-up.
    fn callbacks(&self) -> u32 {
        let ended = self.progress.ended().wrapping_sub(self.ended_before);
        u32::try_from(ended).unwrap_or(u32::MAX)
    }

    /// True while bytes are held. Further bytes are held with them without reading the clock.
    pub(crate) fn is_holding(&self) -> bool {
        self.hold.is_some()
    }

    /// Called when more is written to a stream whose bytes are held.
    pub(crate) fn add_piece(&mut self) {
        if let Some(hold) = &mut self.hold {
            hold.is_in_pieces |= hold.callbacks == 0;
        }
    }

    /// Begins a callback that handles `events` events in `parts` parts. The end of each part counts like the end of a
    /// callback. The time for receiving these events, before the first part, does not make the callback a long one.
    pub(crate) fn begin_parts(&mut self, parts: usize, events: usize) {
        self.parts_left = parts;
        self.progress.count_ended(events);
        // The end of the callback is the end of its last part.
        self.progress.watch(true);
    }

    /// Returns true if bytes that a transport's producer writes now are sent at once, and false if they are held.
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

    /// Returns the present time if bytes that are written to a QUIC connection now are sent at once. `None` if they are
    /// held.
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

    /// True if no other write of this loop iteration could share a send with bytes written now.
    fn is_alone(&self) -> bool {
        self.progress.remaining() == 0
            || self.is_last() && !self.has_sent && self.in_pieces < MANY_IN_PIECES
    }

    /// True if bytes written now are sent at once. `spacing` is the minimum time between two sends within a loop
    /// iteration.
    fn leaves_at_once(&mut self, now: Instant, spacing: Duration) -> bool {
        if self.progress.remaining() == 0 {
            return true;
        }
        self.take_sample(now);
        let work = now.saturating_duration_since(self.work_began);
        let callbacks = self.callbacks().saturating_add(1);
        // The time of the last write is unknown. The callback has done its work before that write, not after it.
        let is_behind_lone = self.is_untimed && self.has_sent;
        let is_long = !is_behind_lone && work >= self.times.long_callback.saturating_mul(callbacks);
        let is_next_piece = std::mem::take(&mut self.has_sent) && !is_long;
        if is_next_piece {
            self.note_pieces(true);
        }
        // A write that was sent without reading the clock counts as the first write after the idle time.
        let since_sent = self.note_idle(now, FIRST_WRITES - u8::from(self.is_untimed));
        // After the last callback the loop iteration ends. The send at its end would not be cheaper, so no minimum time
        // applies.
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

    /// Sets `prompt` to `writes` if nothing was sent for a while, so that this many writes are sent at once. Returns
    /// the time since the last send.
    fn note_idle(&mut self, now: Instant, writes: u8) -> Duration {
        let since_sent = now.saturating_duration_since(self.last_sent);
        if since_sent >= self.times.idle {
            self.prompt = self.prompt.max(writes);
        }
        since_sent
    }

    /// Records that written bytes are sent at once.
    fn sent(&mut self, now: Instant) {
        self.has_sent = true;
        self.is_untimed = false;
        self.last_sent = now;
        self.begin_work(now);
    }

    /// True if no other callback of the loop iteration waits, and no other part of the running one.
    fn is_last(&self) -> bool {
        self.progress.remaining() <= 1 && self.parts_left <= 1
    }

    /// Called when a watched callback has ended and the host has counted it. True if held bytes have to be sent now.
    pub(crate) fn end_callback(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.parts_left = 0;
        let is_due = self.is_due(self.progress.remaining() == 0, now);
        self.progress.watch(self.is_holding());
        is_due
    }

    /// Called when a part of the running callback has ended. Another part or the end of the callback follows. Returns
    /// true if held bytes must be sent now.
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
            // After the last callback the end of the loop iteration follows at once and sends held bytes.
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

    /// Called when the callback that wrote at `since` has ended. Notes if the callback has computed after its write.
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

    /// True if the thread was ready to run for `time` after `since`, but did not run for most of that time. The sample
    /// must be from at most [`SAMPLE_AGE_MAX`] before `since`; without a sample the result is false.
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

    /// Ends the hold: the held bytes are sent now.
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

    /// Ends the loop iteration. No bytes are held.
    pub(crate) fn end_iteration(&mut self) {
        if std::mem::take(&mut self.is_untimed) {
            // The time of the last send is unknown. It is set to the earliest possible value.
            self.last_sent = self.work_began;
        }
        self.has_sent = false;
        self.is_prompt = false;
        self.parts_left = 0;
        self.progress.begin(0);
        self.progress.watch(false);
    }
}

/// A callback of this length or more should have its own send. A send that wakes a sleeping client on another processor
/// costs several microseconds more than one whose client still reads earlier bytes, and in a virtual machine up to 30.
/// Answers of FastAPI take about 50.
const LONG_CALLBACK: Duration = Duration::from_micros(100);
/// The minimum time between two datagrams that are sent before the end of a loop iteration. The streams of a QUIC
/// connection share packets, and a datagram costs its sender and its receiver several microseconds each.
const QUIC_SPACING: Duration = Duration::from_micros(100);
/// A program that has sent nothing for this time is not busy.
const IDLE: Duration = Duration::from_micros(500);
/// The longest hold. A longer loop iteration of short callbacks sends more than once.
const HOLD_MAX: Duration = Duration::from_micros(500);
/// A callback that computes for this time while its bytes are held delays its answer noticeably.
const LONG_HOLD: Duration = Duration::from_micros(250);
const PROMPT_WRITES: u8 = 64;
/// A program that computes this long after a write does so from time to time, and loses little by separate sends.
const COMPUTING: Duration = Duration::from_millis(10);
/// A tenth of `COMPUTING`, so that usage before the computing matters little.
const SAMPLE_AGE_MAX: Duration = Duration::from_millis(1);
const PROMPT_TIMES: u32 = 10;
const PROMPT_MAX: Duration = Duration::from_secs(10);
/// Longer than [`PROMPT_MAX`]. (A process with a CPU quota is stopped in each period of the quota, a tenth of a
/// second.)
const SAMPLED_FOR: Duration = Duration::from_secs(20);
/// The number of writes that are sent at once after an idle time: a head and its body.
const FIRST_WRITES: u8 = 2;
/// If `in_pieces` is at least this number, a callback's first write is held until its next ones.
const MANY_IN_PIECES: u8 = 4;
const IN_PIECES_MAX: u8 = 8;

#[cfg(test)]
mod tests;
