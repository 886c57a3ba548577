//! How long a wait polls for work before it sleeps.
//!
//! A sleep and its wake-up cost tens of microseconds of latency and, especially in a virtual machine, about ten of
//! CPU time. If the answer to the last request is the next request (one client, one request in flight) most waits
//! are shorter than that, so polling for a moment is cheaper than sleeping. Otherwise it is waste. The lengths of
//! the last waits decide:
//!
//! - A loop starts to poll when it has had several short sleeps, with few long ones in between. So a loop that is
//!   idle, or that only its timers wake, never does.
//! - A poll takes as long as recent short sleeps, including the wake-up. Each poll that finds something earns
//!   credit, one that finds nothing costs four times as much. Without credit the loop sleeps for a while, longer
//!   each time, before it tries again.
//! - A poll that finds its work hardly sooner than a sleep would have (by less than a third of that, or [`SAVING`])
//!   counts as failed. If a wake-up is cheap, as on bare metal, polling therefore continues only if work arrives at
//!   once; if it is expensive, as in a virtual machine, most of a sleep is the wake-up, and a loop with successful
//!   polls uses about as much CPU time as one that sleeps. If client and server share a processor the kernel
//!   switches between them in a few microseconds; polling only delays the other, although most polls find something
//!   once it has run.
//! - If there is always more work as soon as the last is done, polling gains nothing and may cost something: data
//!   that arrives during a sleep is one large piece instead of two, and several connections' work in one turn. So
//!   [`WINDOW`] polls that found their work at once, and took less than a quarter of the working time between them,
//!   count as failed, too. 100 connections with 100 KiB each: 5 to 15 % of the CPU time.
//!
//! Not here: the polling itself (`driver`).
//!
//! In a virtual machine, where a wake-up takes 50 µs and more, a QUIC round trip takes 0.6 of the time for the same CPU
//! time. Always polling costs an open load more than it saves; `busy_poll` is for programs that want it.

use std::time::Duration;

pub(crate) struct SpinPolicy {
    /// The configured time; `None`: the last waits decide.
    fixed: Option<Duration>,
    /// The number of polls that may fail, in quarters.
    credit: u32,
    /// Recent short sleeps, less the long ones.
    short_sleeps: u32,
    /// Short sleeps that are needed before the next poll.
    pause: u32,
    /// The length of a short sleep: a moving average.
    sleep: Duration,
    window: Window,
}

/// Some consecutive polls.
#[derive(Default)]
struct Window {
    spins: u32,
    /// The time that they took.
    waited: Duration,
    /// The working time before each of them.
    worked: Duration,
}

impl SpinPolicy {
    pub(crate) fn new(fixed: Option<Duration>) -> SpinPolicy {
        SpinPolicy {
            fixed,
            credit: 0,
            short_sleeps: 0,
            pause: PAUSE_MIN,
            sleep: Duration::ZERO,
            window: Window::default(),
        }
    }

    /// How long to poll now. Zero: sleep at once.
    pub(crate) fn spin_time(&self) -> Duration {
        match self.fixed {
            Some(fixed) => fixed,
            None if self.credit >= FAILURE => self.sleep.max(SPIN_MIN),
            None => Duration::ZERO,
        }
    }

    /// True if sleeps must be timed.
    pub(crate) fn is_learning(&self) -> bool {
        self.fixed.is_none()
    }

    /// Records a wait that slept at once, for `waited`.
    pub(crate) fn record_sleep(&mut self, waited: Duration) {
        if waited > SHORT_SLEEP {
            self.short_sleeps = self.short_sleeps.saturating_sub(LONG_SLEEP);
            return;
        }
        self.sleep = (self.sleep * (AVERAGE_OF - 1) + waited) / AVERAGE_OF;
        self.short_sleeps += 1;
        if self.short_sleeps >= self.pause {
            self.short_sleeps = 0;
            self.credit = FAILURE;
        }
    }

    /// Records a poll that has found something after `found`, or nothing. `worked` is the time since the previous
    /// wait.
    pub(crate) fn record_spin(&mut self, found: Option<Duration>, worked: Duration) {
        let saving = (self.sleep / 3).max(SAVING);
        let is_good = found.is_some_and(|waited| waited + saving <= self.sleep);
        self.credit = match is_good {
            true => (self.credit + 1).min(CREDIT_MAX),
            false => self.credit.saturating_sub(FAILURE),
        };
        self.window.waited += found.unwrap_or(self.sleep);
        self.window.worked += worked;
        self.window.spins += 1;
        if self.window.spins == WINDOW {
            let window = std::mem::take(&mut self.window);
            if window.waited < AT_ONCE * WINDOW && window.waited * 4 < window.worked {
                self.credit = 0;
            } else if self.credit >= FAILURE {
                self.pause = PAUSE_MIN;
            }
        }
        if self.credit < FAILURE {
            self.credit = 0;
            self.short_sleeps = 0;
            self.pause = (self.pause * 2).min(PAUSE_MAX);
            self.window = Window::default();
        }
    }
}

