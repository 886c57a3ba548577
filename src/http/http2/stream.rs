//! One stream: its states in both directions, its flow-control windows, and the content that waits to be sent.

use std::collections::VecDeque;

use bytes::Bytes;

use super::error::{Code, Fault};
use super::frame_codec::WINDOW_MAX;
use super::settings::STREAM_WINDOW;

/// A stream that is open in at least one direction.
#[derive(Debug)]
pub(super) struct Stream {
    /// True if the client has ended its direction.
    pub is_received: bool,
    /// The number of bytes of content that must still arrive, if the request has a Content-Length.
    content_left: Option<u64>,
    pub credit: Credit,
    pub sending: Sending,
    /// The number of bytes that the client accepts. A change of the client's settings can make it negative (RFC 9113
    /// section 6.9.2).
    pub send_window: i64,
    pub queue: SendQueue,
    /// True if the scheduler has the stream, because it has content and a window.
    pub is_scheduled: bool,
    /// True if the stream is reset when the response is sent, because the rest of the request is not needed (RFC 9113
    /// section 8.1).
    pub is_reset_at_end: bool,
}

/// The part of a response that the host has to send next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    Head,
    Content,
    /// The end of the response is sent, or is in the queue.
    Nothing,
}

impl Stream {
    pub fn new(is_received: bool, content_length: Option<u64>, send_window: i64) -> Self {
        Self {
            is_received,
            content_left: content_length,
            credit: Credit::default(),
            sending: Sending::Head,
            send_window,
            queue: SendQueue::default(),
            is_scheduled: false,
            is_reset_at_end: false,
        }
    }

    /// Checks received content against Content-Length (RFC 9113 section 8.1.1). Returns false if it does not agree.
    pub fn count_content(&mut self, size: usize, ended: bool) -> bool {
        let Some(left) = &mut self.content_left else {
            return true;
        };
        match left.checked_sub(size as u64) {
            Some(rest) => {
                *left = rest;
                !ended || rest == 0
            }
            None => false,
        }
    }

    /// Enlarges the window for content of the response. `change` is negative if the client has reduced its settings.
    pub fn change_send_window(&mut self, change: i64) -> Result<(), Code> {
        let window = self.send_window + change;
        if window > WINDOW_MAX {
            return Err(Code::FlowControlError);
        }
        self.send_window = window;
        Ok(())
    }

    /// True if the whole response is sent.
    pub fn is_sent(&self) -> bool {
        self.sending == Sending::Nothing && self.queue.is_empty()
    }

    /// True if content can be sent at the stream's window.
    pub fn may_send(&self) -> bool {
        !self.queue.is_empty() && self.send_window > 0
    }
}

/// The flow-control credit of the client for content of a request.
#[derive(Debug)]
pub(super) struct Credit {
    /// The number of bytes that the client may still send.
    window: i64,
    /// The number of received bytes for which the client gets new credit.
    owed: u32,
    /// The number of bytes that arrived while the stream was paused. The client gets credit for them at the resume.
    withheld: u32,
    is_paused: bool,
}

impl Default for Credit {
    fn default() -> Self {
        Self {
            window: i64::from(STREAM_WINDOW),
            owed: 0,
            withheld: 0,
            is_paused: false,
        }
    }
}

impl Credit {
    /// Counts the payload of a DATA frame. Returns the number of bytes for which the connection's window gets credit
    /// now.
    pub fn receive(&mut self, size: u32) -> Result<u32, Code> {
        if i64::from(size) > self.window {
            return Err(Code::FlowControlError);
        }
        self.window -= i64::from(size);
        if self.is_paused {
            self.withheld += size;
            return Ok(0);
        }
        self.owed += size;
        Ok(size)
    }

    /// The number of bytes that the client may still send.
    pub fn window(&self) -> i64 {
        self.window
    }

    pub fn pause(&mut self) {
        self.is_paused = true;
    }

    /// Returns the number of bytes for which the connection's window gets credit now.
    pub fn resume(&mut self) -> u32 {
        self.is_paused = false;
        self.owed += self.withheld;
        std::mem::take(&mut self.withheld)
    }

