//! Splits the input into frames (RFC 9113 section 4.1).

use std::time::Instant;

use bytes::{Buf, BytesMut};

use super::{Connection, Phase};
use crate::http2::error::Fault;
use crate::http2::frame_codec::{FrameHeader, HEADER_BYTES, PAYLOAD_MAX, PREFACE, flag, kind};
use crate::input_buffer_shrink::release_large_buffer;
use crate::tcp_output::Closing;

impl Connection {
    /// Reads received bytes.
    pub fn receive(&mut self, data: BytesMut, now: Instant) {
        match &mut self.phase {
            Phase::Over => return,
            Phase::Linger { left, .. } => {
                match left.checked_sub(data.len()) {
                    Some(rest) => *left = rest,
                    None => self.close(Closing::Gracefully),
                }
                return;
            }
            _ => {}
        }
        self.idle_timer.data_arrived();
        self.has_data_arrived = true;
        let mut input = std::mem::take(&mut self.input);
        match input.is_empty() {
            true => input = data,
            false => input.extend_from_slice(&data),
        }
        let memory = input.len();
        if let Err(fault) = self.read(&mut input, now) {
            self.handle_fault(fault, now);
        }
        if self.is_over() {
            return;
        }
        if !input.is_empty() {
            release_large_buffer(&mut input, memory);
            self.input = input;
        }
        self.give_credit();
    }

    /// Reads the input until its end, or until a frame is incomplete.
    fn read(&mut self, input: &mut BytesMut, now: Instant) -> Result<(), Fault> {
        if self.phase == Phase::Preface && !self.read_preface(input)? {
            return Ok(());
        }
        while let Some(header) = FrameHeader::read(input) {
            // RFC 9113 section 4.2.
            if header.length > PAYLOAD_MAX {
                return Err(Fault::frame_size("a frame is too large"));
            }
            self.check_order(header)?;
            if input.len() < HEADER_BYTES + header.length {
                break;
            }
            input.advance(HEADER_BYTES);
            let handled = match header.kind {
                kind::DATA => {
                    let payload = input.split_to(header.length).freeze();
                    self.data(header, payload, now)
                }
                _ => {
                    let handled = self.frame(header, &input[..header.length], now);
                    input.advance(header.length);
                    handled
                }
            };
            match handled {
                Err(fault @ Fault::Stream(..)) => self.handle_fault(fault, now),
                handled => handled?,
            }
            if self.is_over() {
                return Ok(());
            }
            if self.block.is_none() {
                self.incomplete_since = None;
            }
        }
        // A slow request is one whose field block is incomplete. Content has a time-out of its own.
        // The first three bytes of a frame do not show its type.
        let is_other_frame = input.get(3).is_some_and(|&it| it != kind::DATA);
        if self.block.is_some() || is_other_frame {
            self.incomplete_since.get_or_insert(now);
        }
        Ok(())
    }

    /// Returns true if the preface is complete.
    fn read_preface(&mut self, input: &mut BytesMut) -> Result<bool, Fault> {
        let length = input.len().min(PREFACE.len());
        if input[..length] != PREFACE[..length] {
            return Err(Fault::protocol("this is not HTTP/2"));
        }
        if length < PREFACE.len() {
            return Ok(false);
        }
        input.advance(length);
        self.phase = Phase::FirstSettings;
        Ok(true)
    }

    /// Checks if a frame may come now, before its payload has arrived.
    fn check_order(&self, header: FrameHeader) -> Result<(), Fault> {
        if self.phase == Phase::FirstSettings
            && (header.kind != kind::SETTINGS || header.has(flag::ACK))
        {
            return Err(Fault::protocol("the first frame is not SETTINGS"));
        }
        // No other frame may come within a field block (RFC 9113 section 6.10).
        match (&self.block, header.kind) {
            (Some(block), kind::CONTINUATION) if block.stream_id == header.stream_id => Ok(()),
            (Some(_), _) => Err(Fault::protocol("a field block is incomplete")),
            (None, kind::CONTINUATION) => Err(Fault::protocol("there is no field block")),
            (None, _) => Ok(()),
        }
    }

    fn frame(&mut self, header: FrameHeader, payload: &[u8], now: Instant) -> Result<(), Fault> {
        match header.kind {
            kind::HEADERS => self.headers(header, payload, now),
            kind::CONTINUATION => self.continuation(header, payload, now),
            kind::RST_STREAM => self.rst_stream(header, payload, now),
            kind::WINDOW_UPDATE => self.window_update(header, payload),
            kind::SETTINGS => self.settings(header, payload),
            kind::PING => self.ping(header, payload),
            kind::PRIORITY => self.priority(header, payload),
            kind::PRIORITY_UPDATE => self.priority_update(header, payload),
            kind::GOAWAY => self.goaway_received(header, payload),
            kind::PUSH_PROMISE => Err(Fault::protocol("a client sends no PUSH_PROMISE")),
            // Frames of unknown types are ignored (RFC 9113 section 4.1).
            _ => self.useless_frames.take(1),
        }
    }
}
