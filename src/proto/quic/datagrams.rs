//! DATAGRAM frames (RFC 9221) that wait in front of the state machine.
//!
//! quinn-proto writes DATAGRAM frames before STREAM frames, so a host that saturates the connection
//! with them would starve its streams. They are handed over a part of a batch at a time instead.

use std::collections::VecDeque;

use bytes::Bytes;
use quinn_proto::{self as quinn, SendDatagramError};

use super::DatagramError;

pub(super) struct DatagramQueue {
    /// False when this side has DATAGRAM frames switched off.
    enabled: bool,
    queue: VecDeque<Bytes>,
    bytes: usize,
    bytes_max: usize,
    dropped: u64,
}

impl DatagramQueue {
    pub fn new(enabled: bool, bytes_max: usize) -> Self {
        Self {
            enabled,
            queue: VecDeque::new(),
            bytes: 0,
            bytes_max,
            dropped: 0,
        }
    }

    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// `size_max` is known once the handshake is complete. What was queued before is sent then if
    /// the peer takes it.
    pub fn push(
        &mut self,
        data: Bytes,
        established: bool,
        size_max: Option<usize>,
    ) -> Result<(), DatagramError> {
        if !self.enabled || (established && size_max.is_none()) {
            return Err(DatagramError::Unsupported);
        }
        let max = size_max.unwrap_or(SIZE_BEFORE_HANDSHAKE);
        if data.len() > max {
            return Err(DatagramError::TooLarge { max });
        }
        let cost = data.len() + OVERHEAD;
        if self.bytes + cost > self.bytes_max {
            return Err(DatagramError::Full);
        }
        self.bytes += cost;
        self.queue.push_back(data);
        Ok(())
    }

    /// Tops up what the state machine holds to `budget` bytes.
    pub fn feed(&mut self, conn: &mut quinn::Connection, budget: usize) {
        if self.queue.is_empty() {
            return;
        }
        let waiting = SEND_BUFFER.saturating_sub(conn.datagrams().send_buffer_space());
        let mut room = budget.saturating_sub(waiting);
        while room > 0 {
            let Some(data) = self.queue.pop_front() else {
                return;
            };
            let length = data.len();
            match conn.datagrams().send(data, false) {
                Ok(()) => {}
                Err(SendDatagramError::Blocked(data)) => {
                    self.queue.push_front(data);
                    return;
                }
                // The path shrank, or the peer turned out not to take any.
                Err(_) => self.dropped += 1,
            }
            self.bytes -= length + OVERHEAD;
            room = room.saturating_sub(length + OVERHEAD);
        }
    }

    pub fn clear(&mut self) {
        self.queue.clear();
        self.bytes = 0;
    }
}

/// The state machine's own buffer: more than a batch ever takes.
pub(super) const SEND_BUFFER: usize = 256 << 10;
/// What a queued datagram costs besides its bytes, so that empty ones are not free.
const OVERHEAD: usize = size_of::<Bytes>();
/// What fits whatever the path turns out to be: 1,200 bytes less packet and frame headers.
const SIZE_BEFORE_HANDSHAKE: usize = 1_150;
