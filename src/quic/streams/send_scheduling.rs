//! Passes data of streams to quinn-proto: decides the order, the time and the amount.

use std::cmp::Reverse;

use quinn_proto::{self as quinn, Dir, StreamId};

use super::Streams;
use super::{
    priority::urgency_of,
    stream::{Flushed, SendState, Stream, stream_id, varint},
};

/// The result of [`Streams::flush`].
#[derive(Default)]
struct Outcome {
    /// The IDs of streams whose send queue has fallen to the low watermark.
    drained: Vec<u64>,
    /// The window of the most urgent stream that has data left. `None` if none has.
    blocked: Option<u64>,
    /// The window of the streams that are being served.
    window: u64,
}

impl Streams {
    /// Passes data to quinn-proto, up to its window. Returns the streams whose send queue has fallen to the low
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
            let count = match ready.len() - at {
                1 => 1,
                _ => ready[at..].partition_point(|&id| self.rank(id) == rank),
            };
            group.extend_from_slice(&ready[at..at + count]);
            at += count;
            let window = self.window(base, rank);
            conn.set_send_window(window);
            outcome.window = window;
            while !group.is_empty() {
                group.retain(|&id| {
                    let flushed = self.serve(conn, id, &mut outcome);
                    if flushed == Flushed::OverLimit {
                        held.push(id);
                    }
                    flushed == Flushed::Share
                });
            }
        }
        self.group = group;
        // The vector is put back, so that the next call uses its capacity, unless streams have become ready in the
        // meantime.
        if !held.is_empty() {
            self.ready.append(&mut held);
        } else if self.ready.is_empty() {
            ready.clear();
            self.ready = ready;
        }
        // A full window opens again in steps. Otherwise each acknowledged packet would admit as much data, and
        // quinn-proto would have a long list of small pieces (`send_queue`).
        let step = (congestion_window / 4).clamp(WINDOW_STEP_MIN, WINDOW_STEP_MAX);
        let step = step.min(base / 4);
        conn.set_send_window(outcome.blocked.map_or(base, |window| window - step));
        outcome.drained
    }

    /// The limit on data in quinn-proto while a stream of this rank is served, in bytes. All streams share one window,
    /// and quinn-proto sends its data by priority. So each urgency has a part of the window that less urgent streams
    /// cannot fill. Otherwise urgent data would wait here until their data is acknowledged.
    fn window(&self, base: u64, rank: i32) -> u64 {
        let less_urgent = self.handed_over >> urgency_of(rank) >> 1;
        base + base / 2 * u64::from(less_urgent.count_ones())
    }

    fn rank(&self, id: u64) -> i32 {
        self.table.get(&id).map_or(0, |stream| stream.send.rank)
    }

    /// The ready streams, the most urgent first. Of streams with equal rank, the one that has waited longest is first.
    fn take_ready(&mut self) -> Vec<u64> {
        let mut ready = std::mem::take(&mut self.ready);
        let order = |id: &u64| {
            let send = self.table.get(id).map(|stream| &stream.send);
            send.map_or((Reverse(0), 0), |send| (Reverse(send.rank), send.served_at))
        };
        if ready.len() > 1 {
            // The key is computed once for each stream, and not for each comparison.
            ready.sort_by_cached_key(order);
        }
        ready
    }

    /// Passes one share of a stream's data to quinn-proto.
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
        send.ready = matches!(flushed, Flushed::Share | Flushed::OverLimit);
        flushed
    }

    /// Opens the waiting streams that the peer's limit allows. quinn-proto opens streams only in order, so skipped IDs
    /// are opened as well, which RFC 9000 section 2.1 expects.
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

/// The least window in bytes. quinn-proto holds the data in flight and as much again to be sent next; more would only
/// make `StreamWritable` too early.
const WINDOW_MIN: u64 = 256 << 10;
/// A full window is refilled when this many bytes are free.
const WINDOW_STEP_MIN: u64 = 16 << 10;
const WINDOW_STEP_MAX: u64 = 128 << 10;
