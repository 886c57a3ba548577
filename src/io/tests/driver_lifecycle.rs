//! The driver's lifecycle: set-up and its failures, threads, forks, the end.

mod common;

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::*;
use uringcore_io::{
    Backend, Driver, DriverConfig, Entered, Errno, OpId, Outcome, PerProcess, SetupError,
};

both_backends!(
    the_requested_backend_is_used,
    operations_queued_on_one_thread_run_on_another,
    an_idle_driver_moves_to_another_thread,
    a_forked_child_and_its_parent_both_continue,
    a_forked_grandchild_continues,
    dropping_with_file_reads_in_flight_frees_nothing_early,
    dropping_on_a_foreign_thread_is_safe,
    buffers_outlive_the_driver,
    operations_after_shutdown_are_cancelled,
    shutdown_is_prompt,
);

fn the_requested_backend_is_used(backend: Backend) {
    let rig = Rig::new(backend);
    assert_eq!(rig.driver.backend(), backend);
    assert_eq!(rig.driver.fallback_reason(), None);
    assert_eq!(
        backend.as_str(),
        if backend == Backend::Uring {
            "uring"
        } else {
            "epoll"
        }
    );
}

#[test]
fn automatic_selection_uses_io_uring() {
    let driver = Driver::new(&DriverConfig::default()).unwrap();
    assert_eq!(
        driver.backend(),
        Backend::Uring,
        "{:?}",
        driver.fallback_reason()
    );
}

/// Calls `Driver::new` on a thread on which these system calls fail with `errno`, and returns its result. A seccomp
/// filter affects only the thread that installs it.
fn with_blocked(
    calls: &'static [i64],
    errno: i32,
    backend: Option<Backend>,
) -> Result<(Backend, Option<String>), SetupError> {
    let work = move || {
        block_calls(calls, errno);
        let mut driver = Driver::new(&DriverConfig {
            backend,
            ..DriverConfig::default()
        })?;
        assert_eq!(
            driver.enter(Some(Duration::from_millis(1))).unwrap(),
            Entered::TimedOut
        );
        Ok((
            driver.backend(),
            driver.fallback_reason().map(str::to_owned),
        ))
    };
    thread::spawn(work).join().unwrap()
}

fn block_calls(calls: &[i64], errno: i32) {
    let statement = |code: u32, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for &call in calls {
        let mut jump = statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32);
        jump.jf = 1;
        program.push(jump);
        program.push(statement(
            libc::BPF_RET | libc::BPF_K,
            libc::SECCOMP_RET_ERRNO | errno as u32,
        ));
    }
    program.push(statement(
        libc::BPF_RET | libc::BPF_K,
        libc::SECCOMP_RET_ALLOW,
    ));
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: a valid program; it restricts this thread only.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter),
            0,
            "{}",
            std::io::Error::last_os_error()
        );
    }
}

const SETUP: i64 = libc::SYS_io_uring_setup;
const ENTER: i64 = libc::SYS_io_uring_enter;
const REGISTER: i64 = libc::SYS_io_uring_register;

#[test]
fn a_blocked_ring_that_was_requested_is_an_error_with_an_explanation() {
    for errno in [libc::EPERM, libc::ENOSYS] {
        for calls in [&[SETUP, ENTER, REGISTER][..], &[REGISTER], &[ENTER]] {
            let error = with_blocked(calls, errno, Some(Backend::Uring)).unwrap_err();
            assert_eq!(
                (error.backend(), error.errno()),
                (Backend::Uring, Errno(errno))
            );
            let text = error.to_string();
            for words in [
                "io_uring is not available",
                "seccomp",
                "container profile",
                "epoll",
            ] {
                assert!(text.contains(words), "{words:?} is not in {text:?}");
            }
        }
    }
    let text = with_blocked(&[SETUP], libc::ENOMEM, Some(Backend::Uring))
        .unwrap_err()
        .to_string();
    assert!(text.contains("RLIMIT_MEMLOCK"), "{text}");
}

