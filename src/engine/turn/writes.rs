//! What the host writes: sent at once, or held for a while to leave together with what others write.
//!
//! How long that is, `write_delay` decides. The bytes themselves are in the queues of their transports and
//! connections. Here is the list of those that hold some, and when the list is worked off: at the end of the turn
//! by `flush`, or sooner, when the host's callback ends.

use std::time::Instant;

use bytes::Bytes;
use uringcore_io::{Backend, SendMsg};
use uringcore_proto::quic::ConnectionKey;

use super::Engine;
use crate::lifecycle::WriteOutcome;
use crate::stream::Stream;
use crate::table::Key;
use crate::tail::{BLOCK_BYTES, Blocks};
use crate::transport::Transport;
use crate::transports::Transports;
use crate::write_delay::WriteDelay;

/// One of several pieces that are written together.
pub enum Piece<'a> {
    Copied(&'a [u8]),
    Kept(Bytes),
}

/// Whose bytes wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Held {
    Transport(Key),
    Connection(Key, ConnectionKey),
}

impl Engine {
    /// Accepts bytes for sending.
    pub fn write(&mut self, key: Key, data: Bytes) -> WriteOutcome {
        self.write_stream(key, |stream, blocks| accept(stream, data, blocks))
    }

    /// Accepts a copy of `data`. For less than 4 KiB, written often, no memory is allocated.
    pub fn write_copy(&mut self, key: Key, data: &[u8]) -> WriteOutcome {
        self.write_stream(key, |stream, blocks| accept_copy(stream, data, blocks))
    }

