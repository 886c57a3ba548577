//! Tests with a simulated clock: loop iterations of short and long callbacks, writes in pieces, and computing after a
//! write.

use std::cell::Cell;

use super::*;

thread_local! {
    /// The simulated usage of the test's thread.
    static USED: Cell<ThreadUsage> = const { Cell::new(ThreadUsage { processor: Duration::ZERO, waits: 0 }) };
}

/// The callbacks of a loop, with a simulated clock.
struct Loop {
    delay: WriteDelay,
    now: Instant,
    callbacks_left: usize,
    is_quic: bool,
}

const SHORT: Duration = Duration::from_micros(5);
const LONG: Duration = Duration::from_millis(4);

impl Loop {
    fn new() -> Self {
        let now = Instant::now() + IDLE;
        let mut delay = WriteDelay::new(now);
        delay.usage = || Some(USED.get());
        Self {
            delay,
            now,
            callbacks_left: 0,
            is_quic: false,
        }
    }

    fn begin(&mut self, callbacks: usize, woke_up: Instant) {
        self.callbacks_left = callbacks;
        self.delay.note_wake_up(woke_up);
        self.delay.progress.begin(callbacks);
    }

    /// The loop has slept, wakes up, and has this number of callbacks to run.
    fn wake(&mut self, callbacks: usize) {
        self.now += LONG;
        self.begin(callbacks, self.now);
    }

    fn work(&mut self, time: Duration) {
        self.now += time;
        let mut used = USED.get();
        used.processor += time;
        USED.set(used);
    }

    /// The running callback waits in a system call.
    fn block(&mut self, time: Duration) {
        self.now += time;
        let mut used = USED.get();
        used.waits += 1;
        USED.set(used);
    }

    /// The scheduler stops the thread.
    fn stop(&mut self, time: Duration) {
        self.now += time;
    }

    /// Writes once. Returns true if the bytes were sent at once.
    fn write(&mut self) -> bool {
        let now = self.now;
        match self.is_quic {
            true => self.delay.sends_quic(|| now).is_some(),
            false => self.delay.sends(|| now),
        }
    }

    /// Ends the running callback, the last of the loop iteration. True if held bytes were sent.
    fn end_callback(&mut self) -> bool {
        self.callbacks_left -= 1;
        let now = self.now;
        let leaves = self.end_callback_before(self.callbacks_left, || now);
        if leaves {
            self.delay.release(now);
        }
        leaves
    }

    /// Ends the running callback. `left` callbacks still follow in this loop iteration. True if held bytes must be sent
    /// now. `now` is called only if the clock has to be read.
    fn end_callback_before(&mut self, left: usize, now: impl FnOnce() -> Instant) -> bool {
        self.delay.progress.end_one(left) && self.delay.end_callback(now)
    }

    fn end_iteration(&mut self) {
        self.delay.release(self.now);
        self.delay.end_iteration();
    }

    /// Begins a loop iteration of a busy server: it has not slept, and has just sent.
    fn busy_iteration(&mut self, callbacks: usize) {
        self.begin(callbacks, self.now - LONG);
    }

    /// Runs a loop iteration of short callbacks that write once each. Returns the number of sends before its end.
    fn short_iteration(&mut self, callbacks: usize) -> usize {
        let mut sends = 0;
        for _ in 0..callbacks {
            self.work(SHORT);
            sends += usize::from(self.write());
            sends += usize::from(self.end_callback());
        }
        self.end_iteration();
        sends
    }
}

#[test]
fn the_very_first_write_is_sent_at_once() {
    let mut one = Loop::new();
    one.begin(50, one.now);
    assert!(one.write());
}

#[test]
fn short_callbacks_that_write_share_the_end_of_the_iteration() {
    let mut one = Loop::new();
    one.wake(100);
    assert_eq!(
        one.short_iteration(90),
        usize::from(FIRST_WRITES),
        "the first after a long time without a send"
    );
    for _ in 0..100 {
        one.busy_iteration(90);
        assert_eq!(one.short_iteration(90), 0);
    }
}

#[test]
fn a_long_iteration_of_short_callbacks_sends_periodically() {
    let mut one = Loop::new();
    one.busy_iteration(1_001);
    one.write();
    one.busy_iteration(1_001);
    let time = SHORT * 1_000;
    let sends = one.short_iteration(1_000) as u128;
    let most = time.as_micros() / HOLD_MAX.as_micros();
    assert!((most / 2..=most + 1).contains(&sends), "{sends}");
}

