//! Streams in 0-RTT data (RFC 9001 section 4.6): keeps a copy of their data until the server has accepted it.
//!
//! If the server rejects 0-RTT data, quinn-proto discards it: the streams are not open any more, and their data is
//! gone (`workarounds::rejected_early_data`). Then the copies are queued again before all other data, and the
//! application notices nothing. The limits that the ticket remembers bound the copies.

use bytes::Bytes;

use super::{Streams, dir, index};
use super::{max_data_after_0rtt_rejection::EarlyLimit, send_queue::SendQueue, stream::SendState};

impl Streams {
    /// Allows streams to be opened and written to before the server has accepted 0-RTT data. `max_data` is the ticket's
    /// limit on all streams' data, in bytes.
    pub fn begin_early(&mut self, max_data: u64) {
        self.is_early = true;
        self.early_limit = EarlyLimit::new(max_data);
    }

    /// The limit on all streams' data after the server has rejected 0-RTT data.
    pub fn early_limit(&mut self) -> &mut EarlyLimit {
        &mut self.early_limit
    }

    /// Drops the copies, because the server has accepted 0-RTT data.
    pub fn early_accepted(&mut self) {
        self.is_early = false;
        for id in self.own_ids() {
            let is_open = index(id) < self.local_ids[dir(id) as usize].opened;
            if let Some(stream) = self.table.get_mut(&id)
                && is_open
            {
                stream.send.early = None;
                stream.send.reset_when_opened = None;
                stream.receive.stop_when_opened = None;
            }
            self.forget_if_over(id);
        }
    }

    /// Queues the copies again, because the server has rejected 0-RTT data. All streams wait to be opened again.
    pub fn early_rejected(&mut self) {
        self.is_early = false;
        self.ready.clear();
        for local_ids in &mut self.local_ids {
            local_ids.opened = 0;
        }
        for id in self.own_ids() {
            self.local_ids[dir(id) as usize].waiting.insert(index(id));
            let Some(stream) = self.table.get_mut(&id) else {
                continue;
            };
            let send = &mut stream.send;
            send.ready = false;
            match send.state {
                SendState::Open | SendState::Waiting => send.state = SendState::Waiting,
                SendState::Finished => {
                    send.state = SendState::Waiting;
                    send.fin = true;
                }
                // The stream will be reset as soon as it can be opened again, so its data is not needed.
                SendState::Reset | SendState::ResetDeferred | SendState::Absent => {
                    send.early = None
                }
            }
            let Some(early) = send.early.take() else {
                continue;
            };
            let mut queue = SendQueue::default();
            let rest = send.queue.pieces().to_vec();
            self.queued_bytes += early.iter().map(Bytes::len).sum::<usize>();
            early
                .into_iter()
                .chain(rest)
                .for_each(|piece| queue.push(piece));
            send.above_high_water |= queue.len() >= self.high_water.max(1);
            send.queue = queue;
        }
    }

    fn own_ids(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = self
            .table
            .keys()
            .copied()
            .filter(|&id| self.is_local(id))
            .collect();
        ids.sort_unstable();
        ids
    }
}

/// Appends the first `bytes` bytes of `pieces` to the copies.
pub(crate) fn keep_copy(early: &mut Vec<Bytes>, pieces: Vec<Bytes>, mut bytes: usize) {
    for mut piece in pieces {
        if bytes == 0 {
            break;
        }
        piece.truncate(bytes);
        bytes -= piece.len();
        early.push(piece);
    }
}
