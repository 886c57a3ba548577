//! Passes stream data to the state machine: the order, the time and the amount.

use std::cmp::Reverse;

use quinn_proto::{self as quinn, Dir, StreamId};

use super::Streams;
use super::{
    priority::urgency_of,
    stream::{Flushed, SendState, Stream, stream_id, varint},
};

/// The result of a flush.
#[derive(Default)]
struct Outcome {
    /// Streams whose queue fell to the low watermark.
    drained: Vec<u64>,
    /// The window of the most urgent stream with data left.
    blocked: Option<u64>,
    /// The window of the streams that are being served.
    window: u64,
}

impl Streams {
    /// Passes data to the state machine, up to its window. Returns the streams whose queue fell to the low
    /// watermark.
    pub fn flush(&mut self, conn: &mut quinn::Connection) -> Vec<u64> {
        self.open_waiting(conn);
        if self.ready.is_empty() {
            return Vec::new();
        }
        let congestion_window = conn.congestion_state().window();
        let base = self.send_window.min(WINDOW_MIN.max(congestion_window * 2));
        if conn.streams().send_streams() == 0 {
            self.handed_over = 0;
        }
        let mut outcome = Outcome::default();
        let mut ready = self.take_ready();
        let mut group = std::mem::take(&mut self.group);
        let mut held = Vec::new();
        let mut at = 0;
        while let Some(&first) = ready.get(at) {
            let rank = self.rank(first);
            let count = ready[at..].partition_point(|&id| self.rank(id) == rank);
            group.extend_from_slice(&ready[at..at + count]);
            at += count;
            let window = self.window(base, rank);
            conn.set_send_window(window);
            outcome.window = window;
            while !group.is_empty() {
                group.retain(|&id| {
                    let flushed = self.serve(conn, id, &mut outcome);
                    if flushed == Flushed::UnreadData {
                        held.push(id);
                    }
                    flushed == Flushed::Share
                });
            }
        }
        self.group = group;
        // No stream became ready meanwhile: the vector keeps its capacity for the next call.
        if !held.is_empty() {
            self.ready.append(&mut held);
        } else if self.ready.is_empty() {
            ready.clear();
            self.ready = ready;
        }
        // Otherwise every acknowledged packet would admit one packet's worth of data, and the state machine would
        // end up with a list of small pieces. See `send_queue`.
        let step = (congestion_window / 4).clamp(WINDOW_STEP_MIN, WINDOW_STEP_MAX);
        let step = step.min(base / 4);
        conn.set_send_window(outcome.blocked.map_or(base, |window| window - step));
        outcome.drained
    }

    /// The limit of the state machine's data when a stream of this rank is served. There is one window for all
    /// streams, and its data leaves by priority. So each urgency has some room that less urgent streams cannot
    /// fill; otherwise its data would wait here until theirs is acknowledged.
    fn window(&self, base: u64, rank: i32) -> u64 {
        let less_urgent = self.handed_over >> urgency_of(rank) >> 1;
        base + base / 2 * u64::from(less_urgent.count_ones())
    }

    fn rank(&self, id: u64) -> i32 {
        self.table.get(&id).map_or(0, |stream| stream.send.rank)
    }

    /// The ready streams, the most urgent first. Within a rank the stream that has waited longest is first.
    fn take_ready(&mut self) -> Vec<u64> {
        let mut ready = std::mem::take(&mut self.ready);
        let order = |id: &u64| {
            let send = self.table.get(id).map(|stream| &stream.send);
            send.map_or((Reverse(0), 0), |send| (Reverse(send.rank), send.served_at))
        };
        if ready.len() > 1 {
            // Each stream is looked up once, not once for each comparison.
            ready.sort_by_cached_key(order);
        }
        ready
    }

    /// Passes on one share of a stream.
    fn serve(&mut self, conn: &mut quinn::Connection, id: u64, outcome: &mut Outcome) -> Flushed {
        let Some(Stream { send, .. }) = self.table.get_mut(&id) else {
            return Flushed::Done;
        };
        if self.is_early {
            send.early.get_or_insert_default();
        }
        let before = send.queue.len();
        let room = usize::try_from(self.early_limit.room()).unwrap_or(usize::MAX);
        let flushed = send.flush(conn, id, room);
        let taken = before - send.queue.len();
        self.queued_bytes -= taken;
        self.early_limit.take(taken as u64);
        if taken > 0 {
            self.clock += 1;
            send.handed_over += taken as u64;
            send.served_at = self.clock;
            self.handed_over |= 1 << urgency_of(send.rank);
        }
        if send.above_high_water && send.queue.len() <= self.low_water {
            send.above_high_water = false;
            outcome.drained.push(id);
        }
        if flushed == Flushed::Blocked {
            outcome.blocked = outcome.blocked.max(Some(outcome.window));
        }
        send.ready = matches!(flushed, Flushed::Share | Flushed::UnreadData);
        flushed
    }

    /// Opens the waiting streams that the peer's limit allows. The state machine opens streams only in order, so
    /// skipped IDs are opened too, as RFC 9000 section 2.1 requires of the peer.
    pub(super) fn open_waiting(&mut self, conn: &mut quinn::Connection) {
        if self
            .local_ids
            .iter()
            .all(|local_ids| local_ids.waiting.is_empty())
        {
            return;
        }
        for dir in [Dir::Bi, Dir::Uni] {
            while let Some(&index) = self.local_ids[dir as usize].waiting.first() {
                while self.local_ids[dir as usize].opened <= index {
                    match conn.streams().open(dir) {
                        Some(id) => self.local_ids[dir as usize].opened = id.index() + 1,
                        None => break,
                    }
                }
                if self.local_ids[dir as usize].opened <= index {
                    break;
                }
                self.local_ids[dir as usize].waiting.pop_first();
                self.opened(conn, StreamId::new(self.side, dir, index).into());
            }
        }
    }

    fn opened(&mut self, conn: &mut quinn::Connection, id: u64) {
        let Some(stream) = self.table.get_mut(&id) else {
            return;
        };
        let sid = stream_id(id);
        if let Some(code) = stream.receive.stop_when_opened.take() {
            let _ = conn.recv_stream(sid).stop(varint(code));
        }
        if let Some(code) = stream.send.reset_when_opened.take() {
            let _ = conn.send_stream(sid).reset(varint(code));
            stream.send.state = SendState::Reset;
            self.forget_if_over(id);
            return;
        }
        stream.send.state = SendState::Open;
        if stream.send.rank != 0 {
            let _ = conn.send_stream(sid).set_priority(stream.send.rank);
        }
        self.make_ready(id);
    }
}

/// The state machine holds the data in flight and as much again to be sent next; more would only make
/// `StreamWritable` early. The window is never smaller than this.
const WINDOW_MIN: u64 = 256 << 10;
/// The free room at which a full window is refilled.
const WINDOW_STEP_MIN: u64 = 16 << 10;
const WINDOW_STEP_MAX: u64 = 128 << 10;
