//! One WebSocket of a server: its state, its received data, and the messages that wait for the application.
//!
//! This file only has the state. The host sends, and reacts to the application's messages.
//!
//! Bounds: `queue_max` messages may wait for the application, and [`HELD_HIGH_WATER`] bytes including the unfinished
//! message. Above either bound reading stops. If the application is waiting for a message, one message of up to
//! `message_max` bytes may still be read, if the client has a free [`Permit`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use uringcore_limits::semaphore::{Permit, Semaphore};

use super::close_frame::Close;
use super::frame::{Opcode, Side, compressed, frame};
use super::message_reader::{Event, Reader};
use super::permessage_deflate::{Agreed, Deflater};
use super::violation::Violation;

/// The limits of one WebSocket.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The maximum length of a message in bytes.
    pub message_max: usize,
    /// The maximum number of messages that wait for the application; at least one.
    pub queue_max: usize,
    /// The interval at which the server sends Pings; `None` sends none.
    pub ping_interval: Option<Duration>,
    /// The time in which a client must answer a Ping; `None` means no limit.
    pub ping_timeout: Option<Duration>,
}

/// A server's WebSocket on one stream.
pub struct Socket {
    pub phase: Phase,
    reader: Reader,
    limits: Limits,
    /// True if the application has got the connect message.
    pub connect_reported: bool,
    /// Messages that wait for the application.
    queue: VecDeque<Event>,
    /// The number of bytes in the messages of `queue`.
    queued_bytes: usize,
    /// Received data that is parsed when the queue has room, and not before the handshake is done.
    unread: BytesMut,
    /// True if no data follows after `unread`.
    fin: bool,
    /// True if the application waits for a message.
    pub is_awaited: bool,
    /// The content of the disconnect message, after which the application gets no other.
    pub ended: Option<Close>,
    /// True if the application has closed the connection.
    pub closed_by_application: bool,
    /// The payloads of the Pongs to send. Of more than `PONGS_MAX` Pings only the last ones are answered, as RFC 6455
    /// section 5.5.3 allows.
    pongs: VecDeque<Vec<u8>>,
    next_ping: Option<Instant>,
    ping: Option<Pinged>,
    pings: u32,
    pub permits: Arc<Semaphore>,
    /// The permit for one large message; held while more bytes are stored than `HELD_HIGH_WATER`.
    permit: Option<Permit>,
    compression: Option<Compression>,
}

/// The compression on which both sides have agreed.
struct Compression {
    agreed: Agreed,
    deflater: Deflater,
    /// True if a message was compressed since the last call of `free_unused`.
    is_in_use: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The application has not accepted or refused the connection yet.
    Connecting,
    /// The application refuses the connection with an HTTP response.
    Denied,
    Open,
    /// This side has sent its Close frame, or will never send one.
    Closed,
}

/// A Ping that was sent and not answered yet.
struct Pinged {
    payload: [u8; 4],
    since: Instant,
}

/// The reason why reading stops.
pub enum Stop {
    Closed(Close),
    Violation(Violation),
    /// The stream ended without a Close frame.
    Lost,
}

impl Socket {
    /// `ended` is true if no data follows the request. `permits` are the client's permits for large messages.
    pub fn new(limits: &Limits, ended: bool, permits: Arc<Semaphore>) -> Self {
        Self {
            permits,
            permit: None,
            phase: Phase::Connecting,
            reader: Reader::new(Side::Server, limits.message_max),
            limits: limits.clone(),
            connect_reported: false,
            queue: VecDeque::new(),
            queued_bytes: 0,
            unread: BytesMut::new(),
            fin: ended,
            is_awaited: false,
            ended: None,
            closed_by_application: false,
            pongs: VecDeque::new(),
            next_ping: None,
            ping: None,
            pings: 0,
            compression: None,
        }
    }

    /// Enables compression, which begins if the application accepts the WebSocket.
    pub fn with_compression(mut self, agreed: Agreed) -> Self {
        self.reader.accept_compressed(&agreed);
        self.compression = Some(Compression {
            agreed,
            deflater: agreed.deflater(),
            is_in_use: false,
        });
        self
    }

