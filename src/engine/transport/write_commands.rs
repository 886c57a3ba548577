//! Writes of a host. The bytes are sent at once, or held for a while to be sent together with others.
//!
//! `write_delay` decides which. The bytes are in the queues of their transports; `held_writes` lists the transports.

use std::time::Instant;

use bytes::{Buf, Bytes};
use uringcore_io::{SendMsg, SentFile};

use super::Transport;
use super::commands::Transports;
use super::lifecycle::WriteOutcome;
use super::stream::Stream;
use super::transport_table::TransportTable;
use super::write_coalescer::{BLOCK_BYTES, Blocks};
use crate::generational_slab::Key;

/// A piece of bytes; several may be written together.
pub enum Piece<'a> {
    Copied(&'a [u8]),
    Kept(Bytes),
}

impl Piece<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Kept(bytes) => bytes,
        }
    }

    fn len(&self) -> usize {
        self.bytes().len()
    }
}

impl Transports<'_> {
    /// Queues bytes for sending, and sends them at once or holds them.
    pub fn write(&mut self, key: Key, data: Bytes) -> WriteOutcome {
        self.write_one(key, data, |mut data, sent| {
            data.advance(sent);
            Piece::Kept(data)
        })
    }

    /// Writes `data`. Bytes that are not sent at once are copied. Less than 4 KiB are copied into a block that is used
    /// again, which needs no allocation.
    pub fn write_copy(&mut self, key: Key, data: &[u8]) -> WriteOutcome {
        self.write_one(key, data, |data, sent| Piece::Copied(&data[sent..]))
    }

    /// Writes `data`. If not all of it is sent at once, `keep(sent)` returns the bytes from `sent` on.
    pub fn write_keeping(
        &mut self,
        key: Key,
        data: &[u8],
        keep: impl FnOnce(usize) -> Bytes,
    ) -> WriteOutcome {
        self.write_one(key, data, |_, sent| Piece::Kept(keep(sent)))
    }

    /// Writes several pieces, which are sent together.
    pub fn write_pieces<'a>(
        &mut self,
        key: Key,
        pieces: impl Iterator<Item = Piece<'a>>,
    ) -> WriteOutcome {
        self.write_stream(key, |stream, blocks| accept(stream, pieces, blocks))
    }

    /// Sends a part of a file without queueing it. Returns the number of sent bytes. It is 0 if the host has to write the
    /// part as bytes.
    pub fn send_file(&mut self, key: Key, file: &SentFile, offset: u64, length: usize) -> usize {
        let TransportTable {
            by_key,
            blocks,
            dirty,
            counts,
            ..
        } = &mut *self.transports;
        let Some(Transport::Stream(stream)) = by_key.get_mut(key) else {
            return 0;
        };
        let sent = stream.send_file(file, offset, length);
        counts.direct_sends += stream.queue.take_direct_sends() + u64::from(sent > 0);
        if stream.is_idle() {
            stream.queue.give_block_back(blocks);
        }
        if sent == 0 && stream.life.mark_dirty() {
            dirty.push(key);
        }
        sent
    }

    /// Sends a datagram.
    pub fn send_datagram(&mut self, key: Key, message: SendMsg) -> WriteOutcome {
        let Some(Transport::Datagram(socket)) = self.transports.by_key.get_mut(key) else {
            return WriteOutcome::Lost;
        };
        let was_idle = socket.is_drained();
        let outcome = socket.send(message, self.events);
        // The datagram was tried already if it has raised the queue above the high mark.
        if was_idle && !socket.is_drained() && !socket.life.shared.is_above() {
            if self.held.delay.sends(Instant::now) {
                socket.send_now(self.events);
                if socket.is_drained() && !socket.life.shared.is_closing() {
                    return outcome;
                }
            } else {
                self.held
                    .hold_transport(socket.life.key, &mut socket.life.is_held);
            }
        } else if socket.life.is_held {
            self.held.delay.add_piece();
        }
        if socket.life.mark_dirty() {
            self.transports.dirty.push(key);
        }
        outcome
    }

    /// Sends the held bytes of a transport, as many as the socket accepts. A host calls this before it reads the
    /// number of unsent bytes.
    pub fn send_held(&mut self, key: Key) {
        let Some(transport) = self.transports.by_key.get_mut(key) else {
            return;
        };
        // The transport stays in the list of those with held bytes, because its next bytes may be held as well.
        if transport.life().is_held {
            transport.send_now(self.events);
        }
    }

    /// Writes one piece. If nothing is queued and the bytes are sent now, they are sent from the caller's memory, and
    /// only those that the socket does not accept are queued: `rest(data, sent)`.
    fn write_one<'a, D: AsRef<[u8]>>(
        &mut self,
        key: Key,
        data: D,
        rest: impl FnOnce(D, usize) -> Piece<'a>,
    ) -> WriteOutcome {
        let TransportTable {
            by_key,
            blocks,
            dirty,
            counts,
            ..
        } = &mut *self.transports;
        let Some(Transport::Stream(stream)) = by_key.get_mut(key) else {
            return WriteOutcome::Lost;
        };
        let len = data.as_ref().len();
        let is_direct = stream.is_idle() && stream.is_writable() && stream.sends_with_others(len);
        if !is_direct {
            let all = rest(data, 0);
            return self.write_stream(key, |stream, blocks| {
                accept(stream, [all].into_iter(), blocks)
            });
        }
        if self.held.delay.sends(Instant::now) {
            counts.direct_sends += 1;
            match stream.send_first(data.as_ref()) {
                Some(sent) if sent == len => return WriteOutcome::Queued,
                Some(sent) => stream.queue_piece(rest(data, sent), blocks),
                // As in asyncio, the queue is empty after a failed write.
                None => {}
            }
        } else {
            stream.queue_piece(rest(data, 0), blocks);
            self.held
                .hold_transport(stream.life.key, &mut stream.life.is_held);
        }
        if stream.life.mark_dirty() {
            dirty.push(key);
        }
        WriteOutcome::Queued
    }

    fn write_stream(
        &mut self,
        key: Key,
        accept: impl FnOnce(&mut Stream, &mut Blocks) -> WriteOutcome,
    ) -> WriteOutcome {
        let TransportTable {
            by_key,
            blocks,
            dirty,
            counts,
            ..
        } = &mut *self.transports;
        let Some(Transport::Stream(stream)) = by_key.get_mut(key) else {
            return WriteOutcome::Lost;
        };
        let was_idle = stream.is_idle();
        let sends = stream.queue.direct_sends();
        let outcome = accept(stream, blocks);
        // Writes of at least `LARGE_BYTES` were tried already.
        if was_idle && !stream.is_drained() && stream.queue.direct_sends() == sends {
            if self.held.delay.sends(Instant::now) {
                stream.send_now();
                if stream.is_idle() {
                    counts.direct_sends += stream.queue.take_direct_sends();
                    stream.queue.give_block_back(blocks);
                    return outcome;
                }
            } else {
                self.held
                    .hold_transport(stream.life.key, &mut stream.life.is_held);
            }
        } else if stream.life.is_held {
            self.held.delay.add_piece();
        }
        if stream.life.mark_dirty() {
            dirty.push(key);
        }
        outcome
    }
}

fn accept<'a>(
    stream: &mut Stream,
    pieces: impl Iterator<Item = Piece<'a>>,
    blocks: &mut Blocks,
) -> WriteOutcome {
    if !stream.is_writable() {
        return WriteOutcome::Lost;
    }
    let mut count = 0;
    for piece in pieces {
        count += piece.len();
        push(stream, piece, blocks);
    }
    stream.accepted(count)
}

fn push(stream: &mut Stream, piece: Piece<'_>, blocks: &mut Blocks) {
    match piece {
        // Small pieces are copied, because a `Bytes` made of a `Vec` costs another allocation when the kernel borrows
        // it.
        _ if piece.len() < BLOCK_BYTES => stream.queue.push_copy(piece.bytes(), blocks),
        Piece::Copied(bytes) => stream.queue.push(Bytes::copy_from_slice(bytes)),
        Piece::Kept(bytes) => stream.queue.push(bytes),
    }
}

impl Stream {
    /// Queues a piece that raises the queue above no mark.
    fn queue_piece(&mut self, piece: Piece<'_>, blocks: &mut Blocks) {
        self.life.shared.add_queued(piece.len());
        push(self, piece, blocks);
    }
}
