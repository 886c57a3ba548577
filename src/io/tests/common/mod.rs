//! Helpers of this crate's tests: a driver that runs loop iterations until a condition holds, and sockets.
//!
//! [`both_backends!`] runs a test on both backends. On a machine that forbids io_uring the tests of that backend fail
//! instead of being skipped.

#![allow(dead_code)] // Each test binary uses only some of these helpers.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use uringcore_io::{
    Backend, Completion, Driver, DriverConfig, FileOutcome, FileRequest, OpId, Outcome, ReadTarget,
};

/// Makes the tests `name::uring` and `name::epoll` from a function that takes a backend.
#[macro_export]
macro_rules! both_backends {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            #[test]
            fn uring() {
                super::$name(uringcore_io::Backend::Uring);
            }
            #[test]
            fn epoll() {
                super::$name(uringcore_io::Backend::Epoll);
            }
        }
    )+};
}

/// The token of every file operation.
pub const FILE_TOKEN: u64 = 7;

/// A driver, and the completions that the test has not taken. Its methods panic if a wait takes too long.
pub struct Rig {
    pub driver: Driver,
    pub done: VecDeque<Completion>,
}

impl Rig {
    pub fn new(backend: Backend) -> Rig {
        Rig::with(DriverConfig {
            backend: Some(backend),
            ..DriverConfig::default()
        })
    }

    pub fn with(config: DriverConfig) -> Rig {
        let driver = Driver::new(&config).unwrap_or_else(|error| panic!("{error}"));
        Rig {
            driver,
            done: VecDeque::new(),
        }
    }

    /// Runs a loop iteration that waits at most `limit`.
    pub fn iterate(&mut self, limit: Duration) {
        self.driver.enter(Some(limit)).expect("enter");
        self.driver.take_completions(&mut self.done);
    }

    /// Runs loop iterations until `condition` holds.
    pub fn until(&mut self, what: &str, mut condition: impl FnMut(&mut Rig) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !condition(self) {
            assert!(
                Instant::now() < deadline,
                "{what} did not happen; {:?}, {:?}",
                self.done,
                self.driver.stats()
            );
            self.iterate(Duration::from_millis(200));
        }
    }

    /// Runs loop iterations until `op` has a completion, and takes it.
    pub fn next_of(&mut self, op: OpId) -> Completion {
        let mut found = None;
        self.until("a completion", |rig| {
            found = rig.take(op);
            found.is_some()
        });
        found.expect("just found")
    }

    pub fn take(&mut self, op: OpId) -> Option<Completion> {
        let position = self
            .done
            .iter()
            .position(|completion| completion.op() == op)?;
        self.done.remove(position)
    }

    /// The result of an operation that ends with a count.
    pub fn result_of(&mut self, op: OpId) -> Result<u32, i32> {
        let completion = self.next_of(op);
        assert!(!completion.more());
        match completion.outcome {
            Outcome::Done(result) => result.map_err(|errno| errno.0),
            other => panic!("not a count: {other:?}"),
        }
    }

    pub fn read(&mut self, fd: RawFd, size: usize, offset: Option<u64>) -> OpId {
        self.driver.file(read_request(fd, size, offset), FILE_TOKEN)
    }

    pub fn write(&mut self, fd: RawFd, data: &[u8], offset: Option<u64>) -> OpId {
        let data = Bytes::copy_from_slice(data);
        let request = FileRequest::Write { fd, data, offset };
        self.driver.file(Box::new(request), FILE_TOKEN)
    }

    /// The bytes of a `read`.
    pub fn bytes_of(&mut self, op: OpId) -> Result<Vec<u8>, i32> {
        match self.file_outcome(op) {
            FileOutcome::Read(Ok(count), target) => {
                let mut bytes = *target.into_owner().downcast::<Vec<u8>>().unwrap();
                bytes.truncate(count as usize);
                Ok(bytes)
            }
            FileOutcome::Read(Err(errno), _) => Err(errno.0),
            other => panic!("not a read: {other:?}"),
        }
    }