    /// The parameters of the compression, for the response.
    pub fn agreed(&self) -> Option<Agreed> {
        self.compression.as_ref().map(|it| it.agreed)
    }

    pub fn compresses(&self) -> bool {
        self.compression.is_some()
    }

    /// Encodes a message as a frame. The frame must be sent, and before all later ones, because compressed messages
    /// refer to earlier ones.
    pub fn to_frame(&mut self, opcode: Opcode, payload: &[u8]) -> Bytes {
        match &mut self.compression {
            Some(compression) if payload.len() >= COMPRESSED_FROM_BYTES => {
                compression.is_in_use = true;
                compressed(opcode, &compression.deflater.compress(payload))
            }
            _ => frame(opcode, payload, None),
        }
    }

    /// Frees the memory of the compressor if no message was compressed since the last call. The host calls this about
    /// once a second.
    pub fn free_unused(&mut self) {
        if let Some(compression) = &mut self.compression
            && !std::mem::take(&mut compression.is_in_use)
        {
            compression.deflater.free();
        }
    }

    /// Parses messages from `input` as long as the bounds allow. The rest stays in `input`.
    fn read(&mut self, input: &mut &[u8]) -> Option<Stop> {
        while self.queue.len() < self.limits.queue_max && !self.is_inflated() {
            match self.reader.read(input) {
                Ok(Some(Event::Ping(payload))) => self.add_pong(payload),
                Ok(Some(Event::Pong(payload))) => {
                    self.ping.take_if(|ping| payload == ping.payload);
                }
                Ok(Some(Event::Close(close))) => return Some(Stop::Closed(close)),
                Ok(Some(message)) => {
                    self.is_awaited = false;
                    self.queued_bytes += message.size();
                    self.queue.push_back(message);
                }
                Ok(None) => return None,
                Err(fault) => return Some(Stop::Violation(fault)),
            }
        }
        None
    }

    fn add_pong(&mut self, payload: Vec<u8>) {
        if self.pongs.len() == PONGS_MAX {
            self.pongs.pop_front();
        }
        self.pongs.push_back(payload);
    }

    pub fn has_pongs(&self) -> bool {
        !self.pongs.is_empty()
    }

    /// Takes the frames of the Pongs to send.
    pub fn take_pongs(&mut self) -> Bytes {
        let mut frames = BytesMut::new();
        for payload in std::mem::take(&mut self.pongs) {
            frames.extend_from_slice(&frame(Opcode::Pong, &payload, None));
        }
        frames.freeze()
    }

    /// True if decompressed messages fill the queue, so that the rest of the input waits.
    fn is_inflated(&self) -> bool {
        self.compression.is_some() && self.queued_bytes > HELD_HIGH_WATER
    }

    /// Handles received data. `ended` is true if no data follows.
    pub fn received(&mut self, data: &[u8], ended: bool) -> Option<Stop> {
        self.fin |= ended;
        match self.phase {
            Phase::Open if self.unread.is_empty() => {
                let mut rest = data;
                let stop = self.read(&mut rest);
                self.unread.extend_from_slice(rest);
                stop.or_else(|| self.lost())
            }
            Phase::Open => {
                self.unread.extend_from_slice(data);
                self.read_on()
            }
            Phase::Connecting => {
                self.unread.extend_from_slice(data);
                None
            }
            Phase::Denied | Phase::Closed => None,
        }
    }

    /// Continues reading after the application has taken a message.
    pub fn read_on(&mut self) -> Option<Stop> {
        let mut unread = std::mem::take(&mut self.unread);
        let mut rest = &unread[..];
        let stop = self.read(&mut rest);
        let read = unread.len() - rest.len();
        // `advance` moves no data. There may be very many small messages.
        unread.advance(read);
        self.unread = unread;
        stop.or_else(|| self.lost())
    }

    /// Returns `Stop::Lost` if all data was read and no data follows.
    fn lost(&self) -> Option<Stop> {
        (self.fin && self.unread.is_empty()).then_some(Stop::Lost)
    }

    pub fn next_message(&mut self) -> Option<Event> {
        let message = self.queue.pop_front()?;
        self.queued_bytes -= message.size();
        Some(message)
    }

