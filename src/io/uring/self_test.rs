//! A trial run: one multishot receive through a tiny ring of the same kind.
//!
//! A ring that can be set up need not work: a filter may block `io_uring_enter` alone, and an emulated kernel may
//! accept operations that it does not support. The trial costs some tens of microseconds a driver; without it the
//! user's program would fail.

use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};

use super::queue_entries::CompletionEntry;
use super::setup::{STREAM_GROUP, Step, buffers, builder};

/// Receives one byte and the end of the stream.
pub(super) fn run(step: Step) -> io::Result<()> {
    let mut ring: IoUring = builder(step).build(4)?;
    // Two: even the end of a stream takes a buffer for a moment.
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
        // The kernel may still hold the receive; a leaked page or two is a small price.
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
