//! A connection with HTTP/2 (RFC 9113) by prior knowledge, with several requests at once.

use std::time::Instant;

use uringcore_bench::Failure;
use uringcore_bench::latency::Latencies;

use crate::exchange::Exchange;
use crate::hpack;
use crate::load::Protocol;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD: usize = 9;
/// Our window of a stream, more than any answer; browsers have several MiB as well.
const STREAM_WINDOW: u32 = 16 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;
const DEFAULT_WINDOW: u32 = 65_535;
const FRAME_BYTES_MAX: usize = 1 << 20;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 0x1;
const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

struct Stream {
    id: u32,
    since: Instant,
    /// Bytes of the body that have arrived; none before the head.
    at: Option<usize>,
}

pub struct Connection {
    fields: Fields,
    /// A cut frame.
    partial: Vec<u8>,
    streams: Vec<Stream>,
    next_id: u32,
    /// The server's settings have arrived.
    ready: bool,
    concurrent_max: usize,
    stream_window: i64,
    window: i64,
    consumed: u32,
}

struct Fields {
    first: Vec<u8>,
    next: Vec<u8>,
    literal: Vec<u8>,
    table: bool,
}

impl Protocol for Connection {
    fn new(exchange: &Exchange, _streams: usize, out: &mut Vec<u8>) -> Result<Self, Failure> {
        let length = exchange.content.len().to_string();
        let mut fields = vec![
            (hpack::AUTHORITY, exchange.authority.as_str()),
            (hpack::PATH, exchange.path.as_str()),
            (hpack::USER_AGENT, "http_load"),
            (hpack::ACCEPT, "*/*"),
        ];
        let post = !exchange.content.is_empty();
        if post {
            fields.push((hpack::CONTENT_TYPE, "application/json"));
            fields.push((hpack::CONTENT_LENGTH, &length));
        }
        let (first, next) = hpack::blocks(post, &fields, true);
        let (literal, _) = hpack::blocks(post, &fields, false);
        out.extend_from_slice(PREFACE);
        frame(out, SETTINGS, 0, 0, 12);
        for (name, value) in [(2_u16, 0_u32), (4, STREAM_WINDOW)] {
            out.extend_from_slice(&name.to_be_bytes());
            out.extend_from_slice(&value.to_be_bytes());
        }
        window_update(out, CONNECTION_WINDOW - DEFAULT_WINDOW);
        Ok(Connection {
            fields: Fields {
                first,
                next,
                literal,
                table: true,
            },
            partial: Vec::new(),
            streams: Vec::new(),
            next_id: 1,
            ready: false,
            concurrent_max: usize::MAX,
            stream_window: i64::from(DEFAULT_WINDOW),
            window: i64::from(DEFAULT_WINDOW),
            consumed: 0,
        })
    }

    fn in_flight(&self) -> usize {
        self.streams.len()
    }

    fn ask(&mut self, exchange: &Exchange, limit: usize, out: &mut Vec<u8>) -> Result<(), Failure> {
        let limit = limit.min(self.concurrent_max);
        let content = exchange.content.len() as i64;
        if content > self.stream_window {
            return Err(format!("content of {content} bytes needs a larger window").into());
        }
        while self.ready && self.streams.len() < limit && content <= self.window {
            let fields = match self.next_id {
                _ if !self.fields.table => &self.fields.literal,
                1 => &self.fields.first,
                _ => &self.fields.next,
            };
            let flags = END_HEADERS | if content == 0 { END_STREAM } else { 0 };
            frame(out, HEADERS, flags, self.next_id, fields.len());
            out.extend_from_slice(fields);
            if content > 0 {
                frame(out, DATA, END_STREAM, self.next_id, exchange.content.len());
                out.extend_from_slice(&exchange.content);
                self.window -= content;
            }
            self.streams.push(Stream {
                id: self.next_id,
                since: Instant::now(),
                at: None,
            });
            self.next_id += 2;
        }
        Ok(())
    }

    fn receive(
        &mut self,
        exchange: &Exchange,
        data: &[u8],
        out: &mut Vec<u8>,
        done: &mut Latencies,
    ) -> Result<u64, Failure> {
        let joined;
        let mut data = data;
        if !self.partial.is_empty() {
            self.partial.extend_from_slice(data);
            joined = std::mem::take(&mut self.partial);
            data = &joined;
        }
        let mut responses = 0;
        while let Some((head, rest)) = data.split_first_chunk::<HEAD>() {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            if length > FRAME_BYTES_MAX {
                return Err(format!("a frame of {length} bytes").into());
            }
            let Some((payload, rest)) = rest.split_at_checked(length) else {
                break;
            };
            let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
            if self.handle(exchange, (head[3], head[4], id), payload, out, done)? {
                responses += 1;
            }
            data = rest;
        }
        self.partial.extend_from_slice(data);
        Ok(responses)
    }
}