    /// The number of bytes that are allocated for received data that the application has not taken.
    pub fn held_bytes(&self) -> usize {
        let compression = self.compression.as_ref();
        self.queued_bytes
            + self.unread.capacity()
            + self.reader.reserved_bytes()
            + compression.map_or(0, |it| it.deflater.held_bytes())
    }

    /// True if the host must stop reading from the client until the application has taken messages.
    pub fn is_full(&mut self) -> bool {
        let held = self.queued_bytes + self.unread.len() + self.reader.held_bytes();
        let is_large = held > HELD_HIGH_WATER;
        if !is_large {
            self.permit = None;
        }
        let is_over = self.fin || matches!(self.phase, Phase::Denied | Phase::Closed);
        let is_full = self.queue.len() >= self.limits.queue_max || is_large;
        // Nothing is parsed before the handshake is done, even if the application waits.
        let is_read = self.is_awaited && self.phase == Phase::Open;
        is_full && !is_over && !(is_read && self.may_hold(is_large))
    }

    fn may_hold(&mut self, is_large: bool) -> bool {
        if is_large && self.permit.is_none() {
            self.permit = self.permits.take();
        }
        !is_large || self.permit.is_some()
    }

    /// Opens the WebSocket, because the application has accepted it. Parses the data that has arrived.
    pub fn open(&mut self, now: Instant) -> Option<Stop> {
        self.phase = Phase::Open;
        // If the clock cannot represent the time of the first Ping, no Pings are sent.
        let interval = self.limits.ping_interval;
        self.next_ping = interval.and_then(|interval| now.checked_add(interval));
        self.read_on()
    }

    /// Ends the WebSocket with `close`. The application still gets the messages that wait for it, then `close`.
    pub fn end(&mut self, close: Close) {
        self.phase = Phase::Closed;
        self.unread = BytesMut::new();
        self.permit = None;
        self.pongs = VecDeque::new();
        self.compression = None;
        self.reader.stop();
        self.ended.get_or_insert(close);
    }

    /// Returns the payload of a Ping if one is due now.
    pub fn take_ping(&mut self, now: Instant) -> Option<[u8; 4]> {
        let interval = self.limits.ping_interval?;
        let is_due = self.next_ping.is_some_and(|next| next <= now);
        if self.phase != Phase::Open || self.ping.is_some() || !is_due {
            return None;
        }
        self.next_ping = now.checked_add(interval);
        // The number may wrap around, because only one Ping waits for its answer at a time.
        self.pings = self.pings.wrapping_add(1);
        let payload = self.pings.to_be_bytes();
        if self.limits.ping_timeout.is_some() {
            self.ping = Some(Pinged {
                payload,
                since: now,
            });
        }
        Some(payload)
    }

    /// True if a Ping was not answered in time. False while reading is stopped because the application takes no
    /// messages, since the answer may not have been read.
    pub fn is_unresponsive(&mut self, now: Instant) -> bool {
        let is_full = self.is_full();
        match (&mut self.ping, self.limits.ping_timeout) {
            (Some(ping), Some(timeout)) if self.phase == Phase::Open => {
                if is_full {
                    ping.since = now;
                }
                now.saturating_duration_since(ping.since) > timeout
            }
            _ => false,
        }
    }
}

