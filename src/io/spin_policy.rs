//! How long a wait looks for work before it sleeps.
//!
//! A sleep and its wake cost tens of microseconds of latency and, in a virtual machine above all,
//! some ten of processor time. Where the answer to the last request is the next request (one client,
//! one in flight) most waits are shorter than that, so looking for a moment is cheaper than sleeping.
//! Elsewhere it is waste. What the last waits were like decides:
//!
//! - A loop starts to look when it has slept shortly several times, with few long sleeps in between;
//!   so one that is idle, or that only its timers wake, never does.
//! - A look takes as long as short sleeps have lately taken, the wake included. Each that finds something
//!   earns credit, one that finds nothing takes four times as much. Without credit the loop sleeps for a
//!   while, longer each time, before it tries once more.
//! - A look that finds its work hardly sooner than a sleep would have brought it (by less than a third of
//!   that, or [`SAVING`]) is as good as one in vain. Where a wake costs little, as on bare metal, work is looked
//!   for only if it comes at once; where it costs much, as in a virtual machine, most of a sleep is the wake,
//!   and a loop whose looks succeed uses about as much processor time as one that sleeps. Where client and
//!   server share a processor the kernel hands it from one to the other in a few microseconds; looking only
//!   delays the other, though most looks find something once it has run.
//! - Where there is always more work as soon as the last is done, looking gains nothing and has something to
//!   lose: what arrives during a sleep is one large piece where it would have been two, and several
//!   connections' work in one turn. So [`WINDOW`] looks that found theirs at once, and took less than a quarter
//!   of what was worked between them, were in vain too. 100 connections with 100 KiB each: 5 to 15 % of the
//!   processor time.
//!
//! Not here: the looking itself (`driver`).
//!
//! In a virtual machine, where a wake takes 50 µs and more, a QUIC round trip takes 0.6 of the time for the same
//! processor time. Looking always costs an open load more than it saves; `busy_poll` is for programs that want it.

use std::time::Duration;

pub(crate) struct SpinPolicy {
    /// What the configuration says; `None`: what the waits say.
    fixed: Option<Duration>,
    /// Looks that may fail, in quarters.
    credit: u32,
    /// Short sleeps lately, less the long ones.
    short_sleeps: u32,
    /// Short sleeps that are needed before the next look.
    pause: u32,
    /// What a short sleep takes: a moving average.
    sleep: Duration,
    window: Window,
}

/// Some looks in a row.
#[derive(Default)]
struct Window {
    looks: u32,
    /// What they took.
    waited: Duration,
    /// What was done before each of them.
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

    /// How long to look now. Zero: sleep at once.
    pub(crate) fn look(&self) -> Duration {
        match self.fixed {
            Some(fixed) => fixed,
            None if self.credit >= FAILURE => self.sleep.max(LOOK_MIN),
            None => Duration::ZERO,
        }
    }

    /// True if the time that a sleep takes is of interest.
    pub(crate) fn is_learning(&self) -> bool {
        self.fixed.is_none()
    }

