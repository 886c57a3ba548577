//! The streams of a connection as the application sees them (RFC 9000 sections 2 and 3).
//!
//! They add to quinn-proto's streams: IDs that can be used before the peer's limit allows the stream, data that waits
//! for the peer's limits, watermarks, and pauses of reading.
//!
//! - `stream`: one stream; `local_stream_ids`: this side's stream IDs; `send_queue`: data that waits.
//! - `send_scheduling`: passes data to quinn-proto; `priority`: RFC 9218's urgencies for that.
//! - `unread_data`: unread data of streams, and shedding.
//! - `reset_stop`: resets and stops, by either side.
//! - `early_data`: 0-RTT data; `max_data_after_0rtt_rejection`: the limit on all streams after it was rejected.
//!
//! Not here: the transfer of bytes, which is quinn-proto's, and events, which `connection` makes from the results.

use std::collections::BTreeSet;

use bytes::Bytes;
use quinn_proto::{self as quinn, Dir, Side, StreamId, VarInt};
use rustc_hash::FxHashMap;

mod early_data;
mod local_stream_ids;
mod max_data_after_0rtt_rejection;
pub(super) mod priority;
mod reset_stop;
mod send_queue;
mod send_scheduling;
pub(super) mod stream;
mod unread_data;

use uringcore_wire::frame_iterator::ResetAt;

use early_data::keep_copy;
use local_stream_ids::LocalStreamIds;
use max_data_after_0rtt_rejection::EarlyLimit;
use stream::{Receive, Send, SendState, Stream, dir, index, read_stream, stream_id, varint};
pub(super) use unread_data::ShedCandidate;
use unread_data::UnreadData;

use super::{Priority, Received, StreamEnd, StreamError};
use crate::workarounds::acked_stream_prefix::Head;

/// All streams of a connection that have not ended.
pub(super) struct Streams {
    side: Side,
    table: FxHashMap<u64, Stream>,
    /// The IDs of the streams that this side opens, by direction.
    local_ids: [LocalStreamIds; 2],
    /// The number of streams that the peer has opened, by direction.
    peers_opened: [u64; 2],
    /// Streams that were reset while a `StreamWritable` was due.
    abandoned: Vec<u64>,
    /// Streams that may have data or a FIN to pass to quinn-proto.
    ready: Vec<u64>,
    /// A reused vector for the streams of one rank while they are served.
    group: Vec<u64>,
    /// A counter of served streams. A stream gets its value when it is served, so streams of equal priority are served
    /// round robin.
    clock: u64,
    high_water: usize,
    low_water: usize,
    /// The watermarks of the sum of all streams, in bytes.
    total_high_water: usize,
    total_low_water: usize,
    send_window: u64,
    queued_bytes: usize,
    unread: UnreadData,
    /// Has a bit for each urgency of which quinn-proto may hold data.
    handed_over: u8,
    /// True while the server may still reject the data that is sent now (`early_data`).
    is_early: bool,
    early_limit: EarlyLimit,
    /// True if the application reads on demand, and gets `StreamReadable` events instead of data.
    read_on_demand: bool,
    /// Streams that will be reset with these codes when the peer has acknowledged their heads (first bytes).
    deferred_resets: Vec<(u64, VarInt)>,
    /// True if the peer may send RESET_STREAM_AT.
    accepts_reset_at: bool,
    /// Streams on which this side has sent STOP_SENDING, and which a RESET_STREAM_AT may end. No event shows that such
    /// a stream has ended in another way. So the list is bounded, and its oldest entries are dropped.
    awaited: BTreeSet<u64>,
    /// Streams for which quinn-proto must get a RESET_STREAM, because a RESET_STREAM_AT has ended them. Each once.
    resets_due: Vec<ResetAt>,
}

/// The state of a stream that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamState {
    /// True if the end of the peer's data was not read yet.
    pub is_receiving: bool,
    /// True if the peer has not yet acknowledged all data, and the FIN, of this side.
    pub is_sending: bool,
    /// True if the sending part was reset, by this side or after STOP_SENDING.
    pub is_reset: bool,
}