/// A filter that allows io_uring may reject a call that both backends need. Then the error names that call.
#[test]
fn a_blocked_call_that_both_backends_need_is_named() {
    for backend in [Backend::Uring, Backend::Epoll] {
        for (calls, name) in [
            (&[libc::SYS_eventfd2], "eventfd2"),
            (&[libc::SYS_madvise], "madvise"),
        ] {
            // If another test has run before in this process, the page that detects forks is mapped already. Then
            // nothing fails.
            let Err(error) = with_blocked(calls, libc::EPERM, Some(backend)) else {
                assert_eq!(name, "madvise");
                continue;
            };
            let text = error.to_string();
            assert_eq!(
                (error.backend(), error.errno()),
                (backend, Errno(libc::EPERM))
            );
            assert!(text.contains(&format!("blocks {name}")), "{text}");
            assert!(!text.contains("io_uring_setup in"), "{text}");
        }
    }
}

#[test]
fn a_blocked_ring_falls_back_to_epoll_with_a_reason() {
    for calls in [&[SETUP][..], &[ENTER]] {
        let (backend, reason) = with_blocked(calls, libc::EPERM, None).unwrap();
        assert_eq!(backend, Backend::Epoll);
        assert!(reason.unwrap().contains("seccomp"));
    }
    // A driver that was requested with epoll never calls io_uring, and has no fallback reason.
    let asked = with_blocked(&[SETUP, ENTER, REGISTER], libc::EPERM, Some(Backend::Epoll)).unwrap();
    assert_eq!(asked, (Backend::Epoll, None));
}

#[test]
fn timeouts_work_without_epoll_pwait2() {
    let (backend, _) = with_blocked(
        &[libc::SYS_epoll_pwait2],
        libc::ENOSYS,
        Some(Backend::Epoll),
    )
    .unwrap();
    assert_eq!(backend, Backend::Epoll);
}

#[test]
fn settings_out_of_range_are_errors() {
    for config in [
        DriverConfig {
            ring_entries: 0,
            ..DriverConfig::default()
        },
        DriverConfig {
            stream_buffers: 3,
            ..DriverConfig::default()
        },
        DriverConfig {
            stream_buffers: 0,
            ..DriverConfig::default()
        },
        DriverConfig {
            datagram_buffers: 40_000,
            ..DriverConfig::default()
        },
        DriverConfig {
            stream_buffer_size: 0,
            ..DriverConfig::default()
        },
    ] {
        for backend in [Backend::Uring, Backend::Epoll] {
            let error = Driver::new(&DriverConfig {
                backend: Some(backend),
                ..config.clone()
            })
            .unwrap_err();
            assert!(error.to_string().contains("DriverConfig"), "{error}");
        }
    }
}

fn operations_queued_on_one_thread_run_on_another(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    let recv = rig.driver.recv(ours.as_raw_fd(), 1);
    let send = rig
        .driver
        .send(ours.as_raw_fd(), Bytes::from_static(b"hello"), 2);
    let mover = SentRig(rig);
    thread::spawn(move || {
        let mut rig = { mover }.0;
        assert_eq!(rig.result_of(send), Ok(5));
        theirs.write_all(b"world").unwrap();
        assert_eq!(rig.read_exactly(recv, 5), b"world");
    })
    .join()
    .unwrap();
}

/// The rig has a queue of completions, which may hold buffers, so it is not `Send`. `SentRig` moves it to a thread
/// while the queue is empty.

