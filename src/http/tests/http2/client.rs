//! A client of HTTP/2 that is made of bytes, and the host of the server's connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use uringcore_http::http2::frame_codec::{FrameHeader, PREFACE, flag, kind};
use uringcore_http::http2::hpack::{Bounds, Decoder, Encoder};
use uringcore_http::http2::{Code, Connection, Event, Limits};
use uringcore_http::response_errors::SendError;
use uringcore_http::tcp_output::{Closing, Piece, Source};

/// A frame that the server has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream_id: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    pub fn code(&self) -> u32 {
        let at = if self.kind == kind::GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().expect("a code"))
    }

    pub fn ends(&self) -> bool {
        self.flags & flag::END_STREAM != 0
    }
}

pub struct Client {
    pub http: Connection,
    pub now: Instant,
    pub closing: Option<Closing>,
    pub encoder: Encoder,
    decoder: Decoder,
    sent: Vec<u8>,
}

pub const GET: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":path", "/"),
    (":authority", "localhost"),
];
pub const POST: [(&str, &str); 4] = [
    (":method", "POST"),
    (":scheme", "https"),
    (":path", "/"),
    (":authority", "localhost"),
];

impl Client {
    /// Makes a connection whose preface and settings are exchanged.
    pub fn new() -> Self {
        Self::with(Limits::default())
    }

    pub fn with(limits: Limits) -> Self {
        let mut client = Self::silent(limits);
        client.send(PREFACE);
        client.frame(kind::SETTINGS, 0, 0, &[]);
        client.frames();
        client
    }

    /// Makes a connection whose client has sent nothing.
    pub fn silent(limits: Limits) -> Self {
        let now = Instant::now();
        Self {
            http: Connection::new(Arc::new(limits), now),
            now,
            closing: None,
            encoder: Encoder::default(),
            decoder: Decoder::default(),
            sent: Vec::new(),
        }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.http.receive(bytes.into(), self.now);
        self.collect();
    }

    pub fn frame(&mut self, kind: u8, flags: u8, stream_id: u32, payload: &[u8]) {
        let bytes = encoded(kind, flags, stream_id, payload);
        self.send(&bytes);
    }

    pub fn block(&mut self, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut block = Vec::new();
        self.encoder.begin(&mut block);
        for (name, value) in fields {
            self.encoder
                .field(&mut block, name.as_bytes(), value.as_bytes());
        }
        block
    }

    pub fn headers(&mut self, stream_id: u32, fields: &[(&str, &str)], end: bool) {
        let block = self.block(fields);
        let end = if end { flag::END_STREAM } else { 0 };
        self.frame(kind::HEADERS, end | flag::END_HEADERS, stream_id, &block);
    }

    pub fn data(&mut self, stream_id: u32, content: &[u8], end: bool) {
        let flags = if end { flag::END_STREAM } else { 0 };
        self.frame(kind::DATA, flags, stream_id, content);
    }

    pub fn window_update(&mut self, stream_id: u32, increment: u32) {
        self.frame(kind::WINDOW_UPDATE, 0, stream_id, &increment.to_be_bytes());
    }

    pub fn settings(&mut self, settings: &[(u16, u32)]) {
        let payload = settings.iter().flat_map(|(id, value)| {
            let (id, value) = (id.to_be_bytes(), value.to_be_bytes());
            id.into_iter().chain(value)
        });
        self.frame(kind::SETTINGS, 0, 0, &Vec::from_iter(payload));
    }

    pub fn reset(&mut self, stream_id: u32) {
        let code = (Code::Cancel as u32).to_be_bytes();
        self.frame(kind::RST_STREAM, 0, stream_id, &code);
    }

    pub fn tick(&mut self, after: Duration, unsent: usize) {
        self.now += after;
        self.http.tick(unsent, self.now);
        self.collect();
    }

