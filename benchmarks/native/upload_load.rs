//! Upload load over TCP or TLS: N connections, each written as fast as the server accepts data.
//!
//! The protocol of the upload servers: a connection carries the repeated block and nothing else.
//! After the first 8 MiB the server answers with their count (8 bytes, big-endian) and SHA-256.
//! After each further piece of 1 MiB it answers with the count of all bytes received.
//!
//! The program measures those counts, because bytes in socket buffers have not been received yet.
//! It is one thread on one core; a MiB costs it the kernel's share, and with TLS the cipher.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};

use uringcore_bench::args::Args;
use uringcore_bench::report::Report;
use uringcore_bench::socket_channel::{self, Channel};
use uringcore_bench::upload::{self, COUNT, VERIFIED_ANSWER, VERIFIED_BYTES};
use uringcore_bench::{Failure, cpu, exit_with, pattern, process_memory};

/// The server answers each piece; a connection writes at most this much before the others get a
/// turn.
const PIECE: usize = 1 << 20;
/// The most that a connection writes ahead of the server's count. It is far more than sockets hold,
/// so that it bounds only the memory of a server whose loop continues to read although its reader
/// has paused.
const AHEAD_MAX: u64 = 64 << 20;
/// A server that accepts nothing for this long has failed.
const STALL: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    exit_with("upload_load", run())
}

fn run() -> Result<(), Failure> {
    let args = Args::from_env()?;
    let address: SocketAddr = args.required("addr")?;
    let server: u32 = args.required("pid")?;
    let connections: usize = args.required("connections")?;
    let warmup = Duration::from_secs_f64(args.required("warmup")?);
    let window = Duration::from_secs_f64(args.required("seconds")?);

    let channels = socket_channel::open(&args, address, connections, STALL)?;
    let mut load = Load::new(channels)?;
    load.verify()?;
    load.run_for(warmup)?;

    let cpu_before = cpu::cpu_ns(server)?;
    let before = load.taken();
    let begin = Instant::now();
    load.run_for(window)?;
    let seconds = begin.elapsed().as_secs_f64();
    let bytes = load.taken() - before;
    let cpu_ns = cpu::cpu_ns(server)? - cpu_before;

    load.drain()?;
    Report::default()
        .field("bytes", bytes as f64)
        .field("bytes_all", load.taken() as f64)
        .field("seconds", seconds)
        .field("server_cpu_ns", cpu_ns as f64)
        .field(
            "server_rss_bytes",
            process_memory::resident_bytes(server)? as f64,
        )
        .print();
    Ok(())
}

struct Load {
    poll: Poll,
    events: Events,
    uploads: Vec<Upload>,
}

impl Load {
    fn new(channels: Vec<Channel>) -> Result<Load, Failure> {
        let poll = Poll::new()?;
        let piece: Rc<[u8]> = pattern::block().repeat(PIECE / pattern::BLOCK).into();
        let count = channels.len();
        let mut uploads = Vec::with_capacity(count);
        for (index, mut channel) in channels.into_iter().enumerate() {
            channel.register(poll.registry(), Token(index))?;
            uploads.push(Upload::new(channel, index, Rc::clone(&piece)));
        }
        Ok(Load {
            poll,
            events: Events::with_capacity(count.clamp(1, 1024)),
            uploads,
        })
    }

    /// Returns the bytes received of all uploads, as reported by the server.
    fn taken(&self) -> u64 {
        self.uploads.iter().map(|one| one.taken).sum()
    }

    /// The verified upload on every connection.
    fn verify(&mut self) -> Result<(), Failure> {
        self.upload_until(|_| VERIFIED_BYTES)
    }

    /// Keeps every connection writing for `window`.
    fn run_for(&mut self, window: Duration) -> Result<(), Failure> {
        let end = Instant::now() + window;
        for upload in &mut self.uploads {
            upload.limit = u64::MAX;
        }
        while Instant::now() < end {
            self.turn()?;
        }
        Ok(())
    }

