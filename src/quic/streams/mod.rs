//! The streams of a connection as the host sees them (RFC 9000 sections 2 and 3).
//!
//! They extend the state machine's streams by IDs that exist before the stream may be opened, data that waits for the
//! peer's limits, watermarks, and pausing of reading.
//!
//! - `stream`: one stream; `local_stream_ids`: this side's stream IDs; `send_queue`: data that waits.
//! - `flush`: passes data to the state machine; `priority`: RFC 9218's urgencies for that.
//! - `unread_data`: unread data of streams, and shedding.
//! - `reset_stop`: resets and stops, by either side.
//! - `early_data`: 0-RTT data; `rejected_0rtt_limit`: the limit on all streams after it was rejected.
//!
//! Not here: the state machine's own handling of bytes, and events, which `connection` makes from the results.

use std::collections::BTreeSet;

use bytes::Bytes;
use quinn_proto::{self as quinn, Dir, Side, StreamId, VarInt};
use rustc_hash::FxHashMap;

mod early_data;
mod flush;
mod local_stream_ids;
pub(super) mod priority;
mod rejected_0rtt_limit;
mod reset_stop;
mod send_queue;
pub(super) mod stream;
mod unread_data;

use uringcore_wire::frames::ResetAt;

use early_data::keep;
use local_stream_ids::LocalStreamIds;
use rejected_0rtt_limit::EarlyLimit;
use stream::{Receive, Send, SendState, Stream, dir, index, read_stream, stream_id, varint};
pub(super) use unread_data::Shedding;
use unread_data::UnreadData;

use super::{Priority, Received, StreamEnd, StreamError};
use crate::seams::acked_stream_prefix::Head;

/// All streams of a connection that have not ended.
pub(super) struct Streams {
    side: Side,
    table: FxHashMap<u64, Stream>,
    /// Our own streams, per direction.
    local_ids: [LocalStreamIds; 2],
    /// How many streams the peer has opened, per direction.
    peers_opened: [u64; 2],
    /// Streams that were reset while the host may have waited for `StreamWritable`.
    abandoned: Vec<u64>,
    /// Streams with data or a FIN to pass on, that nothing is known to block.
    ready: Vec<u64>,
    /// Reused storage for the streams of one rank while they are served.
    group: Vec<u64>,
    /// Counts visits, so that the last served streams come last.
    clock: u64,
    high_water: usize,
    low_water: usize,
    /// The watermarks of all streams together.
    total_high_water: usize,
    total_low_water: usize,
    send_window: u64,
    queued_bytes: usize,
    unread: UnreadData,
    /// A bit for each urgency of which the state machine may hold data.
    handed_over: u8,
    /// The server may reject all data sent now. See `early_data`.
    is_early: bool,
    early_limit: EarlyLimit,
    /// The host reads on demand and only gets `StreamReadable` events.
    read_on_demand: bool,
    /// Streams to be reset, with their codes, once the peer has their heads.
    given_up: Vec<(u64, VarInt)>,
    /// The peer may send RESET_STREAM_AT.
    takes_reset_at: bool,
    /// Stopped streams without a recorded end: the state machine has it, or will get it when a
    /// RESET_STREAM_AT arrives. No event reports the others that have ended, so above a bound the oldest are
    /// dropped.
    awaited: BTreeSet<u64>,
    /// Ends by RESET_STREAM_AT that the state machine must be given, one for each stream.
    resets_due: Vec<ResetAt>,
}

/// The state of a stream that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamState {
    /// The peer's end has not been read.
    pub is_receiving: bool,
    /// Data of ours, or its FIN, is not sent or not acknowledged.
    pub is_sending: bool,
    /// Our side was reset, by either side's decision.
    pub is_reset: bool,
}

/// The result of handling the state machine's event that a stream is readable.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// Nothing to report now.
    Nothing,
    Readable,
    /// The peer reset a paused stream, which would otherwise be noticed only at the next read.
    Reset {
        error_code: u64,
    },
}