#[test]
fn a_second_thread_is_refused_while_operations_are_in_flight() {
    let mut rig = Rig::new(Backend::Uring);
    let (ours, mut theirs) = tcp_pair();
    let recv = rig.driver.recv(ours.as_raw_fd(), 1);
    rig.iterate(Duration::ZERO);
    let mover = SentRig(rig);
    let mover = thread::spawn(move || {
        let mut rig = { mover }.0;
        for _ in 0..2 {
            let error = rig
                .driver
                .enter(Some(Duration::from_millis(1)))
                .unwrap_err();
            assert!(error.to_string().contains("thread"), "{error}");
        }
        SentRig(rig)
    })
    .join()
    .unwrap();
    // The first thread can still use the driver.
    let mut rig = { mover }.0;
    theirs.write_all(b"x").unwrap();
    assert_eq!(rig.read_exactly(recv, 1), b"x");
    rig.close(ours);
    rig.next_of(recv);
    rig.assert_idle();
}

/// A loop that ran in a background thread is often ended from the main thread.
fn an_idle_driver_moves_to_another_thread(backend: Backend) {
    let mut rig = Rig::new(backend);
    for _ in 0..20 {
        let mover = SentRig(rig);
        let round = move || {
            let mut rig = { mover }.0;
            let (ours, mut theirs) = tcp_pair();
            let recv = rig.driver.recv(ours.as_raw_fd(), 1);
            theirs.write_all(b"ping").unwrap();
            assert_eq!(rig.read_exactly(recv, 4), b"ping");
            rig.driver.waker().wake();
            assert_eq!(rig.driver.enter(None).unwrap(), Entered::Woken);
            rig.close(ours);
            rig.next_of(recv);
            rig.assert_idle();
            SentRig(rig)
        };
        rig = { thread::spawn(round).join().unwrap() }.0;
    }
    assert_eq!(
        rig.driver.enter(Some(Duration::from_millis(1))).unwrap(),
        Entered::TimedOut
    );
}

fn a_forked_child_and_its_parent_both_continue(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    let (for_child, mut to_child) = tcp_pair();
    let recv = rig.driver.recv(ours.as_raw_fd(), 1);
    let in_child = rig.driver.recv(for_child.as_raw_fd(), 4);
    rig.iterate(Duration::ZERO);
    // This send is queued and not submitted at the fork. Only the parent may send it.
    let send = rig
        .driver
        .send(ours.as_raw_fd(), Bytes::from_static(b"once"), 2);
    let child = forked(|| {
        let well = child_continues(&mut rig, in_child, send, &for_child, &mut to_child);
        well && child_can_have_its_own(backend)
    });
    assert_ends_well(child);
    assert_eq!(rig.result_of(send), Ok(4));
    theirs.write_all(b"still here").unwrap();
    assert_eq!(rig.read_exactly(recv, 10), b"still here");
    rig.driver.waker().wake();
    assert_eq!(rig.driver.enter(None).unwrap(), Entered::Woken);
    rig.close(ours);
    // io_uring may interrupt a blocking read of this thread when it completes work for the other socket. So the read is
    // repeated.
    let mut sent = Vec::new();
    theirs.read_to_end(&mut sent).unwrap();
    assert_eq!(sent, b"once");
    rig.next_of(recv);
    rig.close(for_child);
    rig.next_of(in_child);
    rig.assert_idle();
}

/// Checks in the child that waiting operations complete, that operations which the parent has begun are not repeated,
/// and that wakes are the child's own. True if all of it holds.
fn child_continues(
    rig: &mut Rig,
    recv: OpId,
    begun: OpId,
    stream: &std::net::TcpStream,
    peer: &mut std::net::TcpStream,
) -> bool {
    let send = rig
        .driver
        .send(stream.as_raw_fd(), Bytes::from_static(b"from the child"), 3);
    let sent = rig.result_of(send) == Ok(14);
    let begun = rig.result_of(begun) == Err(libc::ECANCELED);
    let mut heard = [0; 14];
    let heard = peer.read_exact(&mut heard).is_ok() && heard == *b"from the child";
    let reported =
        peer.write_all(b"to the child").is_ok() && rig.read_exactly(recv, 12) == b"to the child";
    rig.driver.waker().wake();
    let woken = matches!(rig.driver.enter(None), Ok(Entered::Woken));
    sent && begun && heard && reported && woken
}

