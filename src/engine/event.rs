//! What a host is told, one [`Event`] at a time, in the order in which it happened.

use std::os::fd::OwnedFd;

use uringcore_io::{Datagram, Errno, Outcome, RecvBuf};

use crate::poll::Readiness;
use crate::table::Key;

/// Received stream bytes: still in the kernel's buffer, or copied out while the reader was paused.
pub enum StreamBytes {
    Buffer(RecvBuf),
    Copied(Vec<u8>),
}

impl std::ops::Deref for StreamBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Buffer(buf) => buf,
            Self::Copied(vec) => vec,
        }
    }
}

pub enum Event {
    /// A listener accepted a connection.
    Accepted {
        listener: Key,
        fd: OwnedFd,
    },
    /// Accepting failed and stopped; the host re-arms with `resume_listener` when it sees fit.
    AcceptFailed {
        listener: Key,
        error: Errno,
    },
    StreamData {
        stream: Key,
        data: StreamBytes,
    },
    /// The peer finished sending. Reading is over.
    StreamEof {
        stream: Key,
    },
    /// The write queue fell to the low-water mark after having been above the high one.
    StreamResumeWriting {
        stream: Key,
    },
    /// The write queue is empty (told only while asked for with `notify_when_drained`).
    StreamDrained {
        stream: Key,
    },
    /// The last event of a stream: no operation of it is in flight any more.
    StreamClosed {
        stream: Key,
        error: Option<Errno>,
    },
    DatagramReceived {
        socket: Key,
        datagram: Datagram,
    },
    DatagramError {
        socket: Key,
        error: Errno,
    },
    DatagramResumeWriting {
        socket: Key,
    },
    DatagramClosed {
        socket: Key,
        error: Option<Errno>,
    },
    /// A watched descriptor was ready. The watcher re-arms itself at the next flush. The host compares
    /// the serial with its own: a callback before this event may have registered somebody else.
    PollReady(Readiness),
    /// The one result of an operation that the host started with `start_op`.
    OpDone {
        op: Key,
        outcome: Outcome,
    },
    /// The endpoint has connection events to be polled.
    QuicReady {
        endpoint: Key,
    },
    /// The last event of an endpoint.
    QuicClosed {
        endpoint: Key,
    },
}
