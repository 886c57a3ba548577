//! Events for a host, in the order in which they happened, and the received data in them.

use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};

use bytes::Bytes;
use uringcore_io::{Datagram, Errno, Outcome, RecvBuf, SockAddr};

use crate::generational_slab::Key;
use crate::readiness_watchers::{Direction, Readiness};

/// Received bytes of a stream. They are in a buffer of the driver, or were copied out of it because the reader was
/// paused and other streams need the buffer.
pub enum StreamBytes {
    Buffer(RecvBuf),
    Copied(Bytes),
}

impl StreamBytes {
    /// Copies the bytes behind the first `taken` bytes out of the driver's buffer, and returns the copy.
    pub fn into_rest(self, taken: usize) -> Bytes {
        match self {
            Self::Buffer(buf) => Bytes::copy_from_slice(&buf[taken..]),
            Self::Copied(mut bytes) => bytes.split_off(taken),
        }
    }

    /// Appends `next`, if it continues these bytes in the stream and they were separated only by the end of a buffer.
    /// Otherwise, or if too many bytes would have to be copied, returns `next`.
    pub(crate) fn join(&mut self, next: RecvBuf) -> Result<(), RecvBuf> {
        let Self::Buffer(cut) = self else {
            return Err(next);
        };
        if !cut.ends_its_buffer() || cut.len() + next.len() > JOINED_BYTES_MAX {
            return Err(next);
        }
        if let Err(next) = cut.append(next) {
            *self = Self::Copied([&cut[..], &next[..]].concat().into());
        }
        Ok(())
    }
}

/// The maximum number of bytes that are joined: those of one network segment, or of a few small ones.
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

/// A received datagram. It is in a buffer of the driver, or was copied out of it.
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

    /// The sender's address as the kernel returned it. Its length is zero if the datagram has no sender address.
    pub fn raw_remote(&self) -> SockAddr {
        match self {
            Self::Buffer(datagram) => datagram.raw_remote(),
            Self::Copied(copy) => copy.from.clone(),
        }
    }

    /// Copies the datagram out of the driver's buffer, which other sockets need.
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
    /// Accepting has failed, and the listener has stopped. The host calls
    /// [`Listeners::resume`](crate::Listeners::resume) to accept again.
    AcceptFailed {
        listener: Key,
        error: Errno,
    },
    StreamData {
        stream: Key,
        data: StreamBytes,
    },
    /// The stream has data or has ended, and its last receives were large. The host receives from the socket into its
    /// own memory, as many bytes as it wants, and reports the result with
    /// [`Transports::received`](crate::Transports::received). If the program can close the descriptor, the host first
    /// checks that the number still belongs to the stream.
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
    /// The write queue has fallen to its low mark, after it was above its high mark.
    Writable {
        transport: Key,
    },
    /// The write queue is empty. There is one event for each call of
    /// [`Transports::notify_when_flushed`](crate::Transports::notify_when_flushed).
    Flushed {
        transport: Key,
    },
    /// A receive or a send of a stream has failed, which ends the stream. [`EngineEvent::Lost`] follows.
    Failed {
        transport: Key,
        side: Direction,
        error: Errno,
    },
    /// The transport has ended: it reads and sends nothing more. Bytes that were written before `close` are in the
    /// kernel or were dropped. The host keeps the descriptor until it calls
    /// [`Transports::release`](crate::Transports::release).
    Lost {
        transport: Key,
    },
    /// The last event of a released transport. None of its operations is in flight.
    Closed {
        transport: Key,
    },
    /// A watched descriptor is ready. The next flush arms the watcher again. The host compares the serial number with
    /// that of its registration, because an earlier callback may have replaced the registration.
    PollReady(Readiness),
    /// The result of a single operation.
    OpDone {
        op: Key,
        outcome: Outcome,
    },
    /// A QUIC socket has events of connections, which [`QuicSocket::poll_event`](crate::QuicSocket::poll_event)
    /// returns.
    QuicReady {
        socket: Key,
    },
    /// The last event of a QUIC socket.
    QuicClosed {
        socket: Key,
    },
}
