//! One stream: its two halves (RFC 9000 section 3), and the transfer of bytes between them and the state machine.
//!
//! Not here: scheduling, and the beginning and end of streams (`streams`).

use bytes::Bytes;
use quinn_proto::{self as quinn, Dir, StreamId, VarInt};
use uringcore_wire::frames::ResetAt;

use super::{keep, send_queue::SendQueue};
use crate::seams::acked_stream_prefix::Head;
use crate::{Received, StreamEnd};

pub(crate) struct Stream {
    pub send: Send,
    pub receive: Receive,
    /// Bytes read and passed on at the last search for streams to shed.
    pub moved: u64,
}

pub(crate) struct Send {
    pub state: SendState,
    /// Sent before the queue, and delivered even if the stream is reset.
    pub head: Option<Head>,
    pub queue: SendQueue,
    /// Bytes that the state machine has taken so far.
    pub handed_over: u64,
    /// A FIN follows the queue.
    pub fin: bool,
    /// Reset with this code once opened.
    pub reset_when_opened: Option<u64>,
    /// Listed in `Streams::ready`.
    pub ready: bool,
    pub served_at: u64,
    /// The queue grew to the high watermark, and has not fallen to the low one.
    pub above_high_water: bool,
    /// Higher ranks are served first (`priority`).
    pub rank: i32,
    /// Data that was passed on, while 0-RTT data may be rejected.
    pub early: Option<Vec<Bytes>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendState {
    /// The stream has no such direction, or this one has ended.
    Absent,
    /// Waits for the peer's stream limit.
    Waiting,
    Open,
    /// The FIN was passed on and is not acknowledged.
    Finished,
    /// The stream will be reset once the peer has the head.
    GivenUp,
    Reset,
}

pub(crate) struct Receive {
    pub open: bool,
    pub paused: bool,
    /// Data can be read, but the host has paused.
    pub held_back: bool,
    /// An event that leads to a read is queued.
    pub announced: bool,
    /// Some of the readable data came as 0-RTT data.
    pub early: bool,
    /// Stop with this code once opened.
    pub stop_when_opened: Option<u64>,
    /// Readable data becomes an event, although the connection is read on demand.
    pub delivered: bool,
    /// The number of read bytes.
    pub read: u64,
    /// The offset after the last arrived byte, and the bytes of the packets with the unread data.
    pub end: u64,
    pub packet_bytes: usize,
    /// No data can follow `end`.
    pub is_end_known: bool,
    /// The peer has reset the stream with a reliable size.
    pub reset_at: Option<ResetAt>,
}

impl Send {
    pub fn new(state: SendState) -> Self {
        Self {
            state,
            head: None,
            queue: SendQueue::default(),
            handed_over: 0,
            fin: false,
            reset_when_opened: None,
            ready: false,
            served_at: 0,
            above_high_water: false,
            rank: 0,
            early: None,
        }
    }

    /// True if there may be data to pass on or to be acknowledged.
    pub fn is_open(&self) -> bool {
        matches!(
            self.state,
            SendState::Waiting | SendState::Open | SendState::Finished
        )
    }

    /// True if the head must be delivered before a reset.
    pub fn owes_head(&self) -> bool {
        self.head.as_ref().is_some_and(|head| !head.is_delivered())
    }

    /// True if there is something to pass on now.
    pub fn has_more(&self) -> bool {
        let has_head = self.head.as_ref().is_some_and(Head::is_waiting);
        match self.state {
            SendState::Open => has_head || self.fin || !self.queue.is_empty(),
            SendState::GivenUp => has_head,
            _ => false,
        }
    }

