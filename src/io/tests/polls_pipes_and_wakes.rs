//! Polls, pipes, files, time-outs and wakes.

mod common;

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::*;
use uringcore_io::{Backend, Entered, Interest};

both_backends!(
    poll_is_level_triggered,
    a_batch_limit_returns_completions_in_order,
    poll_write_and_hang_up,
    polls_in_both_directions_are_independent,
    poll_of_a_reused_descriptor_number,
    a_weak_poll_does_not_keep_its_file_open,
    a_weak_poll_reports_readiness,
    a_duplicate_of_a_closed_descriptor_causes_no_event,
    nonblocking_pipes_wait_instead_of_failing,
    a_full_pipe_is_written_when_it_drains,
    files_are_read_and_written_at_offsets,
    files_have_a_position,
    a_cancelled_read_returns_its_buffer,
    a_sleep_lasts_for_its_timeout,
    an_idle_iteration_does_not_block,
    a_wake_ends_a_sleep,
    a_wake_before_the_sleep_is_not_lost,
    wakes_from_many_threads_are_never_lost,
    a_waker_outlives_its_driver,
    needs_enter_is_true_while_there_is_work,
    a_signal_interrupts_a_sleep,
);

fn a_weak_poll_does_not_keep_its_file_open(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (first, mut peer) = unix_pair();
    let (second, mut theirs) = unix_pair();
    let number = first.as_raw_fd();
    let poll = rig.driver.poll_weak(number, Interest::Read, 1);
    rig.iterate(Duration::from_millis(5));
    // SAFETY: this closes the file of `first`, whose number becomes a duplicate of `second`. Both stay owned.
    let renamed = unsafe { libc::dup3(second.as_raw_fd(), number, libc::O_CLOEXEC) };
    assert_eq!(renamed, number);
    assert_eq!(
        peer.read(&mut [0; 1]).unwrap(),
        0,
        "the peer sees the end at once"
    );
    rig.iterate(Duration::from_millis(5));
    assert!(rig.done.is_empty(), "the wait does not end");
    // The old poll does not affect the new file, also when it is cancelled.
    let next = rig.driver.poll_weak(number, Interest::Read, 2);
    rig.driver.cancel(poll);
    assert_eq!(rig.result_of(poll), Err(libc::ECANCELED));
    theirs.write_all(b"x").unwrap();
    assert!(rig.result_of(next).is_ok());
    rig.assert_idle();
}

fn a_weak_poll_reports_readiness(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    let fd = ours.as_raw_fd();
    for _ in 0..3 {
        let poll = rig.driver.poll_weak(fd, Interest::Read, 1);
        rig.iterate(Duration::from_millis(1));
        assert!(rig.done.is_empty());
        theirs.write_all(b"ab").unwrap();
        assert_ne!(rig.result_of(poll).unwrap() & libc::POLLIN as u32, 0);
        // A poll completes once, and it is level-triggered.
        rig.iterate(Duration::from_millis(1));
        assert!(rig.done.is_empty());
        let poll = rig.driver.poll_weak(fd, Interest::Read, 1);
        assert_ne!(rig.result_of(poll).unwrap() & libc::POLLIN as u32, 0);
        assert_eq!((&ours).read(&mut [0; 2]).unwrap(), 2);
    }
    // A second poll of the same file cannot be added to the set, so it waits in the ring.
    let write = rig.driver.poll_weak(fd, Interest::Write, 1);
    let read = rig.driver.poll_weak(fd, Interest::Read, 1);
    assert!(rig.result_of(write).is_ok());
    theirs.write_all(b"c").unwrap();
    assert!(rig.result_of(read).is_ok());
    // A poll survives a suspension, and can be cancelled.
    assert_eq!((&ours).read(&mut [0; 2]).unwrap(), 1);
    let poll = rig.driver.poll_weak(fd, Interest::Read, 1);
    rig.driver.suspend(Duration::from_secs(1));
    rig.driver.cancel(poll);
    assert_eq!(rig.result_of(poll), Err(libc::ECANCELED));
    rig.assert_idle();
}