    /// The number of received bytes for which the connection's window has got no credit.
    pub fn withheld(&self) -> u32 {
        self.withheld
    }

    /// Returns the increment of a WINDOW_UPDATE frame, if the client should get one now. Small increments are
    /// collected.
    pub fn take_increment(&mut self) -> Option<u32> {
        if self.owed < STREAM_WINDOW / CREDIT_PARTS {
            return None;
        }
        self.window += i64::from(self.owed);
        Some(std::mem::take(&mut self.owed))
    }
}

/// The content of a response that waits for credit, or for space in the output.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    end: Option<End>,
}

/// The end of a response, behind its content.
#[derive(Debug)]
pub(super) enum End {
    Content,
    /// Trailers as an encoded field block.
    Trailers(Vec<u8>),
}

impl SendQueue {
    pub fn is_empty(&self) -> bool {
        self.bytes == 0 && self.end.is_none()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn push(&mut self, content: Bytes) {
        if !content.is_empty() {
            self.bytes += content.len();
            self.pieces.push_back(content);
        }
    }

    pub fn push_end(&mut self, end: End) {
        self.end = Some(end);
    }

    /// Removes the next piece, with at most `max` bytes.
    pub fn pop(&mut self, max: usize) -> Option<Bytes> {
        let first = self.pieces.front_mut()?;
        let piece = match first.len() <= max {
            true => self.pieces.pop_front()?,
            false => first.split_to(max),
        };
        self.bytes -= piece.len();
        Some(piece)
    }

    /// Removes the end of the response. The caller sends all content before it.
    pub fn take_end(&mut self) -> Option<End> {
        self.end.take()
    }
}

/// Checks the increment of a WINDOW_UPDATE frame (RFC 9113 section 6.9).
pub(super) fn increment(payload: &[u8]) -> Result<Option<i64>, Fault> {
    let Ok(value) = <[u8; 4]>::try_from(payload) else {
        return Err(Fault::frame_size("a WINDOW_UPDATE has 4 bytes"));
    };
    let value = u32::from_be_bytes(value) & super::frame_codec::STREAM_ID_MAX;
    Ok((value > 0).then_some(i64::from(value)))
}

/// The client gets credit when this part of a window was used.
pub(super) const CREDIT_PARTS: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_of_a_paused_stream_gets_credit_at_the_resume() {
        let mut credit = Credit::default();
        assert_eq!(credit.receive(1000), Ok(1000));
        credit.pause();
        assert_eq!(credit.receive(STREAM_WINDOW / 2), Ok(0));
        assert_eq!(
            (credit.withheld(), credit.take_increment()),
            (STREAM_WINDOW / 2, None)
        );
        assert_eq!(credit.receive(STREAM_WINDOW), Err(Code::FlowControlError));
        assert_eq!(credit.resume(), STREAM_WINDOW / 2);
        assert_eq!(credit.take_increment(), Some(STREAM_WINDOW / 2 + 1000));
        assert_eq!(credit.receive(STREAM_WINDOW), Ok(STREAM_WINDOW));
    }

    #[test]
    fn pieces_are_cut_and_the_end_comes_last() {
        let mut queue = SendQueue::default();
        queue.push(Bytes::from_static(b"abcd"));
        queue.push(Bytes::from_static(b"ef"));
        queue.push_end(End::Content);
        assert_eq!(queue.pop(3).as_deref(), Some(&b"abc"[..]));
        assert_eq!(queue.pop(3).as_deref(), Some(&b"d"[..]));
        assert_eq!(queue.pop(3).as_deref(), Some(&b"ef"[..]));
        assert!(!queue.is_empty() && queue.pop(3).is_none());
        assert!(queue.take_end().is_some() && queue.is_empty());
    }

    #[test]
    fn content_agrees_with_its_length() {
        let stream = |length| Stream::new(false, length, 0);
        assert!(stream(None).count_content(5, true));
        assert!(stream(Some(5)).count_content(5, true));
        assert!(stream(Some(5)).count_content(4, false));
        assert!(!stream(Some(5)).count_content(4, true));
        assert!(!stream(Some(5)).count_content(6, false));
    }
}
