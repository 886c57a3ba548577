//! Where an endpoint's state machines live, what belongs to them on Python's side, and how both are
//! reached.

use std::collections::HashMap;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::Instant;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use uringcore_engine::Key;
use uringcore_quic::{Connection, ConnectionKey, Endpoint};

use super::QuicEndpoint;
use super::store::Answer;
use crate::capi::cell::GilCell;
use crate::event_loop::loop_core::LoopCore;
use crate::quic::clock::Clock;
use crate::quic::connection::QuicConnectionCore;
use crate::quic::credentials::ForeignStore;
use crate::quic::key_log::KeyLogFile;
use crate::quic::setup::QuicServerSetup;

/// Where the state machines live.
pub(super) enum Home {
    /// On a loop's engine, which moves the packets.
    Loop {
        owner: Py<LoopCore>,
        key: Key,
        context: Py<PyAny>,
    },
    /// Here: whoever holds this object moves the packets and tells the time.
    Own(Box<GilCell<Own>>),
}

pub(super) struct Own {
    pub endpoint: Endpoint,
    pub clock: Clock,
    pub now: Instant,
    /// Time passes between the caller's words: a loop's callbacks command at any moment.
    pub is_live: bool,
    /// A client's first packet waits for `datagrams_to_send`.
    pub has_begun: bool,
}

impl Own {
    pub fn now(&mut self) -> Instant {
        if self.is_live {
            self.now = self.now.max(Instant::now());
        }
        self.now
    }
}

#[derive(Default)]
pub(super) struct EndpointState {
    pub connections: HashMap<ConnectionKey, Py<QuicConnectionCore>>,
    /// Called as `on_accept(endpoint, key, alpn)`; it makes the connection object.
    pub on_accept: Option<Py<PyAny>>,
    /// It is called when the application protocol is known, and `alpn` says which; otherwise at once,
    /// with None.
    pub when_negotiated: bool,
    /// Called as `on_closed()` when the socket is released.
    pub on_closed: Option<Py<PyAny>>,
    /// `(high, low)` for accepted connections.
    pub watermarks: Option<(usize, usize)>,
    pub key_logs: Vec<Py<KeyLogFile>>,
    /// A server's sessions, if the program keeps them.
    pub foreign_store: Option<Py<ForeignStore>>,
    /// Called on a store's thread when it has answered.
    pub on_answer: Option<Py<PyAny>>,
    /// Told what the program's callbacks raise, where there is no loop of ours to report it.
    pub on_error: Option<Py<PyAny>>,
    /// Answers that no handshake has heard of yet, and questions without one: as many as connections
    /// were held, at most.
    pub answers: Vec<Answer>,
    pub unanswered: usize,
}

impl EndpointState {
    pub fn new(py: Python<'_>, server: Option<&QuicServerSetup>) -> Self {
        Self {
            foreign_store: server
                .and_then(|server| server.foreign_store.as_ref())
                .map(|store| store.clone_ref(py)),
            watermarks: server.map(|server| server.shared.watermarks),
            key_logs: server
                .and_then(|server| server.shared.key_log.as_ref())
                .map(|log| log.clone_ref(py))
                .into_iter()
                .collect(),
            ..Self::default()
        }
    }
}

impl QuicEndpoint {
    /// Runs `run` on the state machines. Fails when the loop or the endpoint is gone.
    pub fn with_protocol<R>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut Endpoint, Instant) -> R,
    ) -> PyResult<R> {
        match &self.home {
            Home::Own(cell) => Ok(cell.with(py, |own| {
                let now = own.now();
                run(&mut own.endpoint, now)
            })),
            Home::Loop { owner, key, .. } => {
                let result = owner.get().with_engine(py, |engine| {
                    engine
                        .quic(*key)
                        .map(|endpoint| run(endpoint.protocol(), Instant::now()))
                })?;
                result.ok_or_else(|| PyRuntimeError::new_err("the QUIC endpoint is closed"))
            }
        }
    }

    /// Runs `run` on one connection; `None` when it is over, or the loop is.
    pub fn with_connection<R>(
        &self,
        py: Python<'_>,
        key: ConnectionKey,
        run: impl FnOnce(&mut Connection) -> R,
    ) -> PyResult<Option<R>> {
        self.with_endpoint(py, |endpoint| endpoint.connection(key).map(run))
    }

    /// The program has written to a connection, all that it has for now: the loop may send it at once.
    pub fn written(&self, py: Python<'_>, connection: ConnectionKey) {
        if let Home::Loop { owner, key, .. } = &self.home {
            // Where the engine is out of reach, nothing was written either.
            let _ = owner
                .get()
                .with_engine(py, |engine| engine.quic_written(*key, connection));
        }
    }

    /// The same for what has to know the time, which costs as much as a small command.
    pub fn with_connection_now<R>(
        &self,
        py: Python<'_>,
        key: ConnectionKey,
        run: impl FnOnce(&mut Connection, Instant) -> R,
    ) -> PyResult<Option<R>> {
        let now = self.now(py);
        self.with_connection(py, key, |connection| run(connection, now))
    }

    pub(super) fn now(&self, py: Python<'_>) -> Instant {
        match &self.home {
            Home::Own(cell) => cell.with(py, Own::now),
            Home::Loop { .. } => Instant::now(),
        }
    }

    /// A look at one connection, without the work that follows commands.
    pub fn peek_connection<R>(
        &self,
        py: Python<'_>,
        key: ConnectionKey,
        run: impl FnOnce(&Connection) -> R,
    ) -> PyResult<Option<R>> {
        self.with_endpoint(py, |endpoint| endpoint.peek(key).map(run))
    }

    /// `None` also when the loop is over.
    pub(super) fn with_endpoint<R>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut Endpoint) -> Option<R>,
    ) -> PyResult<Option<R>> {
        match &self.home {
            Home::Own(cell) => Ok(cell.with(py, |own| run(&mut own.endpoint))),
            Home::Loop { owner, key, .. } => {
                let owner = owner.get();
                if owner.is_closed() {
                    return Ok(None);
                }
                owner.with_engine(py, |engine| run(engine.quic(*key)?.protocol()))
            }
        }
    }

    /// Runs `run` on the endpoint of an open loop. True: the socket `fd`, which was lent, is now the
    /// endpoint's own to close.
    pub(super) fn end_on_loop(
        &self,
        py: Python<'_>,
        fd: Option<RawFd>,
        run: impl FnOnce(&mut uringcore_engine::QuicSocket),
    ) -> PyResult<bool> {
        let Home::Loop { owner, key, .. } = &self.home else {
            return Ok(false);
        };
        if owner.get().is_closed() {
            return Ok(false);
        }
        owner.get().with_engine(py, |engine| {
            let Some(endpoint) = engine.quic(*key) else {
                return false;
            };
            let lent = fd.filter(|fd| endpoint.is_lent(*fd));
            if let Some(fd) = lent {
                // SAFETY: the descriptor is the one that was lent, still open by the lender's promise,
                // and the lender gives it up when it hears `true`.
                endpoint.own(unsafe { OwnedFd::from_raw_fd(fd) });
            }
            run(endpoint);
            lent.is_some()
        })
    }

    pub fn is_own(&self) -> bool {
        matches!(self.home, Home::Own(_))
    }

    /// From now on it is `now`, on an endpoint without a loop.
    pub fn set_time(&self, py: Python<'_>, now: Option<f64>) {
        if let (Home::Own(cell), Some(now)) = (&self.home, now) {
            cell.with(py, |own| own.now = own.now.max(own.clock.instant(now)));
        }
    }
}