    /// Ends the pieces in progress and waits until the server has counted their last byte.
    fn drain(&mut self) -> Result<(), Failure> {
        self.upload_until(|upload| upload.sent.next_multiple_of(PIECE as u64))
    }

    /// Uploads to an offset of each stream and waits for the answer to it.
    fn upload_until(&mut self, limit: impl Fn(&Upload) -> u64) -> Result<(), Failure> {
        for upload in &mut self.uploads {
            upload.limit = limit(upload);
        }
        while self.uploads.iter().any(|one| one.taken < one.limit) {
            self.turn()?;
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<(), Failure> {
        let more = self.uploads.iter().any(Upload::can_send);
        let timeout = if more { Duration::ZERO } else { STALL };
        if let Err(error) = self.poll.poll(&mut self.events, Some(timeout)) {
            if error.kind() == ErrorKind::Interrupted {
                return Ok(());
            }
            return Err(error.into());
        }
        if self.events.is_empty() && !more {
            return Err(format!("nothing was taken on any connection for {STALL:?}").into());
        }
        for event in &self.events {
            let upload = &mut self.uploads[event.token().0];
            upload.writable |= event.is_writable();
            if event.is_readable() {
                upload.receive()?;
            }
        }
        for upload in &mut self.uploads {
            upload.send()?;
        }
        Ok(())
    }
}

struct Upload {
    channel: Channel,
    index: usize,
    piece: Rc<[u8]>,
    sent: u64,
    /// The offset at which sending stops.
    limit: u64,
    /// The last count from the server.
    taken: u64,
    /// The answer that is arriving.
    answer: [u8; VERIFIED_ANSWER],
    received: usize,
    /// False from a refused write until the next event: events are edge-triggered.
    writable: bool,
}

impl Upload {
    fn new(channel: Channel, index: usize, piece: Rc<[u8]>) -> Upload {
        Upload {
            channel,
            index,
            piece,
            sent: 0,
            limit: 0,
            taken: 0,
            answer: [0; VERIFIED_ANSWER],
            received: 0,
            writable: true,
        }
    }

    fn can_send(&self) -> bool {
        self.writable && self.sent < self.limit.min(self.taken + AHEAD_MAX)
    }

    /// Writes to the end of the piece, or as much of it as the socket accepts.
    fn send(&mut self) -> Result<(), Failure> {
        while self.can_send() {
            let at = (self.sent % PIECE as u64) as usize;
            match self.channel.write(&self.piece[at..]) {
                Ok(count) => self.sent += count as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) => return Err(self.failure(&error.into())),
            }
            if self.sent.is_multiple_of(PIECE as u64) {
                break;
            }
        }
        // Sends data that the TLS session still holds when the socket accepts it.
        self.channel
            .push()
            .map_err(|error| self.failure(&error.into()))
    }

    /// Reads the server's answers.
    fn receive(&mut self) -> Result<(), Failure> {
        loop {
            let due = if self.taken == 0 {
                VERIFIED_ANSWER
            } else {
                COUNT
            };
            match self.channel.read(&mut self.answer[self.received..due]) {
                Ok(0) => return Err(self.failure(&"closed by the server".into())),
                Ok(count) => self.received += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(self.failure(&error.into())),
            }
            if self.received == due {
                self.received = 0;
                self.answered(due).map_err(|error| self.failure(&error))?;
            }
        }
    }

    /// Checks a whole answer of `length` bytes.
    fn answered(&mut self, length: usize) -> Result<(), Failure> {
        let answer = &self.answer[..length];
        let taken = upload::count(answer)?;
        if length == VERIFIED_ANSWER {
            upload::check_verified(answer, &self.piece[..pattern::BLOCK])?;
        } else if taken <= self.taken || taken > self.sent || !taken.is_multiple_of(PIECE as u64) {
            let (before, sent) = (self.taken, self.sent);
            return Err(format!("the server counted {taken}, before {before}, of {sent}").into());
        }
        self.taken = taken;
        Ok(())
    }

    fn failure(&self, error: &Failure) -> Failure {
        format!("connection {}: {error}", self.index).into()
    }
}
