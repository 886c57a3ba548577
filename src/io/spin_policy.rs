//! Decides how long a waiting event loop spins before it sleeps. To spin is to look for completions repeatedly, without
//! a system call; to sleep is to block in the kernel.
//!
//! A sleep and its wake-up add tens of microseconds of latency and cost about 10 µs of CPU time, most of all in a
//! virtual machine. With one client that sends its next request after each answer, most waits are shorter than that, so
//! spinning is cheaper than sleeping. With other loads spinning wastes CPU time. The policy decides by the lengths of
//! the last waits:
//!
//! - **Start.** A loop begins to spin after several short sleeps with few long ones between them. So an idle loop, and
//!   a loop that only timers wake, never spins.
//! - **Length.** A spin lasts at most as long as recent short sleeps, including the wake-up.
//! - **Credit.** A spin that finds work earns credit, and a failed spin costs four times as much. Without credit the
//!   loop only sleeps, for a number of short sleeps that doubles each time.
//! - **Too small a gain.** A spin that finds work also counts as failed if a sleep would have found it almost as soon:
//!   if it saves less than a third of the sleep, or less than [`SAVING`]. On bare metal a wake-up is cheap, so spinning
//!   continues only if work arrives at once. In a virtual machine the wake-up is most of a sleep, so a loop that spins
//!   uses about as much CPU time as one that sleeps. If client and server share a processor, the client cannot run
//!   while the server spins, so a spin delays the client and finds nothing.
//! - **Saturation.** If work is always available when the last is done, spinning gains nothing, and it has a cost:
//!   during a sleep more data would arrive, which one receive would take together. So [`WINDOW`] consecutive spins
//!   count as failed if on average they found work at once and took less than a quarter of the working time between
//!   them. With 100 connections of 100 KiB messages this saves 5 to 15 % of the CPU time.
//!
//! Measured in a virtual machine with wake-ups of 50 µs and more: a QUIC round trip takes 0.6 of the time that it takes
//! without spinning, for equal CPU time. Constant spinning costs more than it saves if clients do not wait for answers
//! before they send; programs that want it set `busy_poll`.
//!
//! Not here: the spinning itself (`driver`).

use std::time::Duration;

pub(crate) struct SpinPolicy {
    /// The configured time of each spin; `None` if the last waits decide.
    fixed: Option<Duration>,
    /// The credit for failed spins, each of which costs [`FAILURE`]. The loop spins while the credit pays for one.
    credit: u32,
    /// The number of recent short sleeps, less [`LONG_SLEEP`] for each long one.
    short_sleeps: u32,
    /// The number of short sleeps before the next spin.
    pause: u32,
    /// The length of a short sleep, including the wake-up: a moving average.
    sleep: Duration,
    window: Window,
}

/// Sums over consecutive spins.
#[derive(Default)]
struct Window {
    spins: u32,
    /// The total time of the spins.
    waited: Duration,
    /// The total working time before the spins.
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

    /// The time to spin now; zero to sleep at once.
    pub(crate) fn spin_time(&self) -> Duration {
        match self.fixed {
            Some(fixed) => fixed,
            None if self.credit >= FAILURE => self.sleep.max(SPIN_MIN),
            None => Duration::ZERO,
        }
    }

    /// True if the policy needs the lengths of sleeps.
    pub(crate) fn is_learning(&self) -> bool {
        self.fixed.is_none()
    }

    /// Records a wait without a spin that has slept for `waited`.
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

    /// Records a spin. `found` is the time after which it found work; `None` if it found none. `worked` is the time
    /// between the previous wait and this spin.
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

/// The minimum length of a spin, even if sleeps are shorter.
const SPIN_MIN: Duration = Duration::from_micros(25);
/// The longest sleep that counts as short, including a wake-up, which may be half of it. No spin is longer, unless the
/// configuration sets its length.
const SHORT_SLEEP: Duration = Duration::from_micros(200);
/// The number of short sleeps that a long one outweighs.
const LONG_SLEEP: u32 = 4;
/// The credit that a failed spin costs. A successful spin earns 1.
const FAILURE: u32 = 4;
const CREDIT_MAX: u32 = 16;
const WINDOW: u32 = 16;
/// If the spins of a window are on average shorter than this, the loop stops spinning: it would find that work without
/// a spin, too. The drawback is that the answer to a lone client takes longer.
const AT_ONCE: Duration = Duration::from_micros(3);
/// A spin is successful only if it finds work sooner than a sleep would by this time. If the peer runs on another
/// processor, a sleep with its wake-up takes twice as long.
const SAVING: Duration = Duration::from_micros(10);
/// The weight of the average length of sleeps. It is at most the shortest pause, so that the first spin has an average.
const AVERAGE_OF: u32 = 4;
const PAUSE_MIN: u32 = 8;
/// The longest pause, in short sleeps. If every spin fails, one spin after each such pause costs 0.1 µs per sleep.
const PAUSE_MAX: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(40);
    const LONG: Duration = Duration::from_millis(5);

    /// The time that a wake-up adds to a sleep, if the peer runs on another processor.
    const WAKE: Duration = Duration::from_micros(30);
    /// The time of a request.
    const WORK: Duration = Duration::from_micros(10);

    /// Records one wait of a loop whose work arrives after `gap`. True if the loop spins in it.
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
        // If only one wait in three is short, the loop does not start spinning.
        let mixed = |n: usize| if n.is_multiple_of(3) { SHORT / 4 } else { LONG };
        assert_eq!(spins(&mut spin, 3000, mixed), 0);
    }

    #[test]
    fn failing_spins_become_rare() {
        let mut spin = SpinPolicy::new(None);
        // Sleeps are short and wake-ups are cheap, so a spin saves almost nothing.
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
            "the average length of a sleep approaches {full:?}"
        );
    }

    #[test]
    fn spins_that_save_no_time_become_rare() {
        let mut spin = SpinPolicy::new(None);
        // A spin finds work after 5 to 14 µs, and a sleep takes 10 µs.
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
        // The peer moves to another processor, so that wake-ups take longer.
        assert!(spins(&mut spin, 10_000, |_| SHORT / 4) > 9_500);
    }

    #[test]
    fn a_loop_that_always_has_work_seldom_spins() {
        let mut spin = SpinPolicy::new(None);
        // New work arrives 2 µs after the last work is done.
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
        assert!(
            rare.contains(&all),
            "one window of spins in 256 sleeps: {all}"
        );
        // Requests of a lone client take long, and the loop spins again.
        let all = (0..10_000).filter(|_| spun(SHORT / 4, SHORT * 10));
        assert!(all.count() > 9_500);
        // With less work between the waits the loop spins, too.
        assert!(spins(&mut spin, 10_000, |_| SHORT / 4) > 9_500);
    }

    #[test]
    fn a_busy_loop_that_becomes_idle_spins_a_few_times_more() {
        let mut spin = SpinPolicy::new(None);
        spins(&mut spin, 1000, |_| SHORT / 4);
        let vain = spins(&mut spin, 1000, |_| LONG);
        assert!((1..=4).contains(&vain), "{vain}");
        // With short waits the loop spins again at once.
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