/// The result of handling quinn-proto's event that a stream is readable.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// The application needs no event at present.
    Nothing,
    Readable,
    /// The peer has reset a paused stream. Without a report, the reset would be noticed only at the next read.
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
            deferred_resets: Vec::new(),
            accepts_reset_at: false,
            awaited: BTreeSet::new(),
            resets_due: Vec::new(),
        }
    }

    /// Records that this side has announced support of RESET_STREAM_AT.
    pub fn accept_reset_at(&mut self) {
        self.accepts_reset_at = true;
    }

    /// Switches to reading streams by [`take`](Self::take).
    pub fn read_on_demand(&mut self) {
        self.read_on_demand = true;
    }

    pub fn is_read_on_demand(&self) -> bool {
        self.read_on_demand
    }

    /// Delivers the data of one stream by events, although the others are read on demand.
    pub fn deliver(&mut self, id: u64) {
        if let Some(stream) = self.table.get_mut(&id) {
            stream.receive.delivered = true;
        }
    }

    /// True if the application reads this stream on demand.
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
            is_reset: matches!(
                stream.send.state,
                SendState::Reset | SendState::ResetDeferred
            ),
        })
    }

    /// A counter that grows whenever data is passed to quinn-proto.
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

    /// Makes the stream report when its send queue is at the low watermark, even if it never reached the high one.
    pub fn report_when_low(&mut self, id: u64) {
        let low_water = self.low_water;
        if let Some(stream) = self.table.get_mut(&id) {
            stream.send.above_high_water |= stream.send.queue.len() > low_water;
        }
    }

    /// True if the stream's send queue has reached the high watermark and has not fallen to the low one since.
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

    /// Queues data, and a FIN after it if `fin`.
    pub fn send(&mut self, id: u64, data: Bytes, fin: bool) -> Result<(), StreamError> {
        let high_water = self.high_water;
        let send = &mut self.for_sending(id)?.send;
        match send.state {
            SendState::Absent => return Err(StreamError::Finished),
            SendState::Reset | SendState::ResetDeferred => return Err(StreamError::Reset),
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

    /// Begins a stream that was just opened with the bytes `head`. They are delivered even if the stream is reset. The
    /// caller must keep no other reference to them.
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
            // quinn-proto applies a new priority only to data that it gets later. Data that it has already is sent in
            // the old order.
            SendState::Open | SendState::Finished => {
                let _ = conn.send_stream(stream_id(id)).set_priority(send.rank);
            }
            SendState::Waiting => {}
            SendState::Absent | SendState::Reset | SendState::ResetDeferred => {
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

    /// Ends a pause. Returns true if data has arrived meanwhile and should be read now.
    pub fn resume(&mut self, id: u64) -> bool {
        let Some(stream) = self.table.get_mut(&id) else {
            return false;
        };
        stream.receive.paused = false;
        std::mem::take(&mut stream.receive.held_back) && stream.receive.announce()
    }

    /// Records a stream that the peer has opened.
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

    /// Handles a stream that has become readable. `early` is true if its data has arrived as 0-RTT data.
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

    /// Handles a paused stream that has become readable. Only a reset is reported, because it lets the receiver drop
    /// unread data (RFC 9000 section 3.2).
    fn hold_back(&mut self, conn: &mut quinn::Connection, id: u64) -> Readiness {
        let Some(stream) = self.table.get_mut(&id) else {
            return Readiness::Nothing;
        };
        match conn.recv_stream(stream_id(id)).received_reset() {
            Ok(Some(code)) => {
                // The final size in the RESET_STREAM may not have been recorded yet.
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

    /// Ends all pauses, after the end of the connection. Returns the streams that may have unread data.
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

    /// Reads all data that has arrived in order. Reads nothing if the stream is paused.
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

    /// Reads at most `max` bytes that have arrived in order.
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
                stream.receive.unread().min(max as u64),
            ),
        };
        self.unread.read(&mut stream.receive, received.data.len());
        if let Some(reset) = stream.receive.reset_at
            && received.end.is_none()
            && stream.receive.read >= reset.reliable_size
        {
            let error_code = reset.code;
            received.end = Some(StreamEnd::Reset { error_code });
            // The stream was ended by a RESET_STREAM_AT. STOP_SENDING frees the unread data in quinn-proto, and the
            // RESET_STREAM that is inserted later ends the stream there.
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

    /// Handles the acknowledgement of all data of this side and its FIN. Returns true if the application must be
    /// notified.
    pub fn finished(&mut self, id: u64) -> bool {
        let Some(stream) = self.table.get_mut(&id) else {
            return false;
        };
        let was_finished = stream.send.state == SendState::Finished;
        stream.send.state = SendState::Absent;
        self.forget_if_over(id);
        was_finished
    }

    /// True if the peer has not yet acknowledged all data, and the FIN, that this side has sent on the stream.
    pub fn is_sending(&self, id: u64) -> bool {
        self.table
            .get(&id)
            .is_some_and(|stream| stream.send.is_open())
    }

    pub fn is_receiving(&self, id: u64) -> bool {
        let stream = self.table.get(&id);
        stream.is_some_and(|stream| stream.receive.open)
    }

    /// True if this side has finished a stream whose data the peer has not acknowledged yet.
    pub fn is_finishing(&self) -> bool {
        let mut streams = self.table.values();
        streams.any(|stream| stream.send.fin && stream.send.is_open())
    }

    /// Opens the next stream of this side. `None` if the peer's limit does not allow it now.
    pub fn open(&mut self, conn: &mut quinn::Connection, dir: Dir) -> Option<u64> {
        // Streams whose IDs the application used before the peer's limit allowed them are opened first.
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

    /// Called when quinn-proto can take more data of this stream.
    pub fn writable(&mut self, id: u64) {
        self.make_ready(id);
    }

    /// The stream for sending. A stream of this side that is not in use yet is created.
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

    /// The error for a stream that is not in the table: it never existed, or has ended.
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
        // If the server rejects 0-RTT data, the stream must be opened and reset again, so its state is kept.
        if self.is_early && self.is_local(id) {
            return;
        }
        let Some(stream) = self.table.get(&id) else {
            return;
        };
        let sending_over = matches!(stream.send.state, SendState::Absent | SendState::Reset);
        // A stream that waits for the peer's limit is kept, even if it will only be opened and reset.
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

/// The default watermarks in bytes. asyncio's are 64 and 16 KiB, for a socket that has a buffer in the kernel; here
/// quinn-proto's window is that buffer.
const HIGH_WATER: usize = 256 << 10;
const LOW_WATER: usize = 64 << 10;