    /// A wait slept at once, and took this long.
    pub(crate) fn slept(&mut self, waited: Duration) {
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

    /// A look is over: it has found something after this time, or nothing. `worked` is the time since the wait
    /// before it.
    pub(crate) fn looked(&mut self, found: Option<Duration>, worked: Duration) {
        let saving = (self.sleep / 3).max(SAVING);
        let is_good = found.is_some_and(|waited| waited + saving <= self.sleep);
        self.credit = match is_good {
            true => (self.credit + 1).min(CREDIT_MAX),
            false => self.credit.saturating_sub(FAILURE),
        };
        self.window.waited += found.unwrap_or(self.sleep);
        self.window.worked += worked;
        self.window.looks += 1;
        if self.window.looks == WINDOW {
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

/// What a look takes at least, that of a loop whose sleeps are shorter still.
const LOOK_MIN: Duration = Duration::from_micros(25);
/// A sleep that a look might have spared; the wake alone may be half of it. No look that nobody asked for is
/// longer.
const SHORT_SLEEP: Duration = Duration::from_micros(200);
/// How many short sleeps a long one outweighs.
const LONG_SLEEP: u32 = 4;
/// What a failed look takes; a good one earns 1.
const FAILURE: u32 = 4;
const CREDIT_MAX: u32 = 16;
const WINDOW: u32 = 16;
/// A look that takes less found what was there by then, or nearly. The answer of a lone client takes longer.
const AT_ONCE: Duration = Duration::from_micros(3);
/// How much sooner than a sleep a good look is over. Sleep and wake are worth twice this where the other
/// side has a processor of its own.
const SAVING: Duration = Duration::from_micros(10);
/// Not more than the shortest pause has: the first look knows what it competes with.
const AVERAGE_OF: u32 = 4;
const PAUSE_MIN: u32 = 8;
/// At worst one look in so many short sleeps is in vain, a tenth of a microsecond each; or a window of
/// looks, which hardly wait.
const PAUSE_MAX: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(40);
    const LONG: Duration = Duration::from_millis(5);

    /// What a sleep takes longer than a look, where the other side has a processor of its own.
    const WAKE: Duration = Duration::from_micros(30);
    /// What a request takes.
    const WORK: Duration = Duration::from_micros(10);

    /// One wait of a loop whose work comes after `gap`; true if it looked.
    fn wait(spin: &mut SpinPolicy, gap: Duration, wake: Duration) -> bool {
        let look = spin.look();
        if look.is_zero() {
            spin.slept(gap + wake);
        } else {
            spin.looked((gap < look).then_some(gap), WORK);
        }
        !look.is_zero()
    }

    fn looks(spin: &mut SpinPolicy, waits: usize, gap: impl Fn(usize) -> Duration) -> usize {
        (0..waits).filter(|&n| wait(spin, gap(n), WAKE)).count()
    }

    #[test]
    fn a_loop_with_short_waits_looks_and_goes_on_looking() {
        let mut spin = SpinPolicy::new(None);
        assert_eq!(looks(&mut spin, 1000, |_| SHORT / 4), 992);
    }

    #[test]
    fn an_idle_loop_never_looks() {
        let mut spin = SpinPolicy::new(None);
        assert_eq!(looks(&mut spin, 1000, |_| LONG), 0);
        // One short wait in three is not enough.
        let mixed = |n: usize| if n.is_multiple_of(3) { SHORT / 4 } else { LONG };
        assert_eq!(looks(&mut spin, 3000, mixed), 0);
    }

    #[test]
    fn looks_in_vain_become_rare() {
        let mut spin = SpinPolicy::new(None);
        // Short sleeps, of which the wake is a small part: a look has next to nothing to gain.
        let cheap = Duration::from_micros(5);
        let vain = (0..100_000).filter(|_| wait(&mut spin, SHORT, cheap));
        let vain = vain.count();
        assert!((300..=420).contains(&vain), "{vain}");
    }

    #[test]
    fn a_look_is_as_long_as_a_sleep() {
        let mut spin = SpinPolicy::new(None);
        assert_eq!(looks(&mut spin, 1000, |_| SHORT), 992);
        let full = SHORT + WAKE;
        assert!(
            (SHORT..full).contains(&spin.look()),
            "the average comes near to it"
        );
    }

    #[test]
    fn looks_that_are_no_quicker_than_a_sleep_become_rare() {
        let mut spin = SpinPolicy::new(None);
        // What a look finds comes after 5 to 14 microseconds, as after a sleep.
        let gap = |n: usize| Duration::from_micros(5 + n as u64 % 10);
        let sleep = Duration::from_micros(10);
        let mut look = |n: usize| {
            if spin.look().is_zero() {
                spin.slept(sleep);
                return false;
            }
            spin.looked(Some(gap(n)), Duration::ZERO);
            true
        };
        let all = (0..100_000).filter(|&n| look(n)).count();
        assert!(all < 2_000, "{all}");
        // The other side moves to another processor.
        assert!(looks(&mut spin, 10_000, |_| SHORT / 4) > 9_500);
    }

    #[test]
    fn a_loop_that_always_has_more_work_hardly_looks() {
        let mut spin = SpinPolicy::new(None);
        // As soon as it has worked, there is more.
        let gap = Duration::from_micros(2);
        let mut look = |gap: Duration, worked: Duration| {
            if spin.look().is_zero() {
                spin.slept(gap + WAKE);
                return false;
            }
            spin.looked(Some(gap), worked);
            true
        };
        let much = Duration::from_micros(15);
        let all = (0..100_000).filter(|_| look(gap, much)).count();
        let rare = 4_000..7_000;
        assert!(rare.contains(&all), "one window in 256 sleeps: {all}");
        // A lone client, whose requests take long.
        let all = (0..10_000).filter(|_| look(SHORT / 4, SHORT * 10));
        assert!(all.count() > 9_500);
        // Less work, and it looks again.
        assert!(looks(&mut spin, 10_000, |_| SHORT / 4) > 9_500);
    }

    #[test]
    fn a_busy_loop_that_falls_idle_looks_a_few_times_more() {
        let mut spin = SpinPolicy::new(None);
        looks(&mut spin, 1000, |_| SHORT / 4);
        let vain = looks(&mut spin, 1000, |_| LONG);
        assert!((1..=4).contains(&vain), "{vain}");
        // And finds back at once.
        let found = looks(&mut spin, 1000, |_| SHORT / 4);
        assert!(found > 950, "{found}");
    }

    #[test]
    fn a_long_wait_now_and_then_changes_little() {
        let mut spin = SpinPolicy::new(None);
        let gap = |n: usize| if n % 20 == 19 { LONG } else { SHORT / 4 };
        let all = looks(&mut spin, 10_000, gap);
        assert!(all > 9_900, "{all}");
    }

    #[test]
    fn what_the_configuration_says_is_done() {
        let mut always = SpinPolicy::new(Some(LONG));
        assert_eq!(looks(&mut always, 100, |_| LONG * 2), 100);
        let mut never = SpinPolicy::new(Some(Duration::ZERO));
        assert_eq!(looks(&mut never, 100, |_| SHORT / 4), 0);
    }
}