    /// Passes on the head and one share of the queue, `room` bytes at most, and the FIN if nothing is left before
    /// it.
    pub fn flush(&mut self, conn: &mut quinn::Connection, id: u64, room: usize) -> Flushed {
        if !self.has_more() {
            return Flushed::Done;
        }
        let mut stream = conn.send_stream(stream_id(id));
        if let Some(head) = &mut self.head {
            match head.hand_over(&mut stream) {
                Ok(()) => {}
                Err(quinn::WriteError::Blocked) => return Flushed::Blocked,
                // The event with the reason is queued.
                Err(quinn::WriteError::Stopped(_) | quinn::WriteError::ClosedStream) => {
                    return Flushed::Done;
                }
            }
        }
        let mut share = SHARE.min(room);
        if share == 0 && !self.queue.is_empty() {
            return Flushed::UnreadData;
        }
        if room < self.queue.len() {
            self.queue.cut_at(room);
        }
        while !self.queue.is_empty() {
            let pieces = self.queue.pieces();
            let count = pieces_within(pieces, share);
            let kept = self.early.is_some().then(|| pieces[..count].to_vec());
            match stream.write_chunks(&mut pieces[..count]) {
                Ok(written) => {
                    if let (Some(early), Some(kept)) = (&mut self.early, kept) {
                        keep(early, kept, written.bytes);
                    }
                    self.queue.taken(written.chunks, written.bytes);
                    share = share.saturating_sub(written.bytes);
                }
                Err(quinn::WriteError::Blocked) => return Flushed::Blocked,
                // The event with the reason is queued.
                Err(quinn::WriteError::Stopped(_) | quinn::WriteError::ClosedStream) => {
                    return Flushed::Done;
                }
            }
            if share == 0 && !self.queue.is_empty() {
                return match room <= SHARE {
                    true => Flushed::UnreadData,
                    false => Flushed::Share,
                };
            }
        }
        if self.fin && self.state == SendState::Open {
            self.state = SendState::Finished;
            let _ = stream.finish();
        }
        Flushed::Done
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flushed {
    Done,
    /// The peer's limits or the send window block the rest.
    Blocked,
    /// More could be passed on, but other streams take their turn.
    Share,
    /// A limit of the peer that the state machine does not track blocks the rest.
    UnreadData,
}

impl Receive {
    pub fn new(open: bool) -> Self {
        Self {
            open,
            paused: false,
            held_back: false,
            announced: false,
            early: false,
            stop_when_opened: None,
            delivered: false,
            read: 0,
            end: 0,
            packet_bytes: 0,
            is_end_known: false,
            reset_at: None,
        }
    }

    /// True for the first call until the next read.
    pub fn announce(&mut self) -> bool {
        !std::mem::replace(&mut self.announced, true)
    }
}

/// Reads in order, at most `max` bytes.
pub(crate) fn read_stream(conn: &mut quinn::Connection, id: u64, max: usize) -> Received {
    let mut received = Received::default();
    let mut stream = conn.recv_stream(stream_id(id));
    let Ok(mut chunks) = stream.read(true) else {
        return received;
    };
    let mut room = max;
    loop {
        // Without room a chunk is empty, and exists if the stream has more data: this way the stream's end is
        // returned together with its last byte.
        match chunks.next(room) {
            Ok(Some(_)) if room == 0 => break,
            Ok(Some(chunk)) => {
                room -= chunk.bytes.len();
                received.data.push(chunk.bytes);
            }
            Ok(None) => {
                received.end = Some(StreamEnd::Finished);
                break;
            }
            Err(quinn::ReadError::Blocked) => break,
            Err(quinn::ReadError::Reset(code)) => {
                let error_code = code.into_inner();
                received.end = Some(StreamEnd::Reset { error_code });
                break;
            }
        }
    }
    // The next `poll_transmit`, which always follows, checks if credit is due.
    let _ = chunks.finalize();
    received
}

/// How many pieces make up a share: whole ones, and at least one.
fn pieces_within(pieces: &[Bytes], share: usize) -> usize {
    let mut sum = 0;
    let fits = |piece: &&Bytes| {
        let fits = sum < share;
        sum += piece.len();
        fits
    };
    pieces.iter().take_while(fits).count()
}

pub(crate) fn stream_id(id: u64) -> StreamId {
    varint(id).into()
}

pub(crate) fn dir(id: u64) -> Dir {
    stream_id(id).dir()
}

pub(crate) fn index(id: u64) -> u64 {
    id >> 2
}

/// Converts a number that was checked before.
pub(crate) fn varint(value: u64) -> VarInt {
    VarInt::from_u64(value).unwrap_or(VarInt::MAX)
}

/// The share of one stream before the next one has its turn.
const SHARE: usize = 64 << 10;
