//! Parses the received bytes of a WebSocket to messages and control frames.

use bytes::Bytes;

use super::close_codes;
use super::close_frame::Close;
use super::frame::{HEADER_MAX, Header, Opcode, Side, apply_mask};
use super::permessage_deflate::{Agreed, Inflater};
use super::violation::Violation;

/// A received message or control frame. The fragments of a message are joined (RFC 6455 section 5.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Text(Text),
    Binary(Vec<u8>),
    /// The peer has sent a Ping. The host answers with a Pong that has the same payload (RFC 6455 section 5.5.2).
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    /// The peer has sent a Close frame, which is the last event. Bytes after it are not read.
    Close(Close),
}

/// The content of a text message, which is UTF-8 (RFC 6455 section 8.1). It is not a `String`, because that would check
/// again what was checked piece by piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text(Vec<u8>);

impl Text {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

/// Reads the frames of a peer.
///
/// It buffers one message of at most `message_max` bytes, and one control frame. The buffer grows with the received
/// bytes, to eight times the size of a piece at most, and not to the announced length at once. After a [`Violation`] or a Close frame nothing more is read.
#[derive(Debug)]
pub struct Reader {
    side: Side,
    message_max: usize,
    header: [u8; HEADER_MAX],
    header_length: usize,
    /// The frame whose payload is being read; `None` between frames.
    frame: Option<Frame>,
    /// The data message whose last fragment has not arrived.
    message: Option<Message>,
    control: Vec<u8>,
    /// The decompressor, present if messages may be compressed.
    inflater: Option<Inflater>,
    is_over: bool,
}

#[derive(Debug)]
struct Frame {
    header: Header,
    left: u64,
}

#[derive(Debug)]
struct Message {
    is_text: bool,
    is_compressed: bool,
    /// The length of the payloads of its frames so far.
    payload_bytes: u64,
    content: Vec<u8>,
    /// The number of bytes of a text's content that were found to be UTF-8.
    checked_bytes: usize,
}

impl Reader {
    pub fn new(side: Side, message_max: usize) -> Self {
        Self {
            side,
            message_max,
            header: [0; HEADER_MAX],
            header_length: 0,
            frame: None,
            message: None,
            control: Vec::new(),
            inflater: None,
            is_over: false,
        }
    }

    /// Accepts compressed messages from now on.
    pub fn accept_compressed(&mut self, agreed: &Agreed) {
        self.inflater = Some(agreed.inflater());
    }

    fn compresses(&self) -> bool {
        self.inflater.is_some()
    }

    /// Reads the next event from the front of `input`, and advances `input`. `None` if all input was consumed before
    /// an event was complete.
    pub fn read(&mut self, input: &mut &[u8]) -> Result<Option<Event>, Violation> {
        if self.is_over {
            *input = &[];
            return Ok(None);
        }
        let read = self.read_frames(input);
        self.is_over |= matches!(read, Err(_) | Ok(Some(Event::Close(_))));
        read
    }

    /// The number of bytes of the unfinished message.
    pub fn held_bytes(&self) -> usize {
        self.message
            .as_ref()
            .map_or(0, |message| message.content.len())
    }

    /// The number of bytes that are allocated for the unfinished message and for the decompressor.
    pub fn reserved_bytes(&self) -> usize {
        let message = self.message.as_ref();
        let inflater = self.inflater.as_ref();
        message.map_or(0, |message| message.content.capacity())
            + inflater.map_or(0, Inflater::held_bytes)
    }

    /// Drops the unfinished message; nothing more is read.
    pub fn stop(&mut self) {
        self.is_over = true;
        self.message = None;
        self.inflater = None;
    }

