//! What the host writes: sent at once, or held for a while to leave together with what others write.
//!
//! How long that is, `write_delay` decides. The bytes themselves are in the queues of their transports and
//! connections. Here is the list of those that hold some, and when the list is worked off: at the end of the turn
//! by `flush`, or sooner, when the host's callback ends.

use std::time::Instant;

use bytes::Bytes;
use uringcore_io::SendMsg;
use uringcore_quic::ConnectionKey;

use super::Engine;
use crate::table::Key;
use crate::transport::Transport;
use crate::transport::lifecycle::{Lifecycle, WriteOutcome};
use crate::transport::stream::Stream;
use crate::transport::transport_table::Transports;
use crate::transport::write_coalescer::{BLOCK_BYTES, Blocks};

/// One of several pieces that are written together.
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

/// Whose bytes wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Held {
    Transport(Key),
    Connection(Key, ConnectionKey),
}

impl Engine {
    /// Accepts bytes for sending.
    pub fn write(&mut self, key: Key, data: Bytes) -> WriteOutcome {
        self.write_stream(key, |stream, blocks| {
            accept(stream, [Piece::Kept(data)].into_iter(), blocks)
        })
    }

    /// Accepts a copy of `data`. For less than 4 KiB, written often, no memory is allocated.
    pub fn write_copy(&mut self, key: Key, data: &[u8]) -> WriteOutcome {
        self.write_stream(key, |stream, blocks| {
            accept(stream, [Piece::Copied(data)].into_iter(), blocks)
        })
    }

    /// Accepts several pieces, which leave together.
    pub fn write_pieces<'a>(
        &mut self,
        key: Key,
        pieces: impl Iterator<Item = Piece<'a>>,
    ) -> WriteOutcome {
        self.write_stream(key, |stream, blocks| accept(stream, pieces, blocks))
    }

    /// Accepts a datagram for sending.
    pub fn send_datagram(&mut self, key: Key, message: SendMsg) -> WriteOutcome {
        let Some(Transport::Datagram(socket)) = self.transports.table.get_mut(key) else {
            return WriteOutcome::Lost;
        };
        let was_idle = socket.is_drained();
        let outcome = socket.send(message, &mut self.events);
        // One that would have been a reason to pause has been tried already.
        if was_idle && !socket.is_drained() && !socket.life.shared.is_above() {
            if self.delay.sends(Instant::now) {
                socket.send_now(&mut self.events);
                if socket.is_drained() && !socket.life.shared.is_closing() {
                    return outcome;
                }
            } else {
                hold(&mut self.held, &mut socket.life);
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
        // It stays in the list: what is written next finds its place there.
        if transport.life().is_held {
            transport.send_now(&mut self.events);
        }
    }

    /// The host has written to a QUIC connection, all that it has for now.
    pub fn quic_written(&mut self, endpoint: Key, connection: ConnectionKey) {
        let held = Held::Connection(endpoint, connection);
        match self.delay.sends_quic(Instant::now) {
            Some(now) => self.send_one(held, now),
            None if self.held_connections.insert((endpoint, connection)) => self.held.push(held),
            None => self.delay.add_piece(),
        }
    }

    /// All code takes `factor` times as long as it does on a processor: the engine runs in an emulator. What it does
    /// by how long callbacks take, it does as it would on the processor.
    pub fn slow_down(&mut self, factor: u32) {
        self.delay.slow_down(factor);
    }

    /// The host begins to run so many callbacks.
    pub fn begin_callbacks(&mut self, count: usize) {
        self.delay.begin_callbacks(count, self.driver.last_wait());
    }

    /// The running callback handles so many events, in so many parts.
    pub fn begin_parts(&mut self, parts: usize, events: usize) {
        self.delay.begin_parts(parts, events);
    }

    /// One of them has ended, and `left` follow in this turn: what has been held for too long leaves.
    #[inline]
    pub fn end_callback(&mut self, left: usize) {
        if self.delay.end_callback(left, Instant::now) {
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
        // Not by the ring: its completions come with the next turn, and until then a stream could send nothing more.
        let mut held = std::mem::take(&mut self.held);
        self.held_connections.clear();
        for one in held.drain(..) {
            self.send_one(one, now);
        }
        self.held = held;
    }

    fn send_one(&mut self, held: Held, now: Instant) {
        match held {
            Held::Transport(key) => {
                if let Some(transport) = self.transports.table.get_mut(key) {
                    transport.life_mut().is_held = false;
                    transport.send_now(&mut self.events);
                }
            }
            Held::Connection(endpoint, connection) => {
                if let Some(endpoint) = self.quic.get(endpoint) {
                    endpoint.send_connection(&mut self.driver, connection, now);
                }
            }
        }
    }

    /// The turn ends, and everything is sent.
    pub(super) fn end_writes(&mut self) {
        if self.delay.is_holding() {
            self.delay.release(Instant::now());
            self.held.clear();
            self.held_connections.clear();
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
            if self.delay.sends(Instant::now) {
                stream.send_now();
                if stream.is_idle() {
                    counts.direct_sends += stream.take_direct_sends();
                    stream.give_block_back(blocks);
                    return outcome;
                }
            } else {
                hold(&mut self.held, &mut stream.life);
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

/// Lists a transport whose bytes wait, once.
fn hold(held: &mut Vec<Held>, life: &mut Lifecycle) {
    if !std::mem::replace(&mut life.is_held, true) {
        held.push(Held::Transport(life.key));
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
        match piece {
            // A `Bytes` of somebody's own is allocated for once more when the kernel is lent it.
            _ if piece.len() < BLOCK_BYTES => stream.push_copy(piece.bytes(), blocks),
            Piece::Copied(bytes) => stream.push(Bytes::copy_from_slice(bytes)),
            Piece::Kept(bytes) => stream.push(bytes),
        }
    }
    stream.accepted(count)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use uringcore_io::{Backend, DriverConfig};

    use super::*;
    use crate::transport::shared_state::SharedState;

    #[test]
    fn a_transport_is_listed_once_however_often_its_held_bytes_are_asked_for() {
        let config = DriverConfig {
            backend: Some(Backend::Epoll),
            ..DriverConfig::default()
        };
        let mut engine = Engine::new(&config).expect("an engine");
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let peer = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let key = engine.open_stream(peer.as_raw_fd(), SharedState::default());
        engine.begin_callbacks(2);
        for _ in 0..1_000 {
            engine.write_copy(key, b"x");
            engine.send_held(key);
            let life = engine.transports.table.get(key).expect("open").life();
            assert_eq!(life.shared.queued(), 0);
        }
        assert_eq!(engine.held, [Held::Transport(key)]);
        engine.flush(Instant::now());
        assert_eq!(engine.held, []);
    }
}