#[test]
fn quic_sends_within_an_iteration_are_spaced() {
    let mut one = Loop::new();
    one.is_quic = true;
    one.wake(51);
    let began = one.now;
    let mut sends = 0_u32;
    for _ in 0..50 {
        one.work(LONG_CALLBACK * 2);
        sends += u32::from(one.write());
        sends += u32::from(one.end_callback());
    }
    let most = (one.now - began).as_micros() / QUIC_SPACING.as_micros();
    // The first callbacks are held: that they are long shows later.
    assert!((45..=most + 1).contains(&sends.into()), "{sends}");
    one.end_iteration();
    for n in 0..50 {
        one.busy_iteration(50);
        one.work(LONG_CALLBACK * 3);
        assert!(one.write(), "{n}");
        one.end_callback();
        one.end_iteration();
    }
}

#[test]
fn each_write_of_long_callbacks_is_sent_at_once() {
    for time in [LONG_CALLBACK * 3, Duration::from_millis(1), LONG] {
        let mut one = Loop::new();
        one.wake(50);
        // The time before the callback was needed to read many events.
        one.delay.begin_parts(0, 1);
        for n in 0..50 {
            one.work(time);
            assert!(one.write(), "{n} after {time:?}");
            one.end_callback();
        }
    }
}

#[test]
fn the_only_callback_of_an_iteration_sends_at_once() {
    for is_quic in [false, true] {
        let mut one = Loop::new();
        one.is_quic = is_quic;
        for _ in 0..100 {
            one.now += LONG_CALLBACK * 2;
            one.busy_iteration(1);
            assert!(one.write());
            assert!(!one.end_callback_before(0, || panic!("the clock was read")));
            one.end_iteration();
        }
    }
}

#[test]
fn after_an_idle_time_the_only_callback_sends_its_first_quic_pieces_at_once() {
    let mut one = Loop::new();
    one.is_quic = true;
    for _ in 0..100 {
        one.wake(1);
        assert!(one.write() && one.write());
        one.work(SHORT);
        assert!(!one.write(), "the iteration's end is soon");
        one.end_callback();
        one.end_iteration();
    }
}

#[test]
fn held_bytes_are_sent_before_later_long_callbacks() {
    let mut one = Loop::new();
    one.write();
    one.end_iteration();
    for writers in 1..20 {
        one.busy_iteration(writers + 2);
        for _ in 0..writers {
            one.work(SHORT);
            assert!(!one.write());
            assert!(!one.end_callback());
        }
        one.work(LONG);
        assert!(
            one.end_callback(),
            "the one behind {writers} has written nothing"
        );
        one.end_iteration();
        // Other tests cover computing after a write.
        one.delay.prompt = 0;
        one.delay.last_sent = one.now;
    }
}

#[test]
fn repeated_writes_of_a_callback_at_short_intervals_are_sent_at_once() {
    let mut one = Loop::new();
    one.write();
    one.end_iteration();
    for _ in 0..100 {
        // The next event of the client arrives at once.
        one.work(SHORT);
        one.busy_iteration(1);
        assert!(one.write());
        one.end_callback();
        one.end_iteration();
    }
}

#[test]
fn parts_of_a_callback_share_its_end_like_callbacks() {
    let mut one = Loop::new();
    one.write();
    one.end_iteration();
    one.busy_iteration(1);
    one.delay.begin_parts(3, 3);
    one.work(SHORT);
    assert!(!one.write(), "others follow");
    let now = one.now;
    assert!(!one.delay.end_part(|| now));
    one.work(LONG);
    let now = one.now;
    assert!(one.delay.end_part(|| now));
    one.delay.release(now);
    one.delay.prompt = 0;
    assert!(one.write(), "the last part of the last callback");
    assert!(!one.delay.end_part(|| now));
    assert!(!one.end_callback());
}

#[test]
fn iterations_inside_a_callback_do_not_count_for_later_callbacks() {
    let mut one = Loop::new();
    one.write();
    one.end_iteration();
    one.busy_iteration(10);
    for left in (0..3).rev() {
        let now = one.now;
        assert!(!one.end_callback_before(left, || now));
    }
    one.end_iteration();
    assert!(!one.end_callback());
    one.work(SHORT);
    assert!(!one.write());
    assert!(!one.end_callback());
    one.work(LONG);
    assert!(one.end_callback());
}

#[test]
fn writes_outside_callbacks_are_sent_at_once() {
    let mut one = Loop::new();
    one.busy_iteration(1);
    one.end_callback();
    one.end_iteration();
    for _ in 0..10 {
        assert!(one.write());
    }
}

