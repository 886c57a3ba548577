//! A self-test of io_uring: one multishot receive through a small ring with the driver's flags.
//!
//! A ring may be set up and not work: a filter of system calls may block only `io_uring_enter`, and an emulated
//! kernel may accept operations that it does not support. The test takes some tens of microseconds for each driver.
//! Without it the program would fail later, instead of using epoll.

use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};

use super::queue_entries::CompletionEntry;
use super::setup::{STREAM_GROUP, Step, buffers, builder};

/// Receives a byte and the end of a stream. Fails if io_uring does not return them.
pub(super) fn run(step: Step) -> io::Result<()> {
    let mut ring: IoUring = builder(step).build(4)?;
    // Two buffers, because the end of a stream takes one for a moment, too.
    let pool = buffers(&ring, STREAM_GROUP, 2, 2048, 0)?;
    let (ours, mut theirs) = UnixStream::pair()?;
    theirs.write_all(&[BYTE])?;
    let entry = opcode::RecvMulti::new(Fd(ours.as_raw_fd()), STREAM_GROUP).build();
    // SAFETY: the entry points to nothing; the buffers live in `pool`.
    unsafe { ring.submission().push(&entry) }.map_err(|_| unknown())?;
    let first = wait(&mut ring);
    drop(theirs);
    let received = first
        .as_ref()
        .ok()
        .filter(|event| event.more() && event.result == 1)
        .and_then(|event| event.buffer());
    let last = if received.is_some() {
        wait(&mut ring).map(|event| event.result)
    } else {
        Err(unknown())
    };
    if !matches!(last, Ok(0)) {
        // The kernel may still execute the receive, so the buffers are leaked: two pages.
        pool.leak();
        return Err(first.err().or(last.err()).unwrap_or_else(unknown));
    }
    let right = received.is_some_and(|id| *pool.filled(id, 1, false) == [BYTE]);
    pool.detach();
    if right { Ok(()) } else { Err(unknown()) }
}

fn wait(ring: &mut IoUring) -> io::Result<CompletionEntry> {
    let limit = Timespec::from(Duration::from_secs(1));
    ring.submitter()
        .submit_with_args(1, &SubmitArgs::new().timespec(&limit))?;
    ring.completion()
        .next()
        .map(|entry| CompletionEntry::new(&entry))
        .ok_or_else(unknown)
}

fn unknown() -> io::Error {
    io::Error::from_raw_os_error(libc::EOPNOTSUPP)
}

const BYTE: u8 = 0x5a;