/// The number of bytes that may wait for the application before reading stops.
const HELD_HIGH_WATER: usize = 256 * 1024;
/// The maximum number of Pongs that wait for space on the stream: at most 4 KB.
const PONGS_MAX: usize = 32;
/// Shorter messages are not compressed, because they would hardly become smaller.
const COMPRESSED_FROM_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::super::{Opcode, close_codes, frame};
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limits() -> Limits {
        Limits {
            message_max: 1 << 20,
            queue_max: 2,
            ping_interval: Some(10 * SECOND),
            ping_timeout: Some(5 * SECOND),
        }
    }

    fn open(now: Instant, permits: &Arc<Semaphore>) -> Socket {
        let mut socket = Socket::new(&limits(), false, permits.clone());
        assert!(socket.open(now).is_none());
        socket
    }

    #[test]
    fn an_unreachable_ping_interval_disables_pings() {
        let now = Instant::now();
        let limits = Limits {
            ping_interval: Some(Duration::MAX),
            ..limits()
        };
        let mut socket = Socket::new(&limits, false, Semaphore::new(1));
        assert!(socket.open(now).is_none());
        assert_eq!(socket.take_ping(now + 1000 * SECOND), None);
    }

    fn receive(socket: &mut Socket, opcode: Opcode, payload: &[u8]) {
        let bytes = frame(opcode, payload, Some([1, 2, 3, 4]));
        assert!(socket.received(&bytes, false).is_none());
    }

    #[test]
    fn data_before_the_end_of_the_handshake_waits() {
        let mut socket = Socket::new(&limits(), false, Semaphore::new(0));
        receive(&mut socket, Opcode::Text, b"early");
        assert!(socket.next_message().is_none());
        assert!(socket.open(Instant::now()).is_none());
        assert_eq!(socket.next_message(), Some(Event::Text("early".into())));
    }

    #[test]
    fn the_queue_is_bounded_and_the_end_follows_its_messages() {
        let mut socket = open(Instant::now(), &Semaphore::new(0));
        for number in 0..3 {
            assert_eq!(socket.is_full(), number == 2);
            receive(&mut socket, Opcode::Binary, &[number]);
        }
        assert!(socket.received(b"", true).is_none());
        assert_eq!(socket.next_message(), Some(Event::Binary(vec![0])));
        assert!(matches!(socket.read_on(), Some(Stop::Lost)));
        assert_eq!(socket.next_message(), Some(Event::Binary(vec![1])));
        assert_eq!(socket.next_message(), Some(Event::Binary(vec![2])));
    }

    #[test]
    fn a_large_message_is_read_only_for_a_waiting_application_with_a_permit() {
        let permits = Semaphore::new(1);
        let begun = frame(Opcode::Binary, &vec![0; HELD_HIGH_WATER + 10], Some([0; 4]));
        let (part, rest) = begun.split_at(HELD_HIGH_WATER + 15);
        let mut sockets = [(); 2].map(|()| open(Instant::now(), &permits));
        for socket in &mut sockets {
            assert!(socket.received(part, false).is_none());
            assert!(socket.is_full());
            socket.is_awaited = true;
        }
        let [one, other] = &mut sockets;
        assert!(!one.is_full());
        assert!(other.is_full());
        assert!(!permits.take_wanted());
        assert!(one.received(rest, false).is_none());
        assert_eq!(
            one.next_message().map(|message| message.size()),
            Some(HELD_HIGH_WATER + 10)
        );
        assert!(!one.is_full());
        assert!(permits.take_wanted() && !permits.take_wanted());
        assert!(!other.is_full());
    }

    /// Encodes a client's frame with a compressed payload. The mask is zero, so the payload stays as it is.
    fn compressed_frame(payload: &[u8]) -> Vec<u8> {
        let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
        let header = [0xc2, 0xfe, length[0], length[1], 0, 0, 0, 0];
        [&header[..], payload].concat()
    }

    #[test]
    fn decompressed_messages_exceed_the_queue_by_at_most_one() {
        let agreed = Agreed::to_offers([&b"permessage-deflate"[..]]).unwrap();
        let limits = Limits {
            queue_max: 100,
            ..limits()
        };
        let socket = Socket::new(&limits, false, Semaphore::new(0));
        let mut socket = socket.with_compression(agreed);
        assert!(socket.open(Instant::now()).is_none());
        let mut deflater = agreed.deflater();
        let large = vec![7; HELD_HIGH_WATER];
        let input: Vec<u8> = (0..5)
            .flat_map(|_| compressed_frame(&deflater.compress(&large)))
            .collect();
        assert!(input.len() < 5000);
        assert!(socket.received(&input, false).is_none());
        assert_eq!(socket.queue.len(), 2);
        assert!(socket.is_full());
        for _ in 0..5 {
            let message = socket.next_message().unwrap();
            assert_eq!(message, Event::Binary(large.clone()));
            assert!(socket.read_on().is_none());
            assert!(socket.queue.len() <= 2);
        }
        assert!(socket.next_message().is_none() && !socket.is_full());
    }

    #[test]
    fn long_messages_are_compressed_and_unused_memory_is_freed() {
        let agreed = Agreed::to_offers([&b"permessage-deflate"[..]]).unwrap();
        let socket = Socket::new(&limits(), false, Semaphore::new(0));
        let mut socket = socket.with_compression(agreed);
        let idle = socket.held_bytes();
        assert_eq!(
            socket.to_frame(Opcode::Text, b"short"),
            frame(Opcode::Text, b"short", None)
        );
        let long = [b'a'; 1000];
        let compressed = socket.to_frame(Opcode::Text, &long);
        assert_eq!(compressed[0], 0xc1);
        assert!(compressed.len() < 100);
        assert!(socket.held_bytes() > idle + 100_000);
        socket.free_unused();
        assert!(socket.held_bytes() > idle);
        socket.free_unused();
        assert_eq!(socket.held_bytes(), idle);
        assert_eq!(socket.to_frame(Opcode::Text, &long), compressed);
        socket.end(Close::abnormal());
        assert_eq!(socket.held_bytes(), 0);
    }

    #[test]
    fn a_client_that_does_not_answer_a_ping_in_time_is_unresponsive() {
        let begin = Instant::now();
        let mut socket = open(begin, &Semaphore::new(0));
        assert_eq!(socket.take_ping(begin + 9 * SECOND), None);
        let payload = socket.take_ping(begin + 10 * SECOND).unwrap();
        // A second Ping is not sent before the first was answered.
        assert_eq!(socket.take_ping(begin + 20 * SECOND), None);
        assert!(!socket.is_unresponsive(begin + 15 * SECOND));
        receive(&mut socket, Opcode::Pong, &payload);
        assert!(!socket.is_unresponsive(begin + 16 * SECOND));
        socket.take_ping(begin + 20 * SECOND).unwrap();
        receive(&mut socket, Opcode::Pong, b"of another");
        // While the application takes no messages the client is not treated as unresponsive.
        receive(&mut socket, Opcode::Text, b"1");
        receive(&mut socket, Opcode::Text, b"2");
        assert!(!socket.is_unresponsive(begin + 40 * SECOND));
        while socket.next_message().is_some() {}
        assert!(!socket.is_unresponsive(begin + 45 * SECOND));
        assert!(socket.is_unresponsive(begin + 46 * SECOND));
    }

    #[test]
    fn pings_are_answered_in_order_and_of_a_flood_the_last_ones() {
        let mut socket = open(Instant::now(), &Semaphore::new(0));
        for (pings, answered) in [(3, 3), (PONGS_MAX + 5, PONGS_MAX)] {
            let payloads: Vec<_> = (0..pings).map(|number| number.to_string()).collect();
            for payload in &payloads {
                receive(&mut socket, Opcode::Ping, payload.as_bytes());
            }
            let last = &payloads[pings - answered..];
            let frames: Vec<_> = last
                .iter()
                .map(|payload| frame(Opcode::Pong, payload.as_bytes(), None))
                .collect();
            assert_eq!(socket.take_pongs(), frames.concat());
            assert!(!socket.has_pongs());
        }
    }

    #[test]
    fn only_the_first_end_is_reported() {
        let mut socket = open(Instant::now(), &Semaphore::new(0));
        receive(&mut socket, Opcode::Ping, b"unanswered");
        assert!(socket.has_pongs());
        socket.end(Close::abnormal());
        socket.end(Close {
            code: close_codes::NORMAL,
            reason: String::new(),
        });
        assert_eq!(socket.ended, Some(Close::abnormal()));
        assert_eq!((socket.phase, socket.has_pongs()), (Phase::Closed, false));
        receive(&mut socket, Opcode::Text, b"too late");
        assert!(socket.next_message().is_none());
    }

    #[test]
    fn ping_numbers_wrap_around_and_answers_still_count() {
        let begin = Instant::now();
        let mut socket = open(begin, &Semaphore::new(0));
        socket.pings = u32::MAX;
        let payload = socket.take_ping(begin + 10 * SECOND).unwrap();
        assert_eq!(payload, [0; 4]);
        receive(&mut socket, Opcode::Pong, &payload);
        assert!(!socket.is_unresponsive(begin + 16 * SECOND));
        assert_eq!(socket.take_ping(begin + 20 * SECOND), Some([0, 0, 0, 1]));
    }
}
