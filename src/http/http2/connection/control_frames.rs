//! Frames other than those of requests: settings, credit, pings and priorities.

use uringcore_h3::Priority;

use super::{Connection, Phase};
use crate::http2::error::{Code, Fault};
use crate::http2::frame_codec::{self, FrameHeader, INITIAL_WINDOW, WINDOW_MAX, flag};
use crate::http2::settings;
use crate::http2::stream::{CREDIT_PARTS, increment};

impl Connection {
    /// Sends this side's SETTINGS, and credit for the connection.
    pub(super) fn send_settings(&mut self) {
        let settings = settings::ours(&self.limits);
        self.put(|out| frame_codec::put_settings(out, &settings));
        self.owed_credit = (CONNECTION_WINDOW - INITIAL_WINDOW) as u32;
        self.give_credit();
    }

    /// Encodes a frame to the output.
    pub(super) fn put(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let (buffer, before) = self.output.buffer();
        encode(buffer);
        self.output.end_buffer(before, true);
    }

    /// Gives the client credit for content of the whole connection, when a part of the window was used.
    pub(super) fn give_credit(&mut self) {
        let is_due = self.owed_credit >= CONNECTION_WINDOW as u32 / CREDIT_PARTS;
        if !is_due || self.is_credit_withheld || self.is_over() {
            return;
        }
        let increment = std::mem::take(&mut self.owed_credit);
        self.receive_window += i64::from(increment);
        self.put(|out| frame_codec::put_window_update(out, 0, increment));
    }

    /// RFC 9113 section 6.5.
    pub(super) fn settings(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), Fault> {
        if header.stream_id != 0 {
            return Err(Fault::protocol("SETTINGS on a stream"));
        }
        if header.has(flag::ACK) {
            return match payload {
                [] => self.useless_frames.take(1),
                _ => Err(Fault::frame_size("an acknowledgement of SETTINGS is empty")),
            };
        }
        if !payload.len().is_multiple_of(6) {
            return Err(Fault::frame_size("SETTINGS consist of 6 bytes each"));
        }
        self.useless_frames
            .take(1 + payload.len() / SETTINGS_BYTES_FEW)?;
        if self.phase == Phase::FirstSettings {
            self.phase = Phase::Frames;
        }
        let before = self.peer.initial_window;
        if let Some(smallest) = self.peer.apply(payload)? {
            self.encoder.set_table_max(smallest);
            self.encoder.set_table_max(self.peer.table_max);
        }
        let change = self.peer.initial_window - before;
        if change != 0 {
            // The windows of all streams change (RFC 9113 section 6.9.2).
            for stream in self.streams.values_mut() {
                let changed = stream.change_send_window(change);
                changed.map_err(|code| Fault::Connection(code, "a window is too large"))?;
            }
            let streams = Vec::from_iter(self.streams.keys().copied());
            streams.into_iter().for_each(|it| self.reschedule(it));
        }
        self.put(frame_codec::put_settings_ack);
        Ok(())
    }

    /// RFC 9113 section 6.9.
    pub(super) fn window_update(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<(), Fault> {
        let increment = increment(payload)?;
        self.useless_frames.take_credit()?;
        let stream_id = header.stream_id;
        if stream_id == 0 {
            let increment = increment.ok_or(Fault::protocol("the increment is 0"))?;
            self.send_window += increment;
            return match self.send_window > WINDOW_MAX {
                true => Err(Fault::Connection(
                    Code::FlowControlError,
                    "the connection's window is too large",
                )),
                false => Ok(()),
            };
        }
        self.check_not_idle(stream_id)?;
        let Some(stream) = self.streams.get_mut(&stream_id) else {
            return Ok(());
        };
        let increment = increment.ok_or(Fault::Stream(stream_id, Code::ProtocolError))?;
        let changed = stream.change_send_window(increment);
        changed.map_err(|code| Fault::Stream(stream_id, code))?;
        self.reschedule(stream_id);
        Ok(())
    }

    /// RFC 9113 section 6.7.
    pub(super) fn ping(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), Fault> {
        let Ok(data) = <&[u8; 8]>::try_from(payload) else {
            return Err(Fault::frame_size("a PING has 8 bytes"));
        };
        if header.stream_id != 0 {
            return Err(Fault::protocol("a PING on a stream"));
        }
        self.useless_frames.take(1)?;
        match header.has(flag::ACK) {
            true => self.ping_acknowledged(data),
            false => self.put(|out| frame_codec::put_ping(out, true, data)),
        }
        Ok(())
    }

    /// The priorities of RFC 7540 are ignored, but checked (RFC 9113 section 6.3).
    pub(super) fn priority(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), Fault> {
        let stream_id = header.stream_id;
        if stream_id == 0 {
            return Err(Fault::protocol("a PRIORITY on the connection"));
        }
        self.useless_frames.take(1)?;
        let code = match payload.len() {
            5 if !depends_on_itself(stream_id, payload) => return Ok(()),
            5 => Code::ProtocolError,
            _ => Code::FrameSizeError,
        };
        // A stream that has not begun cannot be reset (RFC 9113 section 6.4).
        Err(match self.streams.contains_key(&stream_id) {
            true => Fault::Stream(stream_id, code),
            false => Fault::Connection(code, "a PRIORITY is invalid"),
        })
    }

    /// RFC 9218 section 7.1.
    pub(super) fn priority_update(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<(), Fault> {
        let Some((stream_id, value)) = payload.split_first_chunk::<4>() else {
            return Err(Fault::frame_size("a PRIORITY_UPDATE has 4 bytes at least"));
        };
        let stream_id = u32::from_be_bytes(*stream_id) & frame_codec::STREAM_ID_MAX;
        if header.stream_id != 0 || stream_id == 0 {
            return Err(Fault::protocol("a PRIORITY_UPDATE of a wrong stream"));
        }
        self.useless_frames.take(1)?;
        // This side opens no streams, so no stream with an even identifier has a priority.
        if stream_id.is_multiple_of(2) {
            return Err(Fault::protocol("a PRIORITY_UPDATE of a push"));
        }
        let priority = Priority::parse(value);
        match stream_id > self.last_stream {
            true => self.early_priorities.set(stream_id, priority),
            false => self.reprioritize(stream_id, priority),
        }
        Ok(())
    }

    /// Checks that a stream has begun (RFC 9113 section 5.1).
    pub(super) fn check_not_idle(&self, stream_id: u32) -> Result<(), Fault> {
        match stream_id > self.last_stream || stream_id.is_multiple_of(2) {
            true => Err(Fault::protocol("a frame on an idle stream")),
            false => Ok(()),
        }
    }
}

/// True if the priority fields of a frame name its own stream (RFC 7540 section 5.3.1).
pub(super) fn depends_on_itself(stream_id: u32, priority: &[u8]) -> bool {
    let dependency = priority.first_chunk().map(|it| u32::from_be_bytes(*it));
    dependency.is_some_and(|it| it & frame_codec::STREAM_ID_MAX == stream_id)
}

/// The flow-control window of the connection for content of requests. It is larger than that of a stream, so that a
/// stream whose application does not read leaves credit for others.
const CONNECTION_WINDOW: i64 = 4 << 20;
/// A SETTINGS frame counts as another useless frame for each of this many bytes.
const SETTINGS_BYTES_FEW: usize = 96;