fn poll_is_level_triggered(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    let fd = ours.as_raw_fd();
    let poll = rig.driver.poll(fd, Interest::Read, 1);
    rig.iterate(Duration::from_millis(5));
    assert!(rig.done.is_empty());
    theirs.write_all(b"ab").unwrap();
    assert_ne!(rig.result_of(poll).unwrap() & libc::POLLIN as u32, 0);
    // Unread data makes each next poll ready at once.
    for _ in 0..5 {
        let poll = rig.driver.poll(fd, Interest::Read, 1);
        assert_ne!(rig.result_of(poll).unwrap() & libc::POLLIN as u32, 0);
    }
    assert_eq!((&ours).read(&mut [0; 2]).unwrap(), 2);
    let poll = rig.driver.poll(fd, Interest::Read, 1);
    rig.iterate(Duration::from_millis(5));
    assert!(rig.done.is_empty(), "nothing to read any more");
    theirs.write_all(b"c").unwrap();
    assert!(rig.result_of(poll).is_ok());
    // A poll completes once, so there is no further completion.
    rig.iterate(Duration::from_millis(5));
    assert!(rig.done.is_empty());
    rig.assert_idle();
}

fn a_batch_limit_returns_completions_in_order(backend: Backend) {
    let mut rig = Rig::new(backend);
    let mut pairs: Vec<_> = (0..10).map(|_| tcp_pair()).collect();
    for (ours, theirs) in &mut pairs {
        rig.driver
            .poll(ours.as_raw_fd(), Interest::Read, ours.as_raw_fd() as u64);
        theirs.write_all(b"a").unwrap();
    }
    rig.driver.set_batch_limit(3);
    let mut reported = Vec::new();
    while reported.len() < 20 {
        // While completions are left, `enter` does not wait. The event of a descriptor that is ready again comes after
        // these completions.
        rig.iterate(Duration::from_secs(20));
        assert!((1..=3).contains(&rig.done.len()), "{}", rig.done.len());
        for completion in rig.done.drain(..) {
            let fd = completion.token as i32;
            reported.push(fd);
            rig.driver.poll_again(fd, Interest::Read, completion.token);
        }
    }
    reported.truncate(10);
    reported.sort_unstable();
    let mut all: Vec<_> = pairs.iter().map(|(ours, _)| ours.as_raw_fd()).collect();
    all.sort_unstable();
    assert_eq!(reported, all);
}

fn poll_write_and_hang_up(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, theirs) = unix_pair();
    let fd = ours.as_raw_fd();
    let poll = rig.driver.poll(fd, Interest::Write, 1);
    assert_ne!(rig.result_of(poll).unwrap() & libc::POLLOUT as u32, 0);
    while (&ours).write(&[0; 4096]).is_ok() {}
    let read = rig.driver.poll(fd, Interest::Read, 1);
    let write = rig.driver.poll(fd, Interest::Write, 2);
    rig.iterate(Duration::from_millis(5));
    assert!(rig.done.is_empty());
    drop(theirs);
    // A hang-up completes both directions.
    assert_ne!(rig.result_of(read).unwrap() & libc::POLLHUP as u32, 0);
    assert_ne!(rig.result_of(write).unwrap() & libc::POLLHUP as u32, 0);
    rig.assert_idle();
}

fn polls_in_both_directions_are_independent(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    let fd = ours.as_raw_fd();
    let read = rig.driver.poll(fd, Interest::Read, 1);
    let write = rig.driver.poll(fd, Interest::Write, 2);
    assert!(rig.result_of(write).is_ok());
    rig.iterate(Duration::from_millis(5));
    assert!(rig.take(read).is_none());
    rig.driver.cancel(write);
    theirs.write_all(b"x").unwrap();
    assert!(rig.result_of(read).is_ok());
    rig.assert_idle();
}

/// The caller closes a descriptor with a poll, without the driver, and its number is reused for another socket.
fn poll_of_a_reused_descriptor_number(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (first, _keep) = unix_pair();
    let (second, mut theirs) = unix_pair();
    let number = first.as_raw_fd();
    let poll = rig.driver.poll(number, Interest::Read, 1);
    rig.iterate(Duration::ZERO);
    rig.driver.cancel(poll);
    // SAFETY: the number of `first` becomes a duplicate of `second`. Both stay owned.
    let renamed = unsafe { libc::dup3(second.as_raw_fd(), number, libc::O_CLOEXEC) };
    assert_eq!(renamed, number);
    let poll = rig.driver.poll(number, Interest::Read, 2);
    rig.iterate(Duration::from_millis(5));
    theirs.write_all(b"x").unwrap();
    assert!(rig.result_of(poll).is_ok());
    rig.assert_idle();
}