/// The child between the parent and the grandchild has not entered the driver.
fn a_forked_grandchild_continues(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = unix_pair();
    let recv = rig.driver.recv(ours.as_raw_fd(), 1);
    rig.iterate(Duration::ZERO);
    let child = forked(|| {
        rig.driver.after_fork_in_child();
        let cancelled = rig.driver.recv(ours.as_raw_fd(), 2);
        rig.driver.cancel(cancelled);
        let grandchild = forked(|| {
            let reported = theirs.write_all(b"grandchild").is_ok();
            reported && rig.read_exactly(recv, 10) == b"grandchild"
        });
        // The receive begins only now. An earlier one would take the grandchild's bytes.
        let went_on = ended_well(grandchild);
        let outcome = rig.next_of(cancelled).outcome;
        went_on && matches!(outcome, Outcome::Received(Err(Errno::CANCELED)))
    });
    assert_ends_well(child);
    theirs.write_all(b"parent").unwrap();
    assert_eq!(rig.read_exactly(recv, 6), b"parent");
}

#[test]
fn a_forked_child_creates_its_own_values_and_does_not_touch_its_parents() {
    static VALUES: PerProcess<Mutex<Vec<u8>>> = PerProcess::new();
    let field = PerProcess::<Mutex<Vec<u8>>>::new();
    VALUES.get().lock().unwrap().push(1);
    // The lock is held during the fork, as another thread may hold it.
    let mut held = field.get().lock().unwrap();
    held.push(2);
    let parents = VALUES.get();
    let child = forked(|| {
        let fresh = VALUES.get();
        let is_fresh = fresh.lock().unwrap().is_empty() && !std::ptr::eq(fresh, parents);
        let is_kept = parents.lock().unwrap().as_slice() == [1];
        fresh.lock().unwrap().push(3);
        let grandchild = forked(|| VALUES.get().lock().unwrap().is_empty());
        is_fresh
            && is_kept
            && field.get().try_lock().is_ok_and(|value| value.is_empty())
            && VALUES.get().lock().unwrap().as_slice() == [3]
            && ended_well(grandchild)
    });
    assert_ends_well(child);
    assert_eq!(held.as_slice(), [2]);
    drop(held);
    assert!(std::ptr::eq(VALUES.get(), parents));
    assert_eq!(parents.lock().unwrap().as_slice(), [1]);
}

/// Runs `run` in a forked child, which ends afterwards. Returns the child's process ID.
fn forked(run: impl FnOnce() -> bool) -> libc::pid_t {
    // SAFETY: the child uses only the driver and its own memory, and leaves with `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let status = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        // SAFETY: ends the child without running the test harness's exit code.
        unsafe { libc::_exit(if status.unwrap_or(false) { 0 } else { 1 }) };
    }
    child
}

fn ended_well(child: libc::pid_t) -> bool {
    let mut status = 0;
    // SAFETY: this process's own child and a live integer.
    unsafe { libc::waitpid(child, &raw mut status, 0) == child && status == 0 }
}

fn assert_ends_well(child: libc::pid_t) {
    assert!(ended_well(child), "the child failed");
}

fn child_can_have_its_own(backend: Backend) -> bool {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = unix_pair();
    let recv = rig.driver.recv(ours.as_raw_fd(), 1);
    theirs.write_all(b"child").is_ok() && rig.read_exactly(recv, 5) == b"child"
}