impl Streams {
    pub fn new(side: Side, send_window: u64) -> Self {
        Self {
            side,
            table: FxHashMap::default(),
            local_ids: [LocalStreamIds::default(), LocalStreamIds::default()],
            peers_opened: [0; 2],
            abandoned: Vec::new(),
            ready: Vec::new(),
            group: Vec::new(),
            clock: 0,
            high_water: HIGH_WATER,
            low_water: LOW_WATER,
            total_high_water: HIGH_WATER,
            total_low_water: LOW_WATER,
            send_window,
            queued_bytes: 0,
            unread: UnreadData::default(),
            handed_over: 0,
            is_early: false,
            early_limit: EarlyLimit::default(),
            read_on_demand: false,
            given_up: Vec::new(),
            takes_reset_at: false,
            awaited: BTreeSet::new(),
            resets_due: Vec::new(),
        }
    }

    /// We have announced support of RESET_STREAM_AT.
    pub fn take_reset_at(&mut self) {
        self.takes_reset_at = true;
    }

    /// Switches to reading streams by [`take`](Self::take).
    pub fn read_on_demand(&mut self) {
        self.read_on_demand = true;
    }

    pub fn is_read_on_demand(&self) -> bool {
        self.read_on_demand
    }

    /// Exempts one stream from reading on demand.
    pub fn deliver(&mut self, id: u64) {
        if let Some(stream) = self.table.get_mut(&id) {
            stream.receive.delivered = true;
        }
    }

    /// True if the host reads this stream on demand.
    pub fn is_on_demand(&self, id: u64) -> bool {
        let stream = self.table.get(&id);
        self.read_on_demand && stream.is_none_or(|stream| !stream.receive.delivered)
    }

    pub fn set_watermarks(&mut self, high: usize, low: usize) {
        self.high_water = high;
        self.low_water = low.min(high);
        self.set_total_watermarks(high, low);
    }

    pub fn set_total_watermarks(&mut self, high: usize, low: usize) {
        self.total_high_water = high;
        self.total_low_water = low.min(high);
    }

    /// See [`Connection::rest`](super::Connection::rest).
    pub fn rest(&mut self) {
        for stream in self.table.values_mut() {
            stream.send.queue.rest();
        }
        self.table.shrink_to_fit();
        self.ready.shrink_to_fit();
        self.group.shrink_to_fit();
        self.abandoned.shrink_to_fit();
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.table.keys().copied()
    }

    pub fn state(&self, id: u64) -> Option<StreamState> {
        let stream = self.table.get(&id)?;
        Some(StreamState {
            is_receiving: stream.receive.open,
            is_sending: stream.send.is_open(),
            is_reset: matches!(stream.send.state, SendState::Reset | SendState::GivenUp),
        })
    }

    /// Grows whenever data is passed to the state machine.
    pub fn served(&self) -> u64 {
        self.clock
    }

    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    pub fn is_above_high_water(&self) -> bool {
        self.queued_bytes >= self.total_high_water.max(1)
    }

    pub fn is_below_low_water(&self) -> bool {
        self.queued_bytes <= self.total_low_water
    }

    /// Treats the stream's queue as if it had grown to the high watermark, if it is above the low one.
    pub fn report_when_low(&mut self, id: u64) {
        let low_water = self.low_water;
        if let Some(stream) = self.table.get_mut(&id) {
            stream.send.above_high_water |= stream.send.queue.len() > low_water;
        }
    }

    /// True if the stream's queue grew to the high watermark and has not fallen to the low one.
    pub fn is_full(&self, id: u64) -> bool {
        self.table
            .get(&id)
            .is_some_and(|stream| stream.send.above_high_water)
    }

    pub fn queued_bytes_of(&self, id: u64) -> usize {
        self.table
            .get(&id)
            .map_or(0, |stream| stream.send.queue.len())
    }

    pub fn queued_data_of(&mut self, id: u64) -> &[Bytes] {
        let stream = self.table.get_mut(&id);
        stream.map_or(&[], |stream| stream.send.queue.pieces())
    }

    pub fn next_id(&self, dir: Dir) -> u64 {
        StreamId::new(self.side, dir, self.local_ids[dir as usize].next).into()
    }

