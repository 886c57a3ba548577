//! Events for a host, one [`EngineEvent`] at a time, in the order in which they happened; and received data.

use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};

use bytes::Bytes;
use uringcore_io::{Datagram, Errno, Outcome, RecvBuf, SockAddr};

use crate::slab::Key;
use crate::watchers::{Direction, Readiness};

/// Received stream bytes: in a buffer of the driver, or copied out of it, once, because the reader was paused and others
/// need the buffer.
pub enum StreamBytes {
    Buffer(RecvBuf),
    Copied(Bytes),
}

impl StreamBytes {
    /// Returns all but the first `taken` bytes, copied out of the driver's buffer.
    pub fn into_rest(self, taken: usize) -> Bytes {
        match self {
            Self::Buffer(buf) => Bytes::copy_from_slice(&buf[taken..]),
            Self::Copied(mut bytes) => bytes.split_off(taken),
        }
    }

    /// Appends `next` to bytes that the end of their buffer has cut off from it. False if nothing was cut, or if the
    /// copy would be large.
    pub(crate) fn join(&mut self, next: &RecvBuf) -> bool {
        let Self::Buffer(cut) = self else {
            return false;
        };
        if !cut.ends_its_buffer() || cut.len() + next.len() > JOINED_BYTES_MAX {
            return false;
        }
        *self = Self::Copied([&cut[..], &next[..]].concat().into());
        true
    }
}

/// Bytes of one segment at most, or of a few small ones.
const JOINED_BYTES_MAX: usize = 16 * 1024;

impl std::ops::Deref for StreamBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Buffer(buf) => buf,
            Self::Copied(bytes) => bytes,
        }
    }
}

/// A received datagram: in a buffer of the driver, or copied out of it.
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

    /// The sender's IP address and port. `None` for another address family.
    pub fn remote(&self) -> Option<SocketAddr> {
        match self {
            Self::Buffer(datagram) => datagram.remote(),
            Self::Copied(copy) => copy.remote,
        }
    }

    /// The sender's address in the kernel's form. Its length is zero if there is none.
    pub fn raw_remote(&self) -> SockAddr {
        match self {
            Self::Buffer(datagram) => datagram.raw_remote(),
            Self::Copied(copy) => copy.from.clone(),
        }
    }

    /// Copies the datagram out of the driver's buffer, which others need.
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

const _: () = assert!(size_of::<EngineEvent>() <= 48);

pub enum EngineEvent {
    /// A listener has accepted a connection.
    Accepted {
        listener: Key,
        fd: OwnedFd,
    },
    /// Accepting failed and has stopped. The host calls [`Listeners::resume`](crate::Listeners::resume) to accept again.
    AcceptFailed {
        listener: Key,
        error: Errno,
    },
    StreamData {
        stream: Key,
        data: StreamBytes,
    },
    /// The stream has data or its end, and its last receives were large. The host receives from the socket into its own
    /// memory, as much as it likes, and reports the result by [`Transports::received`](crate::Transports::received). If
    /// the program can close the descriptor, the host checks first that the number is still the stream's.
    StreamReadable {
        stream: Key,
        fd: RawFd,
    },
    /// The peer has finished sending. Nothing more is read.
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
    /// The write queue has fallen to its low mark after it was above the high one.
    Writable {
        transport: Key,
    },
    /// The write queue is empty. One event for each call of
    /// [`Transports::notify_when_flushed`](crate::Transports::notify_when_flushed).
    Flushed {
        transport: Key,
    },
    /// A receive or a send of a stream failed, which ends the stream. [`EngineEvent::Lost`] follows.
    Failed {
        transport: Key,
        side: Direction,
        error: Errno,
    },
    /// Nothing is read or sent any more: the bytes written before `close` are with the kernel, or dropped. The host keeps
    /// the descriptor until it calls [`Transports::release`](crate::Transports::release).
    Lost {
        transport: Key,
    },
    /// The last event of a released transport: none of its operations is in flight.
    Closed {
        transport: Key,
    },
    /// A watched descriptor was ready. The next flush arms the watcher again. The host compares the serial number with
    /// the one of its registration, because a callback before this event may have replaced it.
    PollReady(Readiness),
    /// The result of a single operation.
    OpDone {
        op: Key,
        outcome: Outcome,
    },
    /// A QUIC socket has events of connections, for [`QuicSocket::poll_event`](crate::QuicSocket::poll_event).
    QuicReady {
        socket: Key,
    },
    /// The last event of a QUIC socket.
    QuicClosed {
        socket: Key,
    },
}