/// The kernel reads files into buffers while the ring is dropped, and still writes to these buffers. So they must not
/// be freed: memory that is allocated afterwards must not change.
fn dropping_with_file_reads_in_flight_frees_nothing_early(backend: Backend) {
    let path = format!(
        "{}/cold-{}-{backend:?}",
        env!("CARGO_TARGET_TMPDIR"),
        std::process::id()
    );
    let mut file = std::fs::File::options()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let piece = 256 * 1024;
    for _ in 0..64 {
        file.write_all(&vec![0xff; piece]).unwrap();
    }
    file.sync_all().unwrap();
    for _ in 0..5 {
        // SAFETY: no pointers. The call removes the file from the page cache, so that worker threads read it.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        let mut rig = Rig::new(backend);
        for number in 0..64u64 {
            let offset = Some(number * piece as u64);
            rig.read(file.as_raw_fd(), piece, offset);
        }
        rig.driver.enter(Some(Duration::ZERO)).unwrap();
        drop(rig);
        let fresh: Vec<Vec<u8>> = (0..64).map(|_| vec![0xaa; piece]).collect();
        thread::sleep(Duration::from_millis(20));
        assert!(
            fresh.iter().flatten().all(|&byte| byte == 0xaa),
            "freed memory was written"
        );
    }
    std::fs::remove_file(path).unwrap();
}

fn dropping_on_a_foreign_thread_is_safe(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    rig.driver.recv(ours.as_raw_fd(), 1);
    rig.read(ours.as_raw_fd(), 100, None);
    rig.iterate(Duration::ZERO);
    let mover = SentRig(rig);
    thread::spawn(move || drop({ mover }.0)).join().unwrap();
    let _ = theirs.write_all(b"into the void");
    thread::sleep(Duration::from_millis(10));
}

fn buffers_outlive_the_driver(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    let recv = rig.driver.recv(ours.as_raw_fd(), 1);
    theirs.write_all(b"keepsake").unwrap();
    let Outcome::Received(Ok(buffer)) = rig.next_of(recv).outcome else {
        panic!()
    };
    assert_eq!(rig.driver.stats().buffers_out, 1);
    drop(rig);
    theirs.write_all(&pattern(100_000)).unwrap();
    assert_eq!(&*buffer, b"keepsake");
}

fn operations_after_shutdown_are_cancelled(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (ours, mut theirs) = tcp_pair();
    let fd = ours.as_raw_fd();
    rig.driver.recv(fd, 1);
    rig.iterate(Duration::ZERO);
    rig.driver.shutdown(Duration::from_secs(1));
    assert_eq!(rig.driver.stats().in_flight, 0);
    assert!(rig.driver.enter(None).is_err());
    let late = rig.driver.recv(fd, 2);
    let close = rig.driver.close(ours.into(), 3);
    rig.driver.take_completions(&mut rig.done);
    assert!(matches!(
        rig.take(late).unwrap().outcome,
        Outcome::Received(Err(Errno::CANCELED))
    ));
    assert!(matches!(
        rig.take(close).unwrap().outcome,
        Outcome::Done(Err(Errno::CANCELED))
    ));
    assert!(rig.done.is_empty());
    assert!(!rig.driver.needs_enter());
    // The close was executed although the driver has ended.
    assert_eq!(theirs.read(&mut [0; 1]).unwrap(), 0);
    rig.driver.shutdown(Duration::from_secs(1));
}

fn shutdown_is_prompt(backend: Backend) {
    let pairs: Vec<_> = (0..200).map(|_| tcp_pair()).collect();
    let (listener, _) = listener();
    let mut rig = Rig::new(backend);
    rig.driver.accept(listener.as_raw_fd(), 0);
    for (ours, _) in &pairs {
        rig.driver.recv(ours.as_raw_fd(), 1);
        rig.driver
            .send(ours.as_raw_fd(), Bytes::from(vec![0; 1 << 20]), 2);
        rig.driver
            .poll(ours.as_raw_fd(), uringcore_io::Interest::Read, 3);
    }
    rig.iterate(Duration::ZERO);
    let start = Instant::now();
    rig.driver.shutdown(Duration::from_secs(10));
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(rig.driver.stats().in_flight, 0);
}
