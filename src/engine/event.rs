//! What a host is told, one [`Event`] at a time, in the order in which it happened.

use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};

use bytes::Bytes;
use uringcore_io::{Datagram, Errno, Outcome, RecvBuf, SockAddr};

use crate::table::Key;
use crate::watchers::{Direction, Readiness};

/// Received stream bytes: still in the kernel's buffer, or copied out of it, once, because the reader was
/// paused and others wait for the buffer.
pub enum StreamBytes {
    Buffer(RecvBuf),
    Copied(Bytes),
}

impl StreamBytes {
    /// All but the first `taken` bytes, out of the kernel's buffer.
    pub fn into_rest(self, taken: usize) -> Bytes {
        match self {
            Self::Buffer(buf) => Bytes::copy_from_slice(&buf[taken..]),
            Self::Copied(mut bytes) => bytes.split_off(taken),
        }
    }
}

impl std::ops::Deref for StreamBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Buffer(buf) => buf,
            Self::Copied(bytes) => bytes,
        }
    }
}

/// A received datagram: still in the kernel's buffer, or copied out of it.
pub enum Received {
    Buffer(Datagram),
    Copied(Box<CopiedDatagram>),
}

pub struct CopiedDatagram {
    pub payload: Vec<u8>,
    pub remote: Option<SocketAddr>,
    pub from: SockAddr,
}

impl Received {
    pub fn payload(&self) -> &[u8] {
        match self {
            Self::Buffer(datagram) => datagram.payload(),
            Self::Copied(copy) => &copy.payload,
        }
    }

    /// The sender's IP address and port; `None` for another address family.
    pub fn remote(&self) -> Option<SocketAddr> {
        match self {
            Self::Buffer(datagram) => datagram.remote(),
            Self::Copied(copy) => copy.remote,
        }
    }

    /// The sender's address in the kernel's form; its length is zero when there is none.
    pub fn raw_remote(&self) -> SockAddr {
        match self {
            Self::Buffer(datagram) => datagram.raw_remote(),
            Self::Copied(copy) => copy.from.clone(),
        }
    }

    /// The same out of the kernel's buffer, which others wait for.
    pub(crate) fn into_copied(self) -> Box<CopiedDatagram> {
        match self {
            Self::Buffer(datagram) => Box::new(CopiedDatagram {
                payload: datagram.payload().to_vec(),
                remote: datagram.remote(),
                from: datagram.raw_remote(),
            }),
            Self::Copied(copy) => copy,
        }
    }
}

const _: () = assert!(size_of::<Event>() <= 48);

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
    /// Much has arrived lately, and there is more, or the end: the host receives from the socket into memory
    /// of its own, as much as it likes, and says what came of it with `received`. If others than the host know
    /// the descriptor it looks first whether that is still the stream's.
    StreamReadable {
        stream: Key,
        fd: RawFd,
    },
    /// The peer finished sending. Reading is over.
    StreamEof {
        stream: Key,
    },
    DatagramReceived {
        socket: Key,
        datagram: Received,
    },
    DatagramError {
        socket: Key,
        error: Errno,
    },
    /// The write queue fell to the low mark after having been above the high one.
    Writable {
        transport: Key,
    },
    /// The write queue is empty (told once when asked for with `notify_when_flushed`).
    Flushed {
        transport: Key,
    },
    /// Receiving or sending a stream failed, and it has ended. [`Event::Lost`] follows.
    Failed {
        transport: Key,
        side: Direction,
        error: Errno,
    },
    /// Nothing is read or sent any more: what was written before `close` is with the kernel, or dropped.
    /// The host has the descriptor until it answers with `release`.
    Lost {
        transport: Key,
    },
    /// The last event of a released transport: no operation of it is in flight any more.
    Closed {
        transport: Key,
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