    /// Queues data, and a FIN after it.
    pub fn send(&mut self, id: u64, data: Bytes, fin: bool) -> Result<(), StreamError> {
        let high_water = self.high_water;
        let send = &mut self.for_sending(id)?.send;
        match send.state {
            SendState::Absent => return Err(StreamError::Finished),
            SendState::Reset | SendState::GivenUp => return Err(StreamError::Reset),
            SendState::Finished => return Err(StreamError::Finished),
            SendState::Waiting | SendState::Open if send.fin => return Err(StreamError::Finished),
            SendState::Waiting | SendState::Open => {}
        }
        let length = data.len();
        send.queue.push(data);
        send.fin = fin;
        send.above_high_water |= send.queue.len() >= high_water.max(1);
        self.queued_bytes += length;
        self.make_ready(id);
        Ok(())
    }

    /// Begins a stream that was just opened with `head`; the caller keeps no other reference to it. The head
    /// is delivered even if the stream is reset, as with RESET_STREAM_AT.
    pub fn send_head(&mut self, id: u64, head: Bytes) {
        if let Some(stream) = self.table.get_mut(&id) {
            stream.send.head = Some(Head::new(head));
        }
        self.make_ready(id);
    }

    pub fn set_priority(
        &mut self,
        conn: &mut quinn::Connection,
        id: u64,
        priority: Priority,
    ) -> Result<(), StreamError> {
        let send = &mut self.for_sending(id)?.send;
        send.rank = priority.rank(id);
        match send.state {
            // The state machine orders data by the stream's rank when the data became its first pending data; data
            // that it already holds leaves in the old order.
            SendState::Open | SendState::Finished => {
                let _ = conn.send_stream(stream_id(id)).set_priority(send.rank);
            }
            SendState::Waiting => {}
            SendState::Absent | SendState::Reset | SendState::GivenUp => {
                return Err(StreamError::Finished);
            }
        }
        Ok(())
    }

    pub fn pause(&mut self, id: u64) {
        if let Some(stream) = self.table.get_mut(&id) {
            stream.receive.paused = true;
        }
    }

    /// Returns true if data had been held back and should be read now.
    pub fn resume(&mut self, id: u64) -> bool {
        let Some(stream) = self.table.get_mut(&id) else {
            return false;
        };
        stream.receive.paused = false;
        std::mem::take(&mut stream.receive.held_back) && stream.receive.announce()
    }

    /// Records a stream that the peer opened.
    pub fn accepted(&mut self, id: u64) {
        let opened = &mut self.peers_opened[dir(id) as usize];
        *opened = (*opened).max(index(id) + 1);
        let sends = dir(id) == Dir::Bi;
        let state = if sends {
            SendState::Open
        } else {
            SendState::Absent
        };
        self.table.insert(
            id,
            Stream {
                send: Send::new(state),
                receive: Receive::new(true),
                moved: 0,
            },
        );
    }

    /// Handles a readable stream; `early_data` if its data came as 0-RTT data.
    pub fn readable(&mut self, conn: &mut quinn::Connection, id: u64, early: bool) -> Readiness {
        let read_on_demand = self.is_on_demand(id);
        let Some(stream) = self.table.get_mut(&id) else {
            return Readiness::Nothing;
        };
        let receive = &mut stream.receive;
        receive.early |= early;
        if !receive.open {
            return Readiness::Nothing;
        }
        if receive.paused && !read_on_demand {
            return self.hold_back(conn, id);
        }
        match receive.announce() {
            true => Readiness::Readable,
            false => Readiness::Nothing,
        }
    }

    /// Handles a readable stream that is paused. Only its end by a reset is reported: a reset lets the receiver
    /// drop unread data (RFC 9000 section 3.2).
    fn hold_back(&mut self, conn: &mut quinn::Connection, id: u64) -> Readiness {
        let Some(stream) = self.table.get_mut(&id) else {
            return Readiness::Nothing;
        };
        match conn.recv_stream(stream_id(id)).received_reset() {
            Ok(Some(code)) => {
                // The frame's final size may not have been recorded yet.
                self.unread.stop(id, &mut stream.receive);
                self.forget_if_over(id);
                let error_code = code.into_inner();
                Readiness::Reset { error_code }
            }
            _ => {
                stream.receive.held_back = true;
                Readiness::Nothing
            }
        }
    }