#[test]
fn after_an_idle_time_a_head_and_its_body_are_sent_at_once() {
    let mut one = Loop::new();
    // Sets the counter as after a busy time in which most callbacks have written in pieces.
    one.delay.in_pieces = IN_PIECES_MAX;
    for _ in 0..100 {
        one.wake(2);
        assert!(one.write() && one.write());
        one.end_callback();
        one.end_iteration();
    }
}

#[test]
fn after_computing_behind_a_held_write_the_next_writes_are_sent_at_once() {
    let mut one = Loop::new();
    one.write();
    one.end_iteration();
    one.busy_iteration(1_000);
    one.work(SHORT);
    assert!(!one.write());
    one.work(LONG);
    assert!(one.end_callback());
    // While the program computes again and again, writes are sent at once, in pieces or not.
    for _ in 0..500 {
        one.work(SHORT);
        assert!(one.write() && one.write());
        one.work(LONG);
        assert!(!one.end_callback());
    }
    // After the computing, writes are sent at once for some time.
    one.end_iteration();
    let mut iterations = 0;
    loop {
        one.busy_iteration(64);
        if one.short_iteration(32) == 0 {
            break;
        }
        iterations += 1;
    }
    assert_eq!(iterations, usize::from(PROMPT_WRITES) / 32);
}

#[test]
fn writes_share_sends_again_after_a_time_without_computing() {
    for time in [COMPUTING, COMPUTING * 30, PROMPT_MAX] {
        let mut one = Loop::new();
        one.write();
        one.end_iteration();
        one.busy_iteration(2);
        one.work(SHORT);
        one.write();
        one.work(time);
        assert!(one.end_callback());
        one.end_iteration();
        let began = one.now;
        loop {
            one.busy_iteration(64);
            if one.short_iteration(32) == 0 {
                break;
            }
        }
        let prompt = one.now - began;
        let most = (time * PROMPT_TIMES).min(PROMPT_MAX);
        assert!(
            prompt >= most && prompt < most + LONG,
            "{prompt:?} after {time:?}"
        );
    }
}

#[test]
fn a_write_before_computing_is_held_at_most_once_despite_other_writes() {
    let mut one = Loop::new();
    one.write();
    one.end_iteration();
    let mut late = 0;
    for _ in 0..20 {
        one.busy_iteration(1_002);
        for _ in 0..1_000 {
            one.work(SHORT);
            one.write();
            one.end_callback();
        }
        one.work(SHORT);
        let (head, body) = (one.write(), one.write());
        late += usize::from(!(head && body));
        one.work(COMPUTING * 30);
        one.end_callback();
        one.end_callback();
        one.end_iteration();
    }
    assert_eq!(late, 1);
}

/// Returns for how long writes are sent at once after a callback has written and then spent `time`; `pass` spends it.
fn prompt_after(time: Duration, pass: impl Fn(&mut Loop, Duration)) -> Duration {
    let mut one = Loop::new();
    one.write();
    one.end_iteration();
    // A callback computes, so from now on samples are taken.
    one.busy_iteration(2);
    one.work(SHORT);
    one.write();
    one.work(COMPUTING);
    one.end_callback();
    one.end_iteration();
    one.stop(COMPUTING * PROMPT_TIMES);
    // The usage before this point must not matter.
    one.busy_iteration(400);
    one.short_iteration(400);
    one.busy_iteration(2);
    one.work(SHORT);
    one.write();
    pass(&mut one, time);
    assert!(one.end_callback());
    one.end_iteration();
    let began = one.now;
    loop {
        one.busy_iteration(64);
        if one.short_iteration(32) == 0 {
            return one.now - began;
        }
    }
}

#[test]
fn a_stopped_thread_does_not_count_as_computing() {
    for time in [COMPUTING, COMPUTING * 30] {
        let computed = prompt_after(time, Loop::work);
        assert_eq!(prompt_after(time, Loop::block), computed, "a system call");
        assert!(computed >= time * PROMPT_TIMES);
        // Only the few writes after any long callback are sent at once.
        let stopped = prompt_after(time, Loop::stop);
        assert!(stopped < COMPUTING, "{stopped:?} after {time:?}");
        let mostly = prompt_after(time, |one, time| {
            one.work(time / 4);
            one.stop(time * 3 / 4);
        });
        assert_eq!(mostly, stopped);
    }
}

