//! Methods that a host calls when its callbacks begin and end. They send written bytes that are held: when a callback
//! ends, if `write_delay` decides so, and at the latest when the loop iteration ends.

use std::sync::Arc;
use std::time::Instant;

use uringcore_quic::ConnectionKey;

use crate::callback_progress::CallbackProgress;
use crate::engine::Engine;
use crate::generational_slab::Key;
use crate::held_writes::Holder;

impl Engine {
    /// Returns the counts of the host's callbacks. The host updates them directly, so it need not call the engine at
    /// the end of each callback.
    pub fn callback_progress(&self) -> Arc<CallbackProgress> {
        self.held.delay.progress().clone()
    }

    /// The host calls this before it runs `count` callbacks.
    pub fn begin_callbacks(&mut self, count: usize) {
        self.held.delay.progress().begin(count);
    }

    /// The host calls this before a callback handles `events` events in `parts` parts, for example one part for each
    /// connection; [`end_part`](Self::end_part) follows each part. The average duration of a callback counts each
    /// event as one callback, and held bytes may be sent at the end of each part.
    pub fn begin_parts(&mut self, parts: usize, events: usize) {
        self.held.delay.begin_parts(parts, events);
    }

    /// The host calls this when a callback has ended. `left` callbacks still follow in this loop iteration.
    pub fn end_callback(&mut self, left: usize) {
        if self.held.delay.progress().end_one(left) {
            self.end_watched_callback();
        }
    }

    /// The host calls this when a callback has ended and [`CallbackProgress::end_one`] has returned true.
    pub fn end_watched_callback(&mut self) {
        if self.held.delay.end_callback(Instant::now) {
            self.send_all_held();
        }
    }

    /// The host calls this when a part of the running callback has ended, for example the events of one of several
    /// connections.
    pub fn end_part(&mut self) {
        if self.held.delay.end_part(Instant::now) {
            self.send_all_held();
        }
    }

    /// The host calls this when it has written all data that it has for a QUIC connection now. The data is sent at once
    /// or held. Some hosts call this after each batch of received datagrams, even if they have written nothing.
    pub fn quic_written(&mut self, endpoint: Key, connection: ConnectionKey) {
        if !self.quic.is_commanded(endpoint, connection) {
            return;
        }
        match self.held.delay.sends_quic(Instant::now) {
            Some(now) => self.send_holder(Holder::Connection(endpoint, connection), now),
            None => self.held.hold_connection(endpoint, connection),
        }
    }

    /// Multiplies all durations by `factor`, for an emulator in which all code takes `factor` times as long. So the
    /// engine decides as it does on a processor.
    pub fn slow_down(&mut self, factor: u32) {
        self.held.delay.slow_down(factor);
    }

    #[cold]
    fn send_all_held(&mut self) {
        let now = Instant::now();
        // The sends are system calls and not operations of the ring, whose completions would come only with the next
        // loop iteration. Until then a stream could not send more.
        let mut holders = self.held.release(now);
        for holder in holders.drain(..) {
            self.send_holder(holder, now);
        }
        self.held.reuse(holders);
    }

    fn send_holder(&mut self, holder: Holder, now: Instant) {
        match holder {
            Holder::Transport(key) => {
                if let Some(transport) = self.transports.by_key.get_mut(key) {
                    transport.life_mut().is_held = false;
                    transport.send_now(&mut self.events);
                }
            }
            Holder::Connection(endpoint, connection) => {
                if let Some(socket) = self.quic.get(endpoint) {
                    socket.send_connection(&mut self.driver, connection, now);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use uringcore_io::{Backend, DriverConfig};

    use super::*;
    use crate::transport::SharedState;

    #[test]
    fn a_transport_with_held_bytes_is_listed_once_despite_repeated_flushes() {
        let config = DriverConfig {
            backend: Some(Backend::Epoll),
            ..DriverConfig::default()
        };
        let mut engine = Engine::new(&config).expect("an engine");
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let peer = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let shared = SharedState::default();
        let key = engine.transports().open_stream(peer.as_raw_fd(), shared);
        engine.begin_callbacks(2);
        for _ in 0..1_000 {
            engine.transports().write_copy(key, b"x");
            engine.transports().send_held(key);
            let life = engine.transports.by_key.get(key).expect("open").life();
            assert_eq!(life.shared.queued(), 0);
        }
        assert_eq!(engine.held.holders(), [Holder::Transport(key)]);
        engine.flush(Instant::now());
        assert_eq!(engine.held.holders(), []);
    }
}