    /// Accepts several pieces, which leave together.
    pub fn write_pieces<'a>(
        &mut self,
        key: Key,
        pieces: impl Iterator<Item = Piece<'a>>,
    ) -> WriteOutcome {
        self.write_stream(key, |stream, blocks| {
            let outcomes = pieces.map(|piece| match piece {
                Piece::Copied(bytes) => accept_copy(stream, bytes, blocks),
                Piece::Kept(bytes) => accept(stream, bytes, blocks),
            });
            // The producer is to pause if any of them says so.
            outcomes.fold(WriteOutcome::Queued, |all, one| match one {
                WriteOutcome::Queued => all,
                other => other,
            })
        })
    }

    /// Accepts a datagram for sending.
    pub fn send_datagram(&mut self, key: Key, message: SendMsg) -> WriteOutcome {
        let Some(Transport::Datagram(socket)) = self.transports.table.get_mut(key) else {
            return WriteOutcome::Lost;
        };
        let was_idle = socket.is_drained();
        let outcome = socket.send(message, &mut self.events);
        // One that would have been a reason to pause has been tried already.
        if was_idle && !socket.is_drained() && !socket.life.view.is_above() {
            if let Some(now) = time_to_send(&mut self.delay) {
                socket.send_now(&mut self.events);
                self.delay.sent(now);
                if socket.is_drained() && !socket.life.view.is_closing() {
                    return outcome;
                }
            } else {
                socket.life.is_held = true;
                self.held.push(Held::Transport(key));
            }
        } else if socket.life.is_held {
            self.delay.add_piece();
        }
        if socket.life.mark_dirty() {
            self.transports.dirty.push(key);
        }
        outcome
    }

    /// Sends what only waits for others, as far as the socket takes it. For a host that asks how much of it the
    /// kernel has not taken.
    pub fn send_held(&mut self, key: Key) {
        let Some(transport) = self.transports.table.get_mut(key) else {
            return;
        };
        if std::mem::take(&mut transport.life_mut().is_held) {
            transport.send_now(&mut self.events);
        }
    }

    /// The host has written to a QUIC connection, all that it has for now.
    pub fn quic_written(&mut self, endpoint: Key, connection: ConnectionKey) {
        let held = Held::Connection(endpoint, connection);
        match time_to_send(&mut self.delay) {
            Some(now) => {
                self.delay.sent(now);
                self.send_one(held, now);
            }
            None if self.held.last() == Some(&held) => self.delay.add_piece(),
            None => self.held.push(held),
        }
    }

    /// The host begins to run so many callbacks.
    pub fn begin_callbacks(&mut self, count: usize) {
        self.delay.begin_callbacks(count, self.driver.last_wait());
    }

    /// The running callback handles so many events.
    pub fn count_callbacks(&mut self, count: usize) {
        self.delay.count_callbacks(count);
    }

    /// One of them has ended: what has been held for too long leaves.
    #[inline]
    pub fn end_callback(&mut self) {
        if self.delay.end_callback(Instant::now) {
            self.send_all_held();
        }
    }

    /// A part of the running callback has ended: the events of one of several connections.
    pub fn end_part(&mut self) {
        if self.delay.end_part(Instant::now) {
            self.send_all_held();
        }
    }

    #[cold]
    fn send_all_held(&mut self) {
        let now = Instant::now();
        self.delay.release(now);
        let mut held = std::mem::take(&mut self.held);
        // Many sends are worth one system call, if the kernel offers that.
        let is_batch = held.len() > 1 && self.driver.backend() == Backend::Uring;
        for one in held.drain(..) {
            match one {
                Held::Transport(key) if is_batch => self.queue_send(key),
                one => self.send_one(one, now),
            }
        }
        if is_batch {
            self.driver.submit();
        }
        self.held = held;
    }

    fn send_one(&mut self, held: Held, now: Instant) {
        match held {
            Held::Transport(key) => self.send_held(key),
            Held::Connection(endpoint, connection) => {
                if let Some(endpoint) = self.quic.get(endpoint) {
                    endpoint.send_connection(&mut self.driver, connection, now);
                }
            }
        }
    }

    /// The next submission has what the transport holds.
    fn queue_send(&mut self, key: Key) {
        let Some(transport) = self.transports.table.get_mut(key) else {
            return;
        };
        if std::mem::take(&mut transport.life_mut().is_held) {
            match transport {
                Transport::Stream(stream) => stream.flush_queue(&mut self.driver, &mut self.events),
                Transport::Datagram(socket) => socket.send_now(&mut self.events),
            }
        }
    }

    /// The turn ends, and everything is sent.
    pub(super) fn end_writes(&mut self) {
        if self.delay.is_holding() {
            self.delay.release(Instant::now());
            self.held.clear();
        }
        self.delay.end_turn();
    }

    fn write_stream(
        &mut self,
        key: Key,
        accept: impl FnOnce(&mut Stream, &mut Blocks) -> WriteOutcome,
    ) -> WriteOutcome {
        let Transports {
            table,
            blocks,
            dirty,
            counts,
            ..
        } = &mut self.transports;
        let Some(Transport::Stream(stream)) = table.get_mut(key) else {
            return WriteOutcome::Lost;
        };
        let was_idle = stream.is_idle();
        let sends = stream.direct_sends();
        let outcome = accept(stream, blocks);
        // What is large has been tried already.
        if was_idle && !stream.is_drained() && stream.direct_sends() == sends {
            if let Some(now) = time_to_send(&mut self.delay) {
                stream.send_now();
                self.delay.sent(now);
                if stream.is_idle() {
                    counts.direct_sends += stream.take_direct_sends();
                    stream.give_block_back(blocks);
                    return outcome;
                }
            } else {
                stream.life.is_held = true;
                self.held.push(Held::Transport(key));
            }
        } else if stream.life.is_held {
            self.delay.add_piece();
        }
        if stream.life.mark_dirty() {
            dirty.push(key);
        }
        outcome
    }
}

/// The time, if what is written now leaves at once.
fn time_to_send(delay: &mut WriteDelay) -> Option<Instant> {
    if delay.is_holding() {
        return None;
    }
    let now = Instant::now();
    delay.leaves_at_once(now).then_some(now)
}

fn accept(stream: &mut Stream, data: Bytes, blocks: &mut Blocks) -> WriteOutcome {
    // A `Bytes` of somebody's own is allocated for once more when the kernel is lent it.
    match data.len() {
        ..BLOCK_BYTES => stream.write_copy(&data, blocks),
        _ => stream.write(data),
    }
}

fn accept_copy(stream: &mut Stream, data: &[u8], blocks: &mut Blocks) -> WriteOutcome {
    match data.len() {
        ..BLOCK_BYTES => stream.write_copy(data, blocks),
        _ => stream.write(Bytes::copy_from_slice(data)),
    }
}
