//! Streams in 0-RTT data (RFC 9001 section 4.6): what is needed so that nothing is lost when the
//! server rejects it.
//!
//! A rejected flight never happened for the state machine (`seams::early_data`): its streams are unopened
//! and their data is gone. So what is handed over early is kept here as well, and is queued again in front of
//! everything else; the host does not notice. Kept is at most what the limits allow that the ticket
//! remembers.

use bytes::Bytes;

use super::{Streams, dir, index};
use super::{send_queue::SendQueue, stream::SendState};

impl Streams {
    /// From now on streams may be opened and written to, and the server may reject all of it.
    pub fn begin_early(&mut self) {
        self.is_early = true;
    }

    /// The server took the data: nothing needs to be kept any more.
    pub fn early_accepted(&mut self) {
        self.is_early = false;
        for id in self.own_ids() {
            let is_open = index(id) < self.own[dir(id) as usize].opened;
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

    /// The peer allows so many bytes more on all streams together, or as many as the state machine says: of what
    /// a ticket allowed and the server that did not take it does not, the state machine keeps the greater.
    pub fn set_room(&mut self, room: Option<u64>) {
        self.room = room;
    }

    /// Bytes that may yet be handed over, if they are counted here.
    pub fn room(&self) -> Option<u64> {
        self.room
    }

    /// The server did not take the data: all streams wait to be opened again, with everything that
    /// was ever queued on them.
    pub fn early_rejected(&mut self) {
        self.is_early = false;
        self.ready.clear();
        for own in &mut self.own {
            own.opened = 0;
        }
        for id in self.own_ids() {
            self.own[dir(id) as usize].waiting.insert(index(id));
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
                // It is reset as soon as it is opened.
                SendState::Reset | SendState::GivenUp | SendState::Absent => send.early = None,
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
            .filter(|&id| self.is_own(id))
            .collect();
        ids.sort_unstable();
        ids
    }
}

/// The first `bytes` bytes of `pieces`, added to what is kept.
pub(crate) fn keep(early: &mut Vec<Bytes>, pieces: Vec<Bytes>, mut bytes: usize) {
    for mut piece in pieces {
        if bytes == 0 {
            break;
        }
        piece.truncate(bytes);
        bytes -= piece.len();
        early.push(piece);
    }
}