    /// After the end of the connection: ends all pauses. Returns the streams that may still hold data.
    pub fn end_pauses(&mut self) -> Vec<u64> {
        let read_on_demand = std::mem::take(&mut self.read_on_demand);
        let held_back = |(id, stream): (&u64, &mut Stream)| {
            let receive = &mut stream.receive;
            receive.paused = false;
            if read_on_demand && !receive.delivered {
                receive.announced = false;
                receive.held_back = true;
            }
            let held_back = std::mem::take(&mut receive.held_back) && receive.open;
            (held_back && receive.announce()).then_some(*id)
        };
        let mut ids: Vec<u64> = self.table.iter_mut().filter_map(held_back).collect();
        ids.sort_unstable();
        ids
    }

    /// Reads all data in order, unless the stream is paused.
    pub fn read(&mut self, conn: &mut quinn::Connection, id: u64) -> Received {
        let is_paused = |stream: &Stream| stream.receive.open && stream.receive.paused;
        if !self.table.get(&id).is_some_and(is_paused) {
            return self.take(conn, id, usize::MAX);
        }
        if let Some(stream) = self.table.get_mut(&id) {
            stream.receive.announced = false;
        }
        let end = match self.hold_back(conn, id) {
            Readiness::Reset { error_code } => Some(StreamEnd::Reset { error_code }),
            Readiness::Nothing | Readiness::Readable => None,
        };
        Received {
            end,
            ..Received::default()
        }
    }

    /// Reads at most `max` bytes in order.
    pub fn take(&mut self, conn: &mut quinn::Connection, id: u64, max: usize) -> Received {
        let Some(stream) = self.table.get_mut(&id) else {
            return Received::default();
        };
        stream.receive.announced = false;
        if !stream.receive.open {
            return Received::default();
        }
        let reliable = stream.receive.reset_at.map(|reset| reset.reliable_size);
        let left = reliable.map_or(u64::MAX, |size| size.saturating_sub(stream.receive.read));
        let mut received = match left {
            0 => Received::default(),
            _ => read_stream(
                conn,
                id,
                max.min(usize::try_from(left).unwrap_or(usize::MAX)),
            ),
        };
        self.unread.read(&mut stream.receive, received.data.len());
        if let Some(reset) = stream.receive.reset_at
            && received.end.is_none()
            && stream.receive.read >= reset.reliable_size
        {
            let error_code = reset.code;
            received.end = Some(StreamEnd::Reset { error_code });
            // The peer has ended the stream: stopping frees unread data in the state machine, and the pending reset
            // ends it there.
            let _ = conn.recv_stream(stream_id(id)).stop(varint(error_code));
            self.resets_due.push(reset);
        }
        if !received.data.is_empty() {
            received.data.early = std::mem::take(&mut stream.receive.early);
        }
        if received.end.is_some() {
            self.unread.close(&mut stream.receive);
            self.forget_if_over(id);
        }
        received
    }

    /// Everything up to our FIN was acknowledged. Returns true if the host must be notified.
    pub fn finished(&mut self, id: u64) -> bool {
        let Some(stream) = self.table.get_mut(&id) else {
            return false;
        };
        let was_finished = stream.send.state == SendState::Finished;
        stream.send.state = SendState::Absent;
        self.forget_if_over(id);
        was_finished
    }

    /// True if data of ours on this stream, or its FIN, is not acknowledged.
    pub fn is_sending(&self, id: u64) -> bool {
        self.table
            .get(&id)
            .is_some_and(|stream| stream.send.is_open())
    }

    pub fn is_receiving(&self, id: u64) -> bool {
        let stream = self.table.get(&id);
        stream.is_some_and(|stream| stream.receive.open)
    }

