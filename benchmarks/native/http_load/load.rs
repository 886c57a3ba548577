//! The connections and their events, for either version of HTTP.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use uringcore_bench::Failure;
use uringcore_bench::latency::Latencies;
use uringcore_bench::message_load;

use crate::exchange::Exchange;

/// A server that sends nothing for this long has failed.
const STALL: Duration = Duration::from_secs(10);
/// Connections that open at once.
const OPENING: usize = 16;
const READ_BYTES: usize = 256 * 1024;

/// One connection without its socket.
pub trait Protocol {
    /// A connection for `streams` requests at once, with the bytes that open it in `out`.
    fn new(exchange: &Exchange, streams: usize, out: &mut Vec<u8>) -> Result<Self, Failure>
    where
        Self: Sized;

    /// Number of requests without a whole response.
    fn in_flight(&self) -> usize;

    /// Begins requests until `limit` are in flight or the server allows no more.
    fn ask(&mut self, exchange: &Exchange, limit: usize, out: &mut Vec<u8>) -> Result<(), Failure>;

    /// Reads the bytes that have arrived, and adds the duration of each whole, correct response.
    fn receive(
        &mut self,
        exchange: &Exchange,
        data: &[u8],
        out: &mut Vec<u8>,
        done: &mut Latencies,
    ) -> Result<u64, Failure>;
}

struct Open<P> {
    stream: TcpStream,
    protocol: P,
    out: Vec<u8>,
    sent: usize,
}

pub struct Load<'a, P> {
    exchange: &'a Exchange,
    streams: usize,
    poll: Poll,
    events: Events,
    connections: Vec<Open<P>>,
    buffer: Vec<u8>,
    pub latencies: Latencies,
}

impl<'a, P: Protocol> Load<'a, P> {
    pub fn new(exchange: &'a Exchange, streams: usize) -> Result<Self, Failure> {
        Ok(Load {
            exchange,
            streams,
            poll: Poll::new()?,
            events: Events::with_capacity(1024),
            connections: Vec::new(),
            buffer: vec![0; READ_BYTES],
            latencies: Latencies::default(),
        })
    }

    /// Opens `count` more connections. The calls block: the window has not begun.
    pub fn open(&mut self, count: usize) -> Result<(), Failure> {
        for _ in 0..count {
            let stream = std::net::TcpStream::connect_timeout(&self.exchange.address, STALL)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut out = Vec::new();
            let protocol = P::new(self.exchange, self.streams, &mut out)?;
            let mut one = Open {
                stream: TcpStream::from_std(stream),
                protocol,
                out,
                sent: 0,
            };
            let token = Token(self.connections.len());
            let interest = Interest::READABLE | Interest::WRITABLE;
            let registry = self.poll.registry();
            registry.register(&mut one.stream, token, interest)?;
            one.flush()?;
            self.connections.push(one);
        }
        Ok(())
    }

    /// Opens `count` connections, each with one whole response.
    pub fn open_and_ask(&mut self, count: usize) -> Result<(), Failure> {
        let whole = self.connections.len() + count;
        while self.connections.len() < whole {
            let from = self.connections.len();
            self.open(OPENING.min(whole - from))?;
            self.ask_once(from..self.connections.len())?;
        }
        Ok(())
    }

    /// One request on every `step`-th connection, answered.
    pub fn once(&mut self, step: usize) -> Result<(), Failure> {
        let asked: Vec<usize> = (0..self.connections.len()).step_by(step).collect();
        for at in asked {
            self.ask_once(at..at + 1)?;
        }
        Ok(())
    }

    fn ask_once(&mut self, range: std::ops::Range<usize>) -> Result<(), Failure> {
        let mut answered = 0;
        let due = range.len() as u64;
        let mut asked = vec![false; range.len()];
        while answered < due {
            for (at, asked) in range.clone().zip(&mut asked) {
                let one = &mut self.connections[at];
                if !*asked {
                    // A server of HTTP/2 may not have sent its settings yet.
                    one.protocol.ask(self.exchange, 1, &mut one.out)?;
                    *asked = one.protocol.in_flight() > 0;
                    one.flush()?;
                }
            }
            answered += self.turn(0)?;
        }
        Ok(())
    }

    /// Keeps every connection busy for `window`; returns the number of whole responses in it.
    pub fn run_for(&mut self, window: Duration) -> Result<u64, Failure> {
        let end = Instant::now() + window;
        let mut responses = 0;
        for one in &mut self.connections {
            one.protocol
                .ask(self.exchange, self.streams, &mut one.out)?;
            one.flush()?;
        }
        while Instant::now() < end {
            responses += self.turn(self.streams)?;
        }
        Ok(responses)
    }

    /// Waits for the responses in flight, so that the server closes idle connections.
    pub fn drain(&mut self) -> Result<(), Failure> {
        while self
            .connections
            .iter()
            .any(|one| one.protocol.in_flight() > 0)
        {
            self.turn(0)?;
        }
        Ok(())
    }

    /// Handles the next events; each connection that has received keeps `limit` requests in flight.
    fn turn(&mut self, limit: usize) -> Result<u64, Failure> {
        message_load::poll(&mut self.poll, &mut self.events, STALL, "no response")?;
        let mut responses = 0;
        for event in &self.events {
            let number = event.token().0;
            let one = &mut self.connections[number];
            if event.is_readable() {
                let named = |error| format!("connection {number}: {error}");
                let exchange = self.exchange;
                responses += one
                    .receive(exchange, &mut self.buffer, &mut self.latencies)
                    .map_err(named)?;
                one.protocol.ask(exchange, limit, &mut one.out)?;
            }
            one.flush()?;
        }
        Ok(responses)
    }
}

impl<P: Protocol> Open<P> {
    fn receive(
        &mut self,
        exchange: &Exchange,
        buffer: &mut [u8],
        done: &mut Latencies,
    ) -> Result<u64, Failure> {
        let mut responses = 0;
        loop {
            let count = match self.stream.read(buffer) {
                Ok(0) => return Err("closed by the server".into()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(responses),
                Err(error) => return Err(error.into()),
            };
            responses += self
                .protocol
                .receive(exchange, &buffer[..count], &mut self.out, done)?;
            // Bytes that arrive after a short read bring an event.
            if count < buffer.len() {
                return Ok(responses);
            }
        }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }
}
