//! Content of responses: from the host, through the queues of the streams, to the output.

use std::time::Instant;

use bytes::Bytes;

use super::Connection;
use super::response_commands::{CONNECTION_QUEUE_LOW, STREAM_QUEUE_FEW, put_trailers};
use crate::http2::error::Code;
use crate::http2::event::Event;
use crate::http2::frame_codec::{self, FrameHeader, flag, kind};
use crate::http2::settings::STREAM_WINDOW;
use crate::http2::stream::{End, Sending};

impl Connection {
    /// Sends content of a response: to the output if it fits there now, or else to the queue of its stream.
    pub(super) fn send_content(&mut self, stream_id: u32, content: Bytes, end: bool) {
        let has_space = self.has_space() && self.scheduler.is_empty();
        let frame_max = self.peer.frame_max.min(FRAME_BYTES_MAX);
        let Some(stream) = self.streams.get_mut(&stream_id) else {
            return;
        };
        if end {
            stream.sending = Sending::Nothing;
        }
        if content.is_empty() && !end {
            return;
        }
        let size = content.len();
        let window = stream.send_window.min(self.send_window);
        let fits = size == 0 || (has_space && size <= frame_max && size as i64 <= window);
        if stream.queue.is_empty() && fits {
            stream.send_window -= size as i64;
            self.send_window -= size as i64;
            self.put_data_header(stream_id, size, end);
            self.output.content(content);
            self.useless_frames.allow_for_sent(size);
            return;
        }
        self.queued_bytes += size;
        stream.queue.push(content);
        if end {
            stream.queue.push_end(End::Content);
        }
        self.reschedule(stream_id);
    }

    fn put_data_header(&mut self, stream_id: u32, length: usize, end: bool) {
        let header = FrameHeader {
            length,
            kind: kind::DATA,
            flags: if end { flag::END_STREAM } else { 0 },
            stream_id,
        };
        self.output.copy(&header.encode());
    }

    /// True if the output has space for content.
    fn has_space(&self) -> bool {
        self.is_writable && self.output.len() < OUTPUT_BYTES
    }

    /// Adds a stream to the scheduler, if it can send and is not there.
    pub(super) fn reschedule(&mut self, stream_id: u32) {
        let priority = self.exchanges.rank(u64::from(stream_id));
        if let Some(stream) = self.streams.get_mut(&stream_id)
            && stream.may_send()
            && !std::mem::replace(&mut stream.is_scheduled, true)
        {
            self.scheduler.add(stream_id, priority);
        }
    }

    /// Applies a changed priority.
    pub(super) fn change_place(&mut self, stream_id: u32) {
        let Some(stream) = self.streams.get_mut(&stream_id) else {
            return;
        };
        if std::mem::take(&mut stream.is_scheduled) {
            self.scheduler.remove(stream_id);
            self.reschedule(stream_id);
        }
    }

    /// Moves content from the queues to the output, in the order of priorities, while the transport accepts more.
    /// Returns true if there is output.
    pub fn fill_output(&mut self, now: Instant) -> bool {
        let mut has_sent = false;
        while self.has_space() && self.send_window > 0 {
            let Some(stream_id) = self.scheduler.pop() else {
                break;
            };
            self.send_frame(stream_id, now);
            has_sent = true;
        }
        if has_sent && self.queued_bytes < CONNECTION_QUEUE_LOW {
            for stream_id in self.exchanges.waiting_for_connection() {
                self.has_room(stream_id);
            }
        }
        !self.output.is_empty()
    }

    /// Sends a frame of content from the queue of a stream, which the scheduler has given.
    fn send_frame(&mut self, stream_id: u32, now: Instant) {
        let frame_max = self.peer.frame_max.min(FRAME_BYTES_MAX);
        let Some(stream) = self.streams.get_mut(&stream_id) else {
            return;
        };
        stream.is_scheduled = false;
        let window = stream.send_window.min(self.send_window).max(0);
        let window = usize::try_from(window).unwrap_or(usize::MAX);
        let mut left = stream.queue.bytes().min(frame_max).min(window);
        let is_last = left == stream.queue.bytes();
        stream.send_window -= left as i64;
        self.send_window -= left as i64;
        self.queued_bytes -= left;
        let end = match is_last {
            // The end is taken before the content, because the frame header comes first.
            true => stream.queue.take_end(),
            false => None,
        };
        let mut queue = std::mem::take(&mut stream.queue);
        let ends_here = matches!(end, Some(End::Content));
        if left > 0 || ends_here {
            self.put_data_header(stream_id, left, ends_here);
        }
        if is_last || left >= DRIBBLE_BYTES {
            // A client that gives credit for a few bytes at a time gets no allowance (CVE-2019-9511, "Data Dribble").
            self.useless_frames.allow_for_sent(left);
        }
        while left > 0
            && let Some(piece) = queue.pop(left)
        {
            left -= piece.len();
            self.output.content(piece);
        }
        let rest = queue.bytes();
        if let Some(stream) = self.streams.get_mut(&stream_id) {
            stream.queue = queue;
        }
        if let Some(End::Trailers(block)) = end {
            let frame_max = self.peer.frame_max;
            self.put(|out| put_trailers(out, stream_id, &block, frame_max));
        }
        let id = u64::from(stream_id);
        self.slowly_read_responses
            .note_read(id, || self.exchanges.rank(id), now);
        if rest <= STREAM_QUEUE_FEW {
            self.has_room(id);
        }
        self.reschedule(stream_id);
        self.finish_stream(stream_id);
        if rest == 0 {
            self.start_idle_timer(now);
        }
    }

    fn has_room(&mut self, stream_id: u64) {
        if self.exchanges.stop_waiting(stream_id) {
            self.events.push_back(Event::Writable { stream_id });
        }
    }

    /// Removes a stream whose response is sent, if its request has ended as well. Resets it if the rest of the request
    /// is not needed.
    pub(super) fn finish_stream(&mut self, stream_id: u32) {
        let Some(stream) = self.streams.get(&stream_id).filter(|it| it.is_sent()) else {
            return;
        };
        if stream.is_received {
            self.remove(stream_id);
        } else if stream.is_reset_at_end {
            // RFC 9113 section 8.1.
            self.reset(stream_id, Code::NoError);
        } else {
            self.slowly_read_responses.ended(u64::from(stream_id));
        }
    }

    /// Resets a stream.
    pub(super) fn reset(&mut self, stream_id: u32, code: Code) {
        self.put(|out| frame_codec::put_rst_stream(out, stream_id, code));
        let stream = self.streams.get(&stream_id);
        let window = match stream {
            Some(stream) => stream.credit.window(),
            None if code == Code::StreamClosed => 0,
            // A request that was refused has its whole window.
            None => STREAM_WINDOW.into(),
        };
        self.reset_streams.add(stream_id, window);
        self.remove(stream_id);
    }
}

/// The maximum content in bytes of a frame that this side sends, if the client accepts larger frames.
const FRAME_BYTES_MAX: usize = 64 << 10;
/// No further content is moved to an output of this size, so that urgent content waits for little else.
const OUTPUT_BYTES: usize = 128 << 10;
/// A frame that credit has cut to fewer bytes allows the client no useless frames.
const DRIBBLE_BYTES: usize = 64;