    /// True if a stream that we have finished is not wholly acknowledged.
    pub fn is_finishing(&self) -> bool {
        let mut streams = self.table.values();
        streams.any(|stream| stream.send.fin && stream.send.is_open())
    }

    /// Opens the next stream of ours; `None` if the peer does not allow it now.
    pub fn open(&mut self, conn: &mut quinn::Connection, dir: Dir) -> Option<u64> {
        // IDs that were used before they could be opened come first.
        self.open_waiting(conn);
        let local_ids = &mut self.local_ids[dir as usize];
        if local_ids.opened < local_ids.next {
            return None;
        }
        let id = conn.streams().open(dir)?;
        local_ids.opened = id.index() + 1;
        local_ids.claim(id.index());
        let stream = Stream {
            send: Send::new(SendState::Open),
            receive: Receive::new(dir == Dir::Bi),
            moved: 0,
        };
        self.table.insert(id.into(), stream);
        Some(id.into())
    }

    /// The state machine may accept more data of this stream.
    pub fn writable(&mut self, id: u64) {
        self.make_ready(id);
    }

    /// The stream, created if it is ours and new.
    fn for_sending(&mut self, id: u64) -> Result<&mut Stream, StreamError> {
        if id > VarInt::MAX.into_inner() {
            return Err(StreamError::OutOfRange);
        }
        let is_local = self.is_local(id);
        if dir(id) == Dir::Uni && !is_local {
            return Err(StreamError::WrongDirection);
        }
        if is_local && !self.table.contains_key(&id) {
            self.create_own(id)?;
        }
        if !self.table.contains_key(&id) {
            return Err(self.missing(id));
        }
        self.table.get_mut(&id).ok_or(StreamError::Unknown)
    }

    /// Why a stream is not in the table: it never existed, or has ended.
    fn missing(&self, id: u64) -> StreamError {
        let was_there = match self.is_local(id) {
            true => self.local_ids[dir(id) as usize].was_claimed(index(id)),
            false => index(id) < self.peers_opened[dir(id) as usize],
        };
        match was_there {
            true => StreamError::Over,
            false => StreamError::Unknown,
        }
    }

    fn create_own(&mut self, id: u64) -> Result<(), StreamError> {
        let dir = dir(id);
        let local_ids = &mut self.local_ids[dir as usize];
        if !local_ids.claim(index(id)) {
            return Err(StreamError::Over);
        }
        let state = match index(id) < local_ids.opened {
            true => SendState::Open,
            false => {
                local_ids.waiting.insert(index(id));
                SendState::Waiting
            }
        };
        let receive = Receive::new(dir == Dir::Bi);
        self.table.insert(
            id,
            Stream {
                send: Send::new(state),
                receive,
                moved: 0,
            },
        );
        Ok(())
    }

    fn make_ready(&mut self, id: u64) {
        let Some(stream) = self.table.get_mut(&id) else {
            return;
        };
        let send = &mut stream.send;
        if send.has_more() && !send.ready {
            send.ready = true;
            self.ready.push(id);
        }
    }

    fn forget_if_over(&mut self, id: u64) {
        // A stream that has to be opened again also has to be reset again.
        if self.is_early && self.is_local(id) {
            return;
        }
        let Some(stream) = self.table.get(&id) else {
            return;
        };
        let sending_over = matches!(stream.send.state, SendState::Absent | SendState::Reset);
        // A stream that waits to be opened must be kept, even if it will only be reset.
        let waits = self.is_local(id)
            && self.local_ids[dir(id) as usize]
                .waiting
                .contains(&index(id));
        if sending_over && !stream.receive.open && !waits {
            self.table.remove(&id);
        }
    }

    fn is_local(&self, id: u64) -> bool {
        stream_id(id).initiator() == self.side
    }
}

/// asyncio's default watermarks are 64 and 16 KiB, for one kernel socket with a buffer of its own behind it. Here
/// the state machine's window is that buffer.
const HIGH_WATER: usize = 256 << 10;
const LOW_WATER: usize = 64 << 10;