    /// The count of a `write`.
    pub fn count_of(&mut self, op: OpId) -> Result<u32, i32> {
        match self.file_outcome(op) {
            FileOutcome::Done(result) => result.map_err(|errno| errno.0),
            other => panic!("not a write: {other:?}"),
        }
    }

    pub fn file_outcome(&mut self, op: OpId) -> FileOutcome {
        let completion = self.next_of(op);
        assert!(!completion.more());
        assert_eq!(completion.token, FILE_TOKEN);
        match completion.outcome {
            Outcome::File(outcome) => *outcome,
            other => panic!("not a file operation's: {other:?}"),
        }
    }

    /// Collects stream data of a recv until the end of the stream.
    pub fn read_to_end(&mut self, op: OpId) -> Vec<u8> {
        let mut data = Vec::new();
        loop {
            let completion = self.next_of(op);
            let more = completion.more();
            match completion.outcome {
                Outcome::Received(Ok(piece)) if piece.is_empty() => {
                    assert!(!more);
                    return data;
                }
                Outcome::Received(Ok(piece)) => data.extend_from_slice(&piece),
                other => panic!("{other:?} after {} bytes", data.len()),
            }
        }
    }

    /// Collects exactly `length` bytes of a recv.
    pub fn read_exactly(&mut self, op: OpId, length: usize) -> Vec<u8> {
        let mut data = Vec::new();
        while data.len() < length {
            match self.next_of(op).outcome {
                Outcome::Received(Ok(piece)) if !piece.is_empty() => data.extend_from_slice(&piece),
                other => panic!("{other:?} after {} bytes", data.len()),
            }
        }
        assert_eq!(data.len(), length);
        data
    }

    pub fn accepted(&mut self, op: OpId) -> OwnedFd {
        match self.next_of(op).outcome {
            Outcome::Accepted(Ok(fd)) => fd,
            other => panic!("{other:?}"),
        }
    }

    pub fn close(&mut self, fd: impl Into<OwnedFd>) {
        let op = self.driver.close(fd.into(), 0);
        assert_eq!(self.result_of(op), Ok(0));
    }

    /// Asserts that nothing is in flight and no buffer is held.
    pub fn assert_idle(&mut self) {
        self.done.clear();
        self.until("idleness", |rig| {
            rig.done.clear();
            rig.driver.stats().in_flight == 0
        });
        assert_eq!(self.driver.stats().buffers_out, 0);
    }
}

pub fn read_request(fd: RawFd, size: usize, offset: Option<u64>) -> Box<FileRequest> {
    Box::new(FileRequest::Read {
        fd,
        target: ReadTarget::allocate(size),
        offset,
        kernel_thread: false,
    })
}

/// Allows that a rig is moved to another thread.
pub struct SentRig(pub Rig);
// SAFETY: buffers that share counters with the driver are only in the rig's queue, and move with it. A driver has no
// thread-local state.
unsafe impl Send for SentRig {}

pub fn loopback() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

pub fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(loopback()).unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A connected pair: a non-blocking end for the driver, and a blocking end for the test.
pub fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(loopback()).unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    (ours, theirs)
}

pub fn unix_pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    (ours, theirs)
}

pub fn udp_socket() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(loopback()).unwrap();
    socket.set_nonblocking(true).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// A pipe with two non-blocking ends.
pub fn pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    uringcore_io::net::set_nonblocking(reader.as_raw_fd(), true).unwrap();
    uringcore_io::net::set_nonblocking(writer.as_raw_fd(), true).unwrap();
    (reader, writer)
}

pub fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Pseudo-random bytes, so that lost, repeated or misplaced data shows.
pub fn pattern(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 24) as u8
        })
        .collect()
}

pub fn is_open(fd: RawFd) -> bool {
    std::path::Path::new(&format!("/proc/self/fd/{fd}")).exists()
}

/// Pseudo-random numbers (xorshift). A failing test prints its seed.
pub struct SeededRandom(u64);

impl SeededRandom {
    pub fn new(seed: u64) -> SeededRandom {
        SeededRandom(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit
    }
}