    fn read_frames(&mut self, input: &mut &[u8]) -> Result<Option<Event>, Violation> {
        loop {
            let frame = match &mut self.frame {
                Some(frame) => frame,
                None => {
                    let Some(header) = self.read_header(input)? else {
                        return Ok(None);
                    };
                    self.begin(header)?;
                    self.frame.insert(Frame {
                        header,
                        left: header.length,
                    })
                }
            };
            let length = frame.left.min(input.len() as u64) as usize;
            let (payload, rest) = input.split_at(length);
            *input = rest;
            let Frame { header, left } = *frame;
            frame.left -= length as u64;
            let is_whole = frame.left == 0;
            if left > length as u64 && left <= length as u64 * ROOM_FACTOR {
                self.make_room(header.opcode, left as usize);
            }
            // The payload arrives in pieces. The key is rotated to the byte at which the last piece ended.
            let key = header.mask.map(|mut key| {
                key.rotate_left(((header.length - left) % 4) as usize);
                key
            });
            self.add(header.opcode, payload, key)?;
            if !is_whole {
                self.check_text()?;
                return Ok(None);
            }
            self.frame = None;
            if let Some(event) = self.end(header)? {
                return Ok(Some(event));
            }
        }
    }

    /// Makes room for the rest of a frame's payload, so that the buffer is not moved when it grows.
    fn make_room(&mut self, opcode: Opcode, left: usize) {
        if let Some(message) = &mut self.message
            && !opcode.is_control()
            && !message.is_compressed
        {
            match message.content.is_empty() {
                true => message.content.reserve_exact(left),
                // A later frame: the buffer has to grow in large steps, however small the frames are.
                false => message.content.reserve(left),
            }
        }
    }

    /// Adds a piece of a frame's payload to the message that the frame belongs to.
    fn add(&mut self, opcode: Opcode, piece: &[u8], key: Option<[u8; 4]>) -> Result<(), Violation> {
        let append = |target: &mut Vec<u8>| {
            let begin = target.len();
            target.extend_from_slice(piece);
            if let Some(key) = key {
                apply_mask(&mut target[begin..], key);
            }
        };
        match (&mut self.message, &mut self.inflater) {
            _ if opcode.is_control() => append(&mut self.control),
            (Some(message), Some(inflater)) if message.is_compressed => {
                let mut unmasked = Vec::new();
                append(&mut unmasked);
                return inflater.push(&unmasked, &mut message.content, self.message_max);
            }
            (Some(message), _) => append(&mut message.content),
            (None, _) => {}
        }
        Ok(())
    }

    fn read_header(&mut self, input: &mut &[u8]) -> Result<Option<Header>, Violation> {
        loop {
            let size = match self.header_length {
                0 | 1 => 2,
                _ => Header::size(self.header[1]),
            };
            if self.header_length == size {
                self.header_length = 0;
                let compresses = self.compresses();
                return Header::read(&self.header[..size], compresses).map(Some);
            }
            let missing = (size - self.header_length).min(input.len());
            if missing == 0 {
                return Ok(None);
            }
            let (piece, rest) = input.split_at(missing);
            *input = rest;
            self.header[self.header_length..][..missing].copy_from_slice(piece);
            self.header_length += missing;
        }
    }

    /// Checks that a frame is allowed at this point (RFC 6455 sections 5.1 and 5.4).
    fn begin(&mut self, header: Header) -> Result<(), Violation> {
        if header.mask.is_some() != (self.side == Side::Server) {
            return Err(Violation::protocol(match self.side {
                Side::Server => "a frame of a client is not masked",
                Side::Client => "a frame of a server is masked",
            }));
        }
        if header.opcode.is_control() {
            return Ok(());
        }
        let is_continuation = header.opcode == Opcode::Continuation;
        match (&self.message, is_continuation) {
            (None, true) => return Err(Violation::protocol("a continuation without a message")),
            (Some(_), false) => return Err(Violation::protocol("a message inside another")),
            _ => {}
        }
        let message = self.message.get_or_insert_with(|| Message {
            is_text: header.opcode == Opcode::Text,
            is_compressed: header.is_compressed,
            payload_bytes: 0,
            content: Vec::new(),
            checked_bytes: 0,
        });
        let max = match message.is_compressed {
            false => self.message_max as u64,
            // The payload has its own limit, because blocks without content could follow each other for ever.
            true => (self.message_max as u64).saturating_mul(2).max(1024),
        };
        if header.length > max.saturating_sub(message.payload_bytes) {
            return Err(Violation::new(
                close_codes::TOO_BIG,
                "the message is too big",
            ));
        }
        message.payload_bytes += header.length;
        Ok(())
    }