#[test]
fn usage_is_not_read_before_a_callback_has_computed() {
    let mut one = Loop::new();
    one.delay.usage = || panic!("the usage was read");
    one.write();
    one.end_iteration();
    one.busy_iteration(400);
    one.short_iteration(400);
    one.busy_iteration(2);
    one.work(SHORT);
    one.write();
    one.stop(COMPUTING);
    assert!(one.end_callback());
    assert!(one.delay.sampled_until > one.now);
}

#[test]
fn without_thread_statistics_a_pause_counts_as_computing() {
    let prompt = prompt_after(COMPUTING, |one, time| {
        one.delay.usage = || None;
        one.stop(time);
    });
    assert!(prompt >= COMPUTING * PROMPT_TIMES);
}

#[test]
fn the_only_write_of_an_iteration_reads_no_clock() {
    let mut one = Loop::new();
    for _ in 0..100 {
        one.wake(1);
        assert!(one.delay.sends(|| panic!("the clock was read")));
        assert!(!one.end_callback_before(0, || panic!("the clock was read")));
        one.end_iteration();
    }
    // In the busy loop iterations that follow, writes share sends at once, although the time of the single writes was
    // not read.
    for _ in 0..100 {
        one.busy_iteration(91);
        assert_eq!(one.short_iteration(90), 0);
    }
}

#[test]
fn a_head_and_its_body_of_the_only_callback_become_one_send() {
    for computing in [60, 100, 200, 300].map(Duration::from_micros) {
        let mut one = Loop::new();
        let mut sends = 0;
        for iteration in 0..100 {
            // The client's next request comes before the connection counts as idle.
            one.work(Duration::from_micros(50));
            one.begin(1, one.now);
            one.work(computing);
            let mut left = usize::from(one.write());
            match one.delay.is_holding() {
                true => one.delay.add_piece(),
                false => left += usize::from(one.write()),
            }
            let was_held = one.delay.is_holding();
            one.end_callback();
            one.end_iteration();
            sends += if iteration < 10 {
                0
            } else {
                left + usize::from(was_held)
            };
        }
        assert_eq!(sends, 90, "{computing:?}");
    }
}

#[test]
fn an_emulator_holds_the_writes_that_a_processor_holds() {
    const FACTOR: u32 = 50;
    for callbacks in [2, 90, 1_000] {
        for is_quic in [false, true] {
            let [fast, slow] = [1, FACTOR].map(|factor| {
                let mut one = Loop::new();
                one.is_quic = is_quic;
                one.delay.slow_down(factor);
                one.write();
                one.end_iteration();
                let mut sends = Vec::new();
                for _ in 0..10 {
                    one.busy_iteration(callbacks + 1);
                    for _ in 0..callbacks {
                        one.work(SHORT * factor);
                        sends.push(one.write());
                        sends.push(one.end_callback());
                    }
                    one.end_iteration();
                }
                sends
            });
            assert_eq!(fast, slow, "{callbacks} callbacks, quic: {is_quic}");
        }
    }
}

#[test]
fn writes_in_pieces_become_one_send_a_callback() {
    let mut one = Loop::new();
    assert!(one.write() && one.write(), "nothing was sent before");
    one.end_iteration();
    let mut sends_at_once = 0;
    for _ in 0..100 {
        one.work(LONG_CALLBACK * 4);
        one.busy_iteration(2);
        sends_at_once += usize::from(one.write());
        one.work(SHORT);
        if one.delay.is_holding() {
            one.delay.add_piece();
        } else {
            assert!(!one.write());
        }
        assert_eq!(one.end_callback(), one.delay.in_pieces > MANY_IN_PIECES);
        one.end_iteration();
    }
    assert_eq!(sends_at_once, usize::from(MANY_IN_PIECES));
    // A program that writes once per callback is soon not delayed any more.
    let mut held = 0;
    for _ in 0..100 {
        one.work(LONG_CALLBACK * 4);
        one.busy_iteration(2);
        held += usize::from(!one.write());
        one.end_callback();
        one.end_iteration();
    }
    assert!(held <= usize::from(IN_PIECES_MAX), "{held}");
}

#[test]
fn a_connection_that_began_in_pieces_is_not_held_back() {
    let mut one = Loop::new();
    for _ in 0..100 {
        // Two flights of a handshake, then a single answer.
        one.wake(2);
        one.write();
        one.write();
        one.end_callback();
        one.end_iteration();
        one.wake(2);
        assert!(one.write());
        one.end_callback();
        one.end_iteration();
    }
}
