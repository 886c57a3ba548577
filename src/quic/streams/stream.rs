//! One stream: its sending and its receiving part (RFC 9000 section 3), and the transfer of bytes between them and
//! quinn-proto.
//!
//! Not here: scheduling, and the beginning and end of streams (`streams`).

use bytes::Bytes;
use quinn_proto::{self as quinn, Dir, StreamId, VarInt};
use uringcore_wire::frame_iterator::ResetAt;

use super::{keep_copy, send_queue::SendQueue};
use crate::workarounds::acked_stream_prefix::Head;
use crate::{Chunks, Received, StreamEnd};

pub(crate) struct Stream {
    pub send: Send,
    pub receive: Receive,
    /// The bytes of this stream that were read, and those that were passed to quinn-proto, in sum, as of the last
    /// search for streams to shed.
    pub moved: u64,
}

pub(crate) struct Send {
    pub state: SendState,
    /// Bytes that are sent before the queue, and delivered even if the stream is reset.
    pub head: Option<Head>,
    pub queue: SendQueue,
    /// The number of bytes that quinn-proto has taken.
    pub handed_over: u64,
    /// True if a FIN follows the queued data.
    pub fin: bool,
    /// The code of a reset that must be sent once the stream is opened.
    pub reset_when_opened: Option<u64>,
    /// True if the stream is listed in `Streams::ready`.
    pub ready: bool,
    pub served_at: u64,
    /// True if the queue has reached the high watermark, and has not fallen to the low one since.
    pub above_high_water: bool,
    /// Streams with a higher rank are served first (`priority`).
    pub rank: i32,
    /// Data that was passed to quinn-proto while the server may still reject 0-RTT data. `None` after that.
    pub early: Option<Vec<Bytes>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendState {
    /// The stream has no sending part, or that part has ended.
    Absent,
    /// The stream waits for the peer's limit.
    Waiting,
    Open,
    /// The FIN was passed to quinn-proto and is not acknowledged.
    Finished,
    /// The stream will be reset when the peer has acknowledged the head.
    ResetDeferred,
    Reset,
}

pub(crate) struct Receive {
    pub open: bool,
    pub paused: bool,
    /// True if data has arrived while the application has paused reading.
    pub held_back: bool,
    /// True if an event that leads to a read is queued.
    pub announced: bool,
    /// True if a part of the readable data has arrived as 0-RTT data.
    pub early: bool,
    /// The code of a STOP_SENDING that must be sent once the stream is opened.
    pub stop_when_opened: Option<u64>,
    /// True if data is delivered in events, although the connection is read on demand.
    pub delivered: bool,
    /// The number of bytes that were read.
    pub read: u64,
    /// The offset after the last byte that has arrived, and the bytes of the packets with the unread data.
    pub end: u64,
    pub packet_bytes: usize,
    /// True if the final size of the stream is known, so that no data can follow `end`.
    pub is_end_known: bool,
    /// The RESET_STREAM_AT with which the peer has reset the stream.
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

    /// True if the sending part may have data to pass on, or data that is not acknowledged.
    pub fn is_open(&self) -> bool {
        matches!(
            self.state,
            SendState::Waiting | SendState::Open | SendState::Finished
        )
    }

    /// True if the head must be acknowledged before a reset is sent.
    pub fn has_unacked_head(&self) -> bool {
        self.head.as_ref().is_some_and(|head| !head.is_delivered())
    }

    /// True if data or a FIN can be passed to quinn-proto now.
    pub fn has_more(&self) -> bool {
        let has_head = self.head.as_ref().is_some_and(Head::is_waiting);
        match self.state {
            SendState::Open => has_head || self.fin || !self.queue.is_empty(),
            SendState::ResetDeferred => has_head,
            _ => false,
        }
    }

    /// Passes the head and one share of the queue to quinn-proto, `room` bytes at most, and the FIN if nothing is left
    /// before it.
    pub fn flush(&mut self, conn: &mut quinn::Connection, id: u64, room: usize) -> Flushed {
        if !self.has_more() {
            return Flushed::Done;
        }
        let mut stream = conn.send_stream(stream_id(id));
        if let Some(head) = &mut self.head {
            match head.hand_over(&mut stream) {
                Ok(()) => {}
                Err(quinn::WriteError::Blocked) => return Flushed::Blocked,
                // The event with the reason is queued already.
                Err(quinn::WriteError::Stopped(_) | quinn::WriteError::ClosedStream) => {
                    return Flushed::Done;
                }
            }
        }
        let mut share = SHARE.min(room);
        if share == 0 && !self.queue.is_empty() {
            return Flushed::OverLimit;
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
                        keep_copy(early, kept, written.bytes);
                    }
                    self.queue.taken(written.chunks, written.bytes);
                    share = share.saturating_sub(written.bytes);
                }
                Err(quinn::WriteError::Blocked) => return Flushed::Blocked,
                // The event with the reason is queued already.
                Err(quinn::WriteError::Stopped(_) | quinn::WriteError::ClosedStream) => {
                    return Flushed::Done;
                }
            }
            if share == 0 && !self.queue.is_empty() {
                return match room <= SHARE {
                    true => Flushed::OverLimit,
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
    /// The peer's limits or the send window allow no more data.
    Blocked,
    /// The stream has passed on its share of data. The rest waits until other streams have passed on theirs.
    Share,
    /// The limit after rejected 0-RTT data (`max_data_after_0rtt_rejection`) allows no more data.
    OverLimit,
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

    /// Marks that an event about unread data is queued. Returns true if none was queued since the application last
    /// read.
    pub fn announce(&mut self) -> bool {
        !std::mem::replace(&mut self.announced, true)
    }
}

/// Reads at most `max` bytes that have arrived in order. About `expected` bytes are there.
pub(crate) fn read_stream(
    conn: &mut quinn::Connection,
    id: u64,
    max: usize,
    expected: u64,
) -> Received {
    let mut received = Received {
        data: Chunks::with_capacity((expected.min(PIECES_EXPECTED_MAX) / PIECE_EXPECTED) as usize),
        end: None,
    };
    let mut stream = conn.recv_stream(stream_id(id));
    let Ok(mut chunks) = stream.read(true) else {
        return received;
    };
    let mut room = max;
    loop {
        // If `room` is used up, an empty chunk shows that the stream has more data. If it has none, its end is returned
        // together with the last byte.
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
    // The result states if credit is due. It is ignored, because `poll_transmit` always follows and sends credit.
    let _ = chunks.finalize();
    received
}

/// The number of pieces in a share: whole pieces, and at least one.
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

/// Converts a number whose range was checked before.
pub(crate) fn varint(value: u64) -> VarInt {
    VarInt::from_u64(value).unwrap_or(VarInt::MAX)
}

/// The number of bytes of one stream that are passed to quinn-proto before the next stream of the same priority is
/// served, so that a large stream does not delay the others.
const SHARE: usize = 64 << 10;
/// The bytes of stream data in one packet, of a peer that sends much.
const PIECE_EXPECTED: u64 = 1_100;
/// A read reserves space for the pieces of at most this many bytes.
const PIECES_EXPECTED_MAX: u64 = 128 << 10;
