//! One datagram socket: a multishot receive, and a bounded number of sends in flight.
//!
//! Not here: QUIC's socket (`quic_endpoint`), which wants GRO, GSO and its own batching.

use std::collections::VecDeque;

use uringcore_io::{Completion, Driver, Errno, OpId, Outcome, SendMsg};

use crate::event::Event;
use crate::socket::SocketFd;
use crate::table::Key;
use crate::token::{Kind, Route};

/// What the caller of [`DatagramSocket::send`] has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOutcome {
    Queued,
    /// The queue rose above the high-water mark: tell the producer to pause.
    PauseWriting,
    Lost,
}

pub struct DatagramSocket {
    fd: Option<SocketFd>,
    raw_fd: i32,
    key: Key,
    recv_op: Option<OpId>,
    reading: bool,
    queue: VecDeque<SendMsg>,
    /// Payload sizes of the sends in flight, oldest first.
    in_flight: VecDeque<(OpId, usize)>,
    queued_bytes: usize,
    high_water: usize,
    low_water: usize,
    above_high: bool,
    closing: bool,
    ending: bool,
    ended: bool,
    closing_op: bool,
    error: Option<Errno>,
    in_dirty_list: bool,
}

const SUB_RECV: u8 = 0;
const SUB_SEND: u8 = 1;
const SUB_CLOSE: u8 = 2;

impl DatagramSocket {
    pub(crate) fn new(fd: SocketFd, key: Key) -> Self {
        Self {
            raw_fd: fd.raw(),
            fd: Some(fd),
            key,
            recv_op: None,
            reading: false,
            queue: VecDeque::new(),
            in_flight: VecDeque::new(),
            queued_bytes: 0,
            high_water: HIGH_WATER_BYTES,
            low_water: HIGH_WATER_BYTES / 4,
            above_high: false,
            closing: false,
            ending: false,
            ended: false,
            closing_op: false,
            error: None,
            in_dirty_list: false,
        }
    }

    pub fn raw_fd(&self) -> i32 {
        self.raw_fd
    }

    pub fn is_closing(&self) -> bool {
        self.closing
    }

    pub fn write_queue_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// `(low, high)` in bytes.
    pub fn watermarks(&self) -> (usize, usize) {
        (self.low_water, self.high_water)
    }

    pub fn set_watermarks(&mut self, low: usize, high: usize) -> SendOutcome {
        (self.low_water, self.high_water) = (low, high);
        self.rise()
    }

    pub fn start_reading(&mut self) {
        self.reading = true;
    }

    pub fn send(&mut self, message: SendMsg) -> SendOutcome {
        if self.closing {
            return SendOutcome::Lost;
        }
        self.queued_bytes += message.data.len() + HEADER_BYTES;
        self.queue.push_back(message);
        self.rise()
    }

    /// Closes after the queue is sent.
    pub fn close(&mut self, driver: &mut Driver) {
        self.closing = true;
        self.stop_reading(driver);
    }

    /// Drops the queue and ends.
    pub fn abort(&mut self, driver: &mut Driver, error: Option<Errno>) {
        self.error = self.error.or(error);
        for message in self.queue.drain(..) {
            self.queued_bytes -= message.data.len() + HEADER_BYTES;
        }
        for (op, _) in &self.in_flight {
            driver.cancel(*op);
        }
        self.close(driver);
    }

    pub(crate) fn mark_dirty(&mut self) -> bool {
        !std::mem::replace(&mut self.in_dirty_list, true)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    pub(crate) fn flush(&mut self, driver: &mut Driver, events: &mut VecDeque<Event>) {
        self.in_dirty_list = false;
        if self.reading && self.recv_op.is_none() && !self.closing {
            let token = Route::new(Kind::Datagram, SUB_RECV, self.key).token();
            self.recv_op = Some(driver.recv_msg(self.raw_fd, token));
        }
        while self.in_flight.len() < SENDS_IN_FLIGHT_MAX && !self.ending {
            let Some(message) = self.queue.pop_front() else {
                break;
            };
            let bytes = message.data.len() + HEADER_BYTES;
            let token = Route::new(Kind::Datagram, SUB_SEND, self.key).token();
            self.in_flight
                .push_back((driver.send_msg(self.raw_fd, message, token), bytes));
        }
        if self.closing && !self.ending && self.queue.is_empty() && self.in_flight.is_empty() {
            self.ending = true;
            if let Some(SocketFd::Owned(fd)) = self.fd.take() {
                self.closing_op = true;
                driver.close(fd, Route::new(Kind::Datagram, SUB_CLOSE, self.key).token());
            }
        }
        if self.ending && !self.ended && self.recv_op.is_none() && !self.closing_op {
            self.ended = true;
            events.push_back(Event::DatagramClosed {
                socket: self.key,
                error: self.error,
            });
        }
    }

    pub(crate) fn handle_completion(
        &mut self,
        sub: u8,
        completion: Completion,
        driver: &mut Driver,
        events: &mut VecDeque<Event>,
    ) {
        match (sub, completion.outcome) {
            (SUB_RECV, outcome) => {
                if !completion.more {
                    self.recv_op = None;
                }
                match outcome {
                    Outcome::Datagram(Ok(datagram)) if !self.closing => {
                        events.push_back(Event::DatagramReceived {
                            socket: self.key,
                            datagram,
                        });
                    }
                    Outcome::Datagram(Err(error))
                        if error.0 != libc::ECANCELED && !self.closing =>
                    {
                        events.push_back(Event::DatagramError {
                            socket: self.key,
                            error,
                        });
                    }
                    _ => {}
                }
            }
            (SUB_SEND, Outcome::Done(result)) => {
                if let Some(at) = self
                    .in_flight
                    .iter()
                    .position(|(op, _)| *op == completion.op)
                    && let Some((_, bytes)) = self.in_flight.remove(at)
                {
                    self.queued_bytes -= bytes;
                }
                if let Err(error) = result
                    && !self.closing
                {
                    events.push_back(Event::DatagramError {
                        socket: self.key,
                        error,
                    });
                }
                if self.above_high && self.queued_bytes <= self.low_water {
                    self.above_high = false;
                    events.push_back(Event::DatagramResumeWriting { socket: self.key });
                }
            }
            (SUB_CLOSE, _) => self.closing_op = false,
            _ => debug_assert!(
                false,
                "a completion of a kind that no datagram socket starts"
            ),
        }
        // Re-arms, refills the window, or ends.
        self.flush(driver, events);
    }

    fn rise(&mut self) -> SendOutcome {
        if !self.above_high && self.queued_bytes > self.high_water {
            self.above_high = true;
            return SendOutcome::PauseWriting;
        }
        SendOutcome::Queued
    }

    fn stop_reading(&mut self, driver: &mut Driver) {
        self.reading = false;
        if let Some(op) = self.recv_op {
            driver.cancel(op);
        }
    }
}

/// asyncio's default high-water mark; the low one is a quarter of it.
const HIGH_WATER_BYTES: usize = 64 * 1024;
/// What a queued datagram counts beside its payload, so that empty ones are bounded too (as asyncio does).
const HEADER_BYTES: usize = 8;
/// Sends that may be in the kernel at once. The kernel takes them in order while its buffer has room.
const SENDS_IN_FLIGHT_MAX: usize = 64;