    /// Checks the part of a text that has arrived, so that an invalid text fails before its end. A compressed text is
    /// checked only at its end, because its parts depend on the pieces in which it arrives.
    fn check_text(&mut self) -> Result<(), Violation> {
        match &mut self.message {
            Some(message) if message.is_text && !message.is_compressed => message.check_text(),
            _ => Ok(()),
        }
    }

    /// Completes a frame. If it was the last fragment, completes its message as well.
    fn end(&mut self, header: Header) -> Result<Option<Event>, Violation> {
        match header.opcode {
            Opcode::Ping => Ok(Some(Event::Ping(std::mem::take(&mut self.control)))),
            Opcode::Pong => Ok(Some(Event::Pong(std::mem::take(&mut self.control)))),
            Opcode::Close => {
                let payload = std::mem::take(&mut self.control);
                Close::read(&payload).map(|close| Some(Event::Close(close)))
            }
            _ if !header.fin => self.check_text().map(|()| None),
            _ => {
                let Some(mut message) = self.message.take() else {
                    return Ok(None);
                };
                if message.is_compressed
                    && let Some(inflater) = &mut self.inflater
                {
                    inflater.finish(&mut message.content, self.message_max)?;
                }
                message.finish().map(Some)
            }
        }
    }
}

impl Message {
    /// Checks the content after `checked_bytes`. Its last character may be incomplete.
    fn check_text(&mut self) -> Result<(), Violation> {
        match std::str::from_utf8(&self.content[self.checked_bytes..]) {
            Ok(text) => self.checked_bytes += text.len(),
            Err(error) if error.error_len().is_none() => self.checked_bytes += error.valid_up_to(),
            Err(_) => return Err(NOT_UTF8),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Event, Violation> {
        if !self.is_text {
            return Ok(Event::Binary(self.content));
        }
        self.check_text()?;
        // The last character may not be incomplete any more.
        match self.checked_bytes == self.content.len() {
            true => Ok(Event::Text(Text(self.content))),
            false => Err(NOT_UTF8),
        }
    }
}

/// A buffer gets room for the rest of a payload if this part of it has arrived, one in so many bytes.
const ROOM_FACTOR: u64 = 8;
const NOT_UTF8: Violation =
    Violation::new(close_codes::INVALID_PAYLOAD, "a text that is not UTF-8");

impl Event {
    /// The length of the payload in bytes.
    pub fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.as_bytes().len(),
            Self::Binary(content) | Self::Ping(content) | Self::Pong(content) => content.len(),
            Self::Close(close) => close.reason.len(),
        }
    }

    /// Encodes the event as a frame. With a key it is masked.
    pub fn to_frame(&self, mask: Option<[u8; 4]>) -> Bytes {
        let frame = |opcode, payload: &[u8]| super::frame(opcode, payload, mask);
        match self {
            Self::Text(text) => frame(Opcode::Text, text.as_bytes()),
            Self::Binary(content) => frame(Opcode::Binary, content),
            Self::Ping(payload) => frame(Opcode::Ping, payload),
            Self::Pong(payload) => frame(Opcode::Pong, payload),
            Self::Close(close) if close.code == close_codes::NO_STATUS => frame(Opcode::Close, b""),
            Self::Close(close) => frame(Opcode::Close, &Close::payload(close.code, &close.reason)),
        }
    }
}