/// The minimum length of a poll, even if sleeps are shorter.
const SPIN_MIN: Duration = Duration::from_micros(25);
/// The longest sleep that a poll may replace; the wake-up alone may be half of it. No automatic poll is longer.
const SHORT_SLEEP: Duration = Duration::from_micros(200);
/// How many short sleeps a long one outweighs.
const LONG_SLEEP: u32 = 4;
/// The cost of a failed poll; a successful one earns 1.
const FAILURE: u32 = 4;
const CREDIT_MAX: u32 = 16;
const WINDOW: u32 = 16;
/// A window of polls that succeed sooner on average ends the polling: a turn without it would find the work as
/// well. The answer of a lone client takes longer.
const AT_ONCE: Duration = Duration::from_micros(3);
/// How much sooner than a sleep a successful poll must be. Sleep and wake-up cost twice this if the other side has
/// a processor of its own.
const SAVING: Duration = Duration::from_micros(10);
/// At most the shortest pause, so that an average exists for the first poll.
const AVERAGE_OF: u32 = 4;
const PAUSE_MIN: u32 = 8;
/// The longest pause, in short sleeps. If every poll fails, one poll after each such pause costs a tenth of a
/// microsecond per sleep.
const PAUSE_MAX: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(40);
    const LONG: Duration = Duration::from_millis(5);

    /// How much longer a sleep takes than a poll, if the other side has a processor of its own.
    const WAKE: Duration = Duration::from_micros(30);
    /// The time of a request.
    const WORK: Duration = Duration::from_micros(10);

    /// One wait of a loop whose work arrives after `gap`; true if it polled.
    fn wait(spin: &mut SpinPolicy, gap: Duration, wake: Duration) -> bool {
        let spin_time = spin.spin_time();
        if spin_time.is_zero() {
            spin.record_sleep(gap + wake);
        } else {
            spin.record_spin((gap < spin_time).then_some(gap), WORK);
        }
        !spin_time.is_zero()
    }

    fn spins(spin: &mut SpinPolicy, waits: usize, gap: impl Fn(usize) -> Duration) -> usize {
        (0..waits).filter(|&n| wait(spin, gap(n), WAKE)).count()
    }

    #[test]
    fn short_waits_start_and_continue_the_spinning() {
        let mut spin = SpinPolicy::new(None);
        assert_eq!(spins(&mut spin, 1000, |_| SHORT / 4), 992);
    }

    #[test]
    fn an_idle_loop_never_spins() {
        let mut spin = SpinPolicy::new(None);
        assert_eq!(spins(&mut spin, 1000, |_| LONG), 0);
        // One short wait in three is not enough.
        let mixed = |n: usize| if n.is_multiple_of(3) { SHORT / 4 } else { LONG };
        assert_eq!(spins(&mut spin, 3000, mixed), 0);
    }

    #[test]
    fn failing_spins_become_rare() {
        let mut spin = SpinPolicy::new(None);
        // Short sleeps with a cheap wake-up: a poll has almost nothing to gain.
        let cheap = Duration::from_micros(5);
        let vain = (0..100_000).filter(|_| wait(&mut spin, SHORT, cheap));
        let vain = vain.count();
        assert!((300..=420).contains(&vain), "{vain}");
    }

    #[test]
    fn a_spin_is_as_long_as_a_sleep() {
        let mut spin = SpinPolicy::new(None);
        assert_eq!(spins(&mut spin, 1000, |_| SHORT), 992);
        let full = SHORT + WAKE;
        assert!(
            (SHORT..full).contains(&spin.spin_time()),
            "the average comes near to it"
        );
    }

    #[test]
    fn spins_that_save_no_time_become_rare() {
        let mut spin = SpinPolicy::new(None);
        // Polls find work after 5 to 14 microseconds, like sleeps.
        let gap = |n: usize| Duration::from_micros(5 + n as u64 % 10);
        let sleep = Duration::from_micros(10);
        let mut spun = |n: usize| {
            if spin.spin_time().is_zero() {
                spin.record_sleep(sleep);
                return false;
            }
            spin.record_spin(Some(gap(n)), Duration::ZERO);
            true
        };
        let all = (0..100_000).filter(|&n| spun(n)).count();
        assert!(all < 2_000, "{all}");
        // The other side moves to another processor.
        assert!(spins(&mut spin, 10_000, |_| SHORT / 4) > 9_500);
    }

    #[test]
    fn a_loop_that_always_has_work_seldom_spins() {
        let mut spin = SpinPolicy::new(None);
        // There is more work as soon as the last is done.
        let gap = Duration::from_micros(2);
        let mut spun = |gap: Duration, worked: Duration| {
            if spin.spin_time().is_zero() {
                spin.record_sleep(gap + WAKE);
                return false;
            }
            spin.record_spin(Some(gap), worked);
            true
        };
        let much = Duration::from_micros(15);
        let all = (0..100_000).filter(|_| spun(gap, much)).count();
        let rare = 4_000..7_000;
        assert!(rare.contains(&all), "one window in 256 sleeps: {all}");
        // A lone client with long requests.
        let all = (0..10_000).filter(|_| spun(SHORT / 4, SHORT * 10));
        assert!(all.count() > 9_500);
        // With less work the loop polls again.
        assert!(spins(&mut spin, 10_000, |_| SHORT / 4) > 9_500);
    }

    #[test]
    fn a_busy_loop_that_becomes_idle_spins_a_few_times_more() {
        let mut spin = SpinPolicy::new(None);
        spins(&mut spin, 1000, |_| SHORT / 4);
        let vain = spins(&mut spin, 1000, |_| LONG);
        assert!((1..=4).contains(&vain), "{vain}");
        // The policy recovers at once.
        let found = spins(&mut spin, 1000, |_| SHORT / 4);
        assert!(found > 950, "{found}");
    }

    #[test]
    fn an_occasional_long_wait_changes_little() {
        let mut spin = SpinPolicy::new(None);
        let gap = |n: usize| if n % 20 == 19 { LONG } else { SHORT / 4 };
        let all = spins(&mut spin, 10_000, gap);
        assert!(all > 9_900, "{all}");
    }

    #[test]
    fn a_configured_spin_time_is_used() {
        let mut always = SpinPolicy::new(Some(LONG));
        assert_eq!(spins(&mut always, 100, |_| LONG * 2), 100);
        let mut never = SpinPolicy::new(Some(Duration::ZERO));
        assert_eq!(spins(&mut never, 100, |_| SHORT / 4), 0);
    }
}