    pub fn seconds(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.tick(Duration::from_secs(1), 0);
        }
    }

    /// Writes the output, as the host does.
    pub fn collect(&mut self) {
        while self.http.fill_output(self.now) {
            for piece in self.http.output().pieces() {
                self.sent.extend_from_slice(match piece {
                    Piece::Copied(bytes) => bytes,
                    Piece::Kept(content) => content,
                });
            }
            self.http.written();
        }
        self.closing = self.http.take_closing().or(self.closing);
    }

    /// Returns the frames that the server has sent since the last call.
    pub fn frames(&mut self) -> Vec<Frame> {
        let sent = std::mem::take(&mut self.sent);
        let mut rest = &sent[..];
        let mut frames = Vec::new();
        while let Some(header) = FrameHeader::read(rest) {
            let (payload, others) = rest[9..].split_at(header.length);
            rest = others;
            frames.push(Frame {
                kind: header.kind,
                flags: header.flags,
                stream_id: header.stream_id,
                payload: payload.to_vec(),
            });
        }
        assert!(rest.is_empty());
        frames
    }

    /// Returns the frames of one stream.
    pub fn frames_of(&mut self, stream_id: u32) -> Vec<Frame> {
        let mut frames = self.frames();
        frames.retain(|frame| frame.stream_id == stream_id);
        frames
    }

    /// Returns the code of the GOAWAY that ends the connection.
    pub fn goaway(&mut self) -> Option<u32> {
        let frames = self.frames();
        let last = frames.iter().rfind(|frame| frame.kind == kind::GOAWAY);
        last.map(Frame::code)
    }

    /// Returns the code with which the server has reset a stream.
    pub fn reset_code(&mut self, stream_id: u32) -> Option<u32> {
        let frames = self.frames_of(stream_id);
        let reset = frames.iter().find(|frame| frame.kind == kind::RST_STREAM);
        reset.map(Frame::code)
    }

    pub fn lines(&mut self, frame: &Frame) -> Vec<String> {
        let bounds = Bounds {
            bytes: 1 << 20,
            fields: 1000,
        };
        let section = self.decoder.decode(&frame.payload, bounds);
        let section = section.expect("a field block");
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let lines = section.fields.iter();
        lines
            .map(|(name, value)| format!("{}: {}", text(name), text(value)))
            .collect()
    }

    pub fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.http.poll_event()).collect()
    }

    /// Returns the identifiers of the requests that were reported, with the status of their refusal.
    pub fn requests(&mut self) -> Vec<(u64, Option<u16>)> {
        let events = self.events().into_iter();
        let requests = events.filter_map(|event| match event {
            Event::Request {
                stream_id, refusal, ..
            } => Some((stream_id, refusal.map(|refusal| refusal.status))),
            _ => None,
        });
        requests.collect()
    }

    pub fn respond(
        &mut self,
        stream_id: u64,
        fields: &[(&str, &str)],
        content: &[u8],
        end: bool,
    ) -> Result<(), SendError> {
        let lines = Vec::from_iter(
            fields
                .iter()
                .map(|(name, value)| (name.as_bytes(), value.as_bytes())),
        );
        let content = Bytes::copy_from_slice(content);
        let sent = self.http.respond(stream_id, &lines, content, end, self.now);
        self.collect();
        sent
    }

    pub fn send_headers(
        &mut self,
        stream_id: u64,
        fields: &[(&str, &str)],
        end: bool,
    ) -> Result<(), SendError> {
        let lines = Vec::from_iter(
            fields
                .iter()
                .map(|(name, value)| (name.as_bytes(), value.as_bytes())),
        );
        let sent = self.http.send_headers(stream_id, &lines, end, self.now);
        self.collect();
        sent
    }

    pub fn send_data(
        &mut self,
        stream_id: u64,
        content: &[u8],
        end: bool,
    ) -> Result<(), SendError> {
        let content = Bytes::copy_from_slice(content);
        let sent = self.http.send_data(stream_id, content, end, self.now);
        self.collect();
        sent
    }

    pub fn done(&mut self, stream_id: u64) {
        self.http.done(stream_id, self.now);
        self.collect();
    }
}

pub fn encoded(kind: u8, flags: u8, stream_id: u32, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader {
        length: payload.len(),
        kind,
        flags,
        stream_id,
    };
    [&header.encode()[..], payload].concat()
}

/// The content of all DATA frames.
pub fn content(frames: &[Frame]) -> Vec<u8> {
    let data = frames.iter().filter(|frame| frame.kind == kind::DATA);
    data.flat_map(|frame| frame.payload.clone()).collect()
}