/// A duplicate, as a forked child has it, keeps the file of a polled descriptor open after the descriptor is closed.
fn a_duplicate_of_a_closed_descriptor_causes_no_event(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = unix_pair();
    let (others, mut their_peer) = unix_pair();
    let number = ours.as_raw_fd();
    let poll = rig.driver.poll(number, Interest::Read, 1);
    rig.iterate(Duration::from_millis(1));
    rig.driver.discard(poll);
    let duplicate = ours.try_clone().unwrap();
    // The number gets another file before the driver polls again.
    // SAFETY: both descriptors are this test's own.
    assert_eq!(unsafe { libc::dup2(others.as_raw_fd(), number) }, number);
    let poll = rig.driver.poll(number, Interest::Read, 2);
    rig.iterate(Duration::from_millis(1));
    theirs.write_all(b"for the file of before").unwrap();
    rig.iterate(Duration::from_millis(20));
    assert!(rig.done.is_empty(), "readiness of a file that is not ours");
    // The readiness of the old file must not end the driver's sleeps either.
    let begin = Instant::now();
    rig.iterate(Duration::from_millis(50));
    rig.iterate(Duration::from_millis(50));
    assert!(begin.elapsed() >= Duration::from_millis(90));
    their_peer.write_all(b"x").unwrap();
    assert_ne!(rig.result_of(poll).unwrap() & libc::POLLIN as u32, 0);
    drop(duplicate);
    rig.assert_idle();
}

fn nonblocking_pipes_wait_instead_of_failing(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (reader, mut writer) = pipe();
    for round in 0..3 {
        let read = rig.read(reader.as_raw_fd(), 100, None);
        rig.iterate(Duration::from_millis(5));
        assert!(rig.done.is_empty(), "round {round}: {:?}", rig.done);
        writer.write_all(b"through the pipe").unwrap();
        let bytes = rig.bytes_of(read);
        assert_eq!(bytes, Ok(b"through the pipe".to_vec()));
    }
    let read = rig.read(reader.as_raw_fd(), 100, None);
    rig.iterate(Duration::from_millis(5));
    drop(writer);
    assert_eq!(rig.bytes_of(read), Ok(vec![]));
    rig.assert_idle();
}

fn a_full_pipe_is_written_when_it_drains(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (mut reader, writer) = pipe();
    let sent = pattern(1 << 20);
    let mut rest = Bytes::from(sent.clone());
    let mut got = Vec::new();
    while got.len() < sent.len() {
        let write = (!rest.is_empty()).then(|| rig.write(writer.as_raw_fd(), &rest, None));
        rig.iterate(Duration::from_millis(2));
        let mut piece = [0; 30_000];
        let count = reader.read(&mut piece).unwrap();
        got.extend_from_slice(&piece[..count]);
        if let Some(write) = write {
            let count = rig.count_of(write).unwrap() as usize;
            assert!(count > 0);
            rest = rest.slice(count..);
        }
    }
    assert!(got == sent);
    drop(reader);
    let write = rig.write(writer.as_raw_fd(), b"x", None);
    assert_eq!(rig.count_of(write), Err(libc::EPIPE));
    rig.assert_idle();
}

fn files_are_read_and_written_at_offsets(backend: Backend) {
    let mut rig = Rig::new(backend);
    let file = temporary_file();
    let fd = file.as_raw_fd();
    let data = pattern(100_000);
    let tail = rig.write(fd, &data[50_000..], Some(50_000));
    let head = rig.write(fd, &data[..50_000], Some(0));
    assert_eq!(rig.count_of(tail), Ok(50_000));
    assert_eq!(rig.count_of(head), Ok(50_000));
    let all = rig.read(fd, 200_000, Some(0));
    let middle = rig.read(fd, 10, Some(70_000));
    let beyond = rig.read(fd, 10, Some(100_000));
    assert!(rig.bytes_of(all).unwrap() == data);
    assert_eq!(rig.bytes_of(middle), Ok(data[70_000..70_010].to_vec()));
    assert_eq!(rig.bytes_of(beyond), Ok(vec![]));
    rig.close(file);
    rig.assert_idle();
}