impl Connection {
    /// Returns true if the frame ends a response.
    fn handle(
        &mut self,
        exchange: &Exchange,
        (kind, flags, id): (u8, u8, u32),
        payload: &[u8],
        out: &mut Vec<u8>,
        done: &mut Latencies,
    ) -> Result<bool, Failure> {
        match kind {
            DATA => {
                self.consume(payload.len() as u32, out);
                let piece = unpadded(flags, payload)?;
                let stream = self.stream(id)?;
                let at = stream.at.ok_or("content before a head")?;
                exchange.check(at, piece)?;
                stream.at = Some(at + piece.len());
                self.end(exchange, flags, id, done)
            }
            HEADERS => {
                let block = unpadded(flags, payload)?;
                let skipped = if flags & PRIORITY == 0 { 0 } else { 5 };
                let stream = self.stream(id)?;
                // A second head is a trailer section.
                if stream.at.is_none() {
                    if !hpack::is_ok(block.get(skipped..).unwrap_or_default()) {
                        return Err(format!("a wrong status: {block:02x?}").into());
                    }
                    stream.at = Some(0);
                }
                self.end(exchange, flags, id, done)
            }
            SETTINGS if flags & ACK == 0 => {
                self.apply(payload);
                frame(out, SETTINGS, ACK, 0, 0);
                Ok(false)
            }
            PING if flags & ACK == 0 => {
                frame(out, PING, ACK, 0, payload.len());
                out.extend_from_slice(payload);
                Ok(false)
            }
            WINDOW_UPDATE if id == 0 => {
                self.window += i64::from(number(payload));
                Ok(false)
            }
            RST_STREAM => Err(format!("stream {id} reset with {}", number(payload)).into()),
            GOAWAY => Err(format!("GOAWAY {payload:02x?}").into()),
            _ => Ok(false),
        }
    }

    fn stream(&mut self, id: u32) -> Result<&mut Stream, Failure> {
        let found = self.streams.iter_mut().find(|one| one.id == id);
        found.ok_or_else(|| format!("a frame for stream {id}, which is not open").into())
    }

    fn end(
        &mut self,
        exchange: &Exchange,
        flags: u8,
        id: u32,
        done: &mut Latencies,
    ) -> Result<bool, Failure> {
        if flags & END_STREAM == 0 {
            return Ok(false);
        }
        let at = self.streams.iter().position(|one| one.id == id);
        let stream = self.streams.swap_remove(at.ok_or("a stream is gone")?);
        exchange.check_end(stream.at.unwrap_or(0))?;
        done.add(stream.since.elapsed());
        Ok(true)
    }

    fn apply(&mut self, payload: &[u8]) {
        for (name, value) in payload.as_chunks::<6>().0.iter().map(|one| {
            let name = u16::from_be_bytes([one[0], one[1]]);
            (name, u32::from_be_bytes([one[2], one[3], one[4], one[5]]))
        }) {
            match name {
                1 => self.fields.table = value >= hpack::TABLE_BYTES_MIN,
                3 => self.concurrent_max = value as usize,
                4 => self.stream_window = i64::from(value),
                _ => {}
            }
        }
        self.ready = true;
    }

    /// Returns credit for received content when half of the window is used.
    fn consume(&mut self, count: u32, out: &mut Vec<u8>) {
        self.consumed += count;
        if self.consumed > CONNECTION_WINDOW / 2 {
            window_update(out, self.consumed);
            self.consumed = 0;
        }
    }
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, length: usize) {
    out.extend_from_slice(&(length as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
}

fn window_update(out: &mut Vec<u8>, count: u32) {
    frame(out, WINDOW_UPDATE, 0, 0, 4);
    out.extend_from_slice(&count.to_be_bytes());
}

fn unpadded(flags: u8, payload: &[u8]) -> Result<&[u8], Failure> {
    if flags & PADDED == 0 {
        return Ok(payload);
    }
    let (padding, rest) = payload.split_first().ok_or("a cut frame")?;
    let length = rest.len().checked_sub(usize::from(*padding));
    Ok(&rest[..length.ok_or("more padding than frame")?])
}

/// The first four bytes of a payload.
fn number(payload: &[u8]) -> u32 {
    let bytes = payload.first_chunk::<4>().copied().unwrap_or_default();
    u32::from_be_bytes(bytes) & 0x7fff_ffff
}
