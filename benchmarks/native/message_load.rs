//! Connections with one message in flight on each.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use mio::{Events, Poll};

use crate::Failure;
use crate::latency::Latencies;

/// A server that sends no answer for this long has failed.
pub const STALL: Duration = Duration::from_secs(5);

/// One connection.
pub trait Client {
    /// True from a message until its whole reply.
    fn is_in_flight(&self) -> bool;

    fn send_next(&mut self) -> Result<(), Failure>;

    /// Sends the rest of the message.
    fn flush(&mut self) -> Result<(), Failure>;

    /// Returns the round-trip time of a whole, correct reply; `None` until it has arrived. `buffer`
    /// is space for received bytes, which all connections share.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Duration>, Failure>;
}

/// All connections. The token of each is its index.
pub struct MessageLoad<C> {
    pub latencies: Latencies,
    poll: Poll,
    events: Events,
    connections: Vec<C>,
    buffer: Vec<u8>,
}

impl<C: Client> MessageLoad<C> {
    pub fn new(poll: Poll, connections: Vec<C>, buffer_bytes: usize) -> Self {
        Self {
            latencies: Latencies::default(),
            poll,
            events: Events::with_capacity(connections.len().clamp(1, 1024)),
            connections,
            buffer: vec![0; buffer_bytes],
        }
    }

    /// Keeps every connection busy for `window`; returns the number of whole replies in it.
    pub fn run_for(&mut self, window: Duration) -> Result<u64, Failure> {
        let end = Instant::now() + window;
        let mut replies = 0;
        for connection in &mut self.connections {
            if !connection.is_in_flight() {
                connection.send_next()?;
            }
        }
        while Instant::now() < end {
            replies += self.turn(true)?;
        }
        Ok(replies)
    }

    /// Waits for the replies in flight, so that the server closes idle connections and not broken
    /// ones.
    pub fn drain(&mut self) -> Result<(), Failure> {
        while self.connections.iter().any(Client::is_in_flight) {
            self.turn(false)?;
        }
        Ok(())
    }

    fn turn(&mut self, send_more: bool) -> Result<u64, Failure> {
        poll(&mut self.poll, &mut self.events, STALL, "no reply")?;
        let mut replies = 0;
        for event in &self.events {
            let connection = &mut self.connections[event.token().0];
            connection.flush()?;
            // The next reply brings its own event: another read would only cost an EAGAIN.
            if let Some(elapsed) = connection.receive(&mut self.buffer)? {
                replies += 1;
                self.latencies.add(elapsed);
                if send_more {
                    connection.send_next()?;
                }
            }
        }
        Ok(replies)
    }
}

/// Waits for events, which are none after a signal. It is a failure if nothing comes for `stall`;
/// `missing` says what.
pub fn poll(
    poll: &mut Poll,
    events: &mut Events,
    stall: Duration,
    missing: &str,
) -> Result<(), Failure> {
    match poll.poll(events, Some(stall)) {
        Ok(()) if events.is_empty() => {
            Err(format!("{missing} on any connection for {stall:?}").into())
        }
        Err(error) if error.kind() == ErrorKind::Interrupted => {
            events.clear();
            Ok(())
        }
        other => Ok(other?),
    }
}