fn files_have_a_position(backend: Backend) {
    let mut rig = Rig::new(backend);
    let file = temporary_file();
    let fd = file.as_raw_fd();
    let write = rig.write(fd, b"one two", None);
    assert_eq!(rig.count_of(write), Ok(7));
    let read = rig.read(fd, 4, Some(0));
    assert_eq!(rig.bytes_of(read), Ok(b"one ".to_vec()));
    let at_end = rig.read(fd, 4, None);
    assert_eq!(rig.bytes_of(at_end), Ok(vec![]));
    // A regular file is always ready.
    let poll = rig.driver.poll(fd, Interest::Read, 2);
    assert_ne!(rig.result_of(poll).unwrap() & libc::POLLIN as u32, 0);
    rig.assert_idle();
}

fn temporary_file() -> std::fs::File {
    // SAFETY: a constant C string.
    let fd = unsafe { libc::memfd_create(c"uringcore-io".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: a fresh descriptor that nothing else owns.
    unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) }
}

fn a_cancelled_read_returns_its_buffer(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (reader, mut writer) = pipe();
    for settle in [false, true] {
        let read = rig.read(reader.as_raw_fd(), 100, None);
        if settle {
            rig.iterate(Duration::from_millis(1));
        }
        rig.driver.cancel(read);
        assert_eq!(rig.bytes_of(read), Err(libc::ECANCELED));
    }
    // The cancelled read has consumed nothing: data written afterwards is complete.
    writer.write_all(b"kept").unwrap();
    let read = rig.read(reader.as_raw_fd(), 4, None);
    assert_eq!(rig.bytes_of(read), Ok(b"kept".to_vec()));
    rig.assert_idle();
}

fn a_sleep_lasts_for_its_timeout(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, _theirs) = tcp_pair();
    for armed in [false, true] {
        // The driver waits once without a time-out, and once with a time-out that exceeds the kernel's range.
        let waker = rig.driver.waker();
        let thread = thread::spawn(move || {
            thread::sleep(Duration::from_millis(10));
            waker.wake();
        });
        assert_eq!(
            rig.driver.enter(Some(Duration::MAX)).unwrap(),
            Entered::Woken
        );
        thread.join().unwrap();
        // The eventfd's event may arrive after the wake was reported. This loop iteration consumes it.
        rig.iterate(Duration::ZERO);
        for micros in [1, 300, 1_000, 20_500] {
            if armed {
                // If the call also submits an operation, the kernel returns the number of submitted entries instead of
                // ETIME.
                rig.driver.recv(ours.as_raw_fd(), 1);
            }
            let limit = Duration::from_micros(micros);
            let start = Instant::now();
            assert_eq!(rig.driver.enter(Some(limit)).unwrap(), Entered::TimedOut);
            let elapsed = start.elapsed();
            assert!(elapsed >= limit, "{elapsed:?} instead of {limit:?}");
            assert!(
                elapsed < limit + Duration::from_secs(2),
                "{elapsed:?} instead of {limit:?}"
            );
        }
    }
}

fn an_idle_iteration_does_not_block(backend: Backend) {
    let mut rig = Rig::new(backend);
    rig.driver.waker().wake();
    assert_eq!(
        rig.driver.enter(Some(Duration::MAX)).unwrap(),
        Entered::Woken
    );
    let start = Instant::now();
    for _ in 0..1000 {
        assert_eq!(
            rig.driver.enter(Some(Duration::ZERO)).unwrap(),
            Entered::Ready
        );
    }
    assert!(start.elapsed() < Duration::from_secs(2));
}

fn a_wake_ends_a_sleep(backend: Backend) {
    let mut rig = Rig::new(backend);
    for timeout in [None, Some(Duration::from_secs(20))] {
        let waker = rig.driver.waker();
        let thread = thread::spawn(move || {
            thread::sleep(Duration::from_millis(30));
            waker.wake();
        });
        let start = Instant::now();
        assert_eq!(rig.driver.enter(timeout).unwrap(), Entered::Woken);
        assert!(start.elapsed() >= Duration::from_millis(20));
        thread.join().unwrap();
        rig.driver.take_completions(&mut rig.done);
        assert!(rig.done.is_empty());
    }
    assert_eq!(rig.driver.stats().wakes, 2);
}

fn a_wake_before_the_sleep_is_not_lost(backend: Backend) {
    let mut rig = Rig::new(backend);
    for _ in 0..100 {
        rig.driver.waker().wake();
        rig.driver.waker().wake();
        // A call that does not block must not consume the wake.
        assert_eq!(
            rig.driver.enter(Some(Duration::ZERO)).unwrap(),
            Entered::Ready
        );
        assert_eq!(rig.driver.enter(None).unwrap(), Entered::Woken);
    }
    assert_eq!(
        rig.driver.enter(Some(Duration::from_millis(1))).unwrap(),
        Entered::TimedOut
    );
}

/// Each thread raises its number and wakes the driver, which sleeps without a time-out and must see every number.
fn wakes_from_many_threads_are_never_lost(backend: Backend) {
    let mut rig = Rig::new(backend);
    let rounds = 20_000;
    let raised = Arc::new(AtomicU64::new(0));
    let seen = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (waker, raised, seen) =
                (rig.driver.waker(), Arc::clone(&raised), Arc::clone(&seen));
            thread::spawn(move || {
                for round in 0..rounds {
                    let mine = raised.fetch_add(1, Ordering::SeqCst) + 1;
                    waker.wake();
                    // In a quarter of the rounds the thread waits until the other thread has read its number, so that
                    // the driver sleeps.
                    while round % 4 == 0 && seen.load(Ordering::SeqCst) < mine {
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    let watchdog = {
        let (waker, seen) = (rig.driver.waker(), Arc::clone(&seen));
        thread::spawn(move || {
            let mut last = 0;
            loop {
                for _ in 0..100 {
                    thread::sleep(Duration::from_millis(100));
                    if seen.load(Ordering::SeqCst) == 3 * rounds {
                        return true;
                    }
                }
                if seen.load(Ordering::SeqCst) == last {
                    // The driver has slept for ten seconds although a number was raised, so a wake was lost.
                    seen.store(u64::MAX, Ordering::SeqCst);
                    waker.wake();
                    return false;
                }
                last = seen.load(Ordering::SeqCst);
            }
        })
    };
    while seen.load(Ordering::SeqCst) < 3 * rounds {
        rig.driver.enter(None).unwrap();
        rig.driver.take_completions(&mut rig.done);
        let now = raised.load(Ordering::SeqCst);
        seen.fetch_max(now, Ordering::SeqCst);
    }
    assert!(watchdog.join().unwrap(), "a wake was lost");
    for thread in threads {
        thread.join().unwrap();
    }
}

fn a_waker_outlives_its_driver(backend: Backend) {
    let rig = Rig::new(backend);
    let waker = rig.driver.waker();
    drop(rig);
    waker.wake();
    waker.clone().wake();
}

fn needs_enter_is_true_while_there_is_work(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    rig.iterate(Duration::ZERO);
    rig.iterate(Duration::ZERO);
    assert!(!rig.driver.needs_enter());
    let recv = rig.driver.recv(ours.as_raw_fd(), 1);
    assert!(rig.driver.needs_enter());
    rig.iterate(Duration::ZERO);
    theirs.write_all(b"x").unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    while !rig.driver.needs_enter() {
        assert!(
            Instant::now() < deadline,
            "data arrived without a completion"
        );
    }
    assert_eq!(rig.read_exactly(recv, 1), b"x");
    rig.close(ours);
}

fn a_signal_interrupts_a_sleep(backend: Backend) {
    extern "C" fn nothing(_: i32) {}
    let mut rig = Rig::new(backend);
    // SAFETY: the handler does nothing. SA_RESTART must not restart the wait.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut());
    }
    let (ours, _theirs) = tcp_pair();
    for armed in [false, true] {
        if armed {
            rig.driver.recv(ours.as_raw_fd(), 1);
        }
        // SAFETY: no arguments.
        let sleeper = unsafe { libc::pthread_self() };
        let thread = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            // SAFETY: the sleeping thread joins this thread before it ends.
            unsafe { libc::pthread_kill(sleeper, libc::SIGUSR2) };
        });
        assert_eq!(
            rig.driver.enter(Some(Duration::from_secs(20))).unwrap(),
            Entered::Interrupted
        );
        thread.join().unwrap();
    }
}
