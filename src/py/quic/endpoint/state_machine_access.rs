//! The owner of an endpoint's state machines (the engine of a loop, or the endpoint object), and access to the state
//! machines.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::Instant;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;
use uringcore_engine::Key;
use uringcore_quic::{Connection, ConnectionKey, Endpoint, Event};

use super::QuicEndpoint;
use super::event_delivery::EventGroup;
use super::session_store_queries::Answer;
use crate::capi::gil_cell::GilCell;
use crate::event_loop::loop_core::LoopCore;
use crate::quic::client_and_server_config::QuicServerSetup;
use crate::quic::clock_conversion::Clock;
use crate::quic::connection::QuicConnectionCore;
use crate::quic::session_stores::ForeignStore;
use crate::quic::tls_key_log::KeyLogFile;

/// The object that has the endpoint's state machines.
pub(super) enum EndpointOwner {
    /// The engine of a loop, which receives and sends the packets.
    Loop {
        owner: Py<LoopCore>,
        key: Key,
        context: Py<PyAny>,
    },
    /// The endpoint object has it, without a loop. The program hands it received packets and the time, and asks it for the
    /// packets to send.
    Object(Box<GilCell<OwnedEndpoint>>),
}

pub(super) struct OwnedEndpoint {
    pub protocol: Endpoint,
    pub clock: Clock,
    pub now: Instant,
    /// True if commands use the current time. Otherwise they use the time that the program passed in its last call.
    pub is_live: bool,
    /// A client's first packet waits for a call of `datagrams_to_send`.
    pub has_begun: bool,
}

impl OwnedEndpoint {
    pub fn now(&mut self) -> Instant {
        if self.is_live {
            self.now = self.now.max(Instant::now());
        }
        self.now
    }
}

#[derive(Default)]
pub(super) struct EndpointState {
    pub connections: FxHashMap<ConnectionKey, Py<QuicConnectionCore>>,
    /// Called as `on_accept(endpoint, key, alpn)`. Makes the object of an accepted connection.
    pub on_accept: Option<Py<PyAny>>,
    /// True to call `on_accept` with the application protocol, when it is negotiated. Otherwise `on_accept` is called
    /// at once, with None.
    pub when_negotiated: bool,
    /// Called as `on_closed()` when the socket is released.
    pub on_closed: Option<Py<PyAny>>,
    /// The marks `(high, low)` of the send queue of an accepted connection's streams, in bytes.
    pub watermarks: Option<(usize, usize)>,
    pub key_logs: Vec<Py<KeyLogFile>>,
    /// The session store of the program, for a server.
    pub foreign_store: Option<Py<ForeignStore>>,
    /// Called on the store's thread when the store has answered.
    pub on_answer: Option<Py<PyAny>>,
    /// Called as `on_error(message, exception)` with exceptions of the program's callbacks, on an endpoint without a
    /// loop.
    pub on_error: Option<Py<PyAny>>,
    /// Answers of the store that no handshake has got yet, and the number of questions that are still unanswered. Each
    /// handshake that waits has at most one question.
    pub answers: Vec<Answer>,
    pub unanswered: usize,
    /// Empty lists, whose allocations the next loop iteration uses: for the groups of events, and for the events of
    /// one group.
    pub spare_groups: Vec<EventGroup>,
    pub spare_events: Vec<Event>,
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
    /// Calls `run` with the state machines. Fails if the loop or the endpoint has ended.
    pub fn with_protocol<R>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut Endpoint, Instant) -> R,
    ) -> PyResult<R> {
        match &self.owned_by {
            EndpointOwner::Object(cell) => Ok(cell.with(py, |own| {
                let now = own.now();
                run(&mut own.protocol, now)
            })),
            EndpointOwner::Loop { owner, key, .. } => {
                let result = owner.get().with_engine(py, |engine| {
                    engine
                        .quic(*key)
                        .map(|socket| run(socket.protocol(), Instant::now()))
                })?;
                result.ok_or_else(|| PyRuntimeError::new_err("the QUIC endpoint is closed"))
            }
        }
    }

    /// Calls `run` with one connection. `None` if the connection or the loop has ended.
    pub fn with_connection<R>(
        &self,
        py: Python<'_>,
        key: ConnectionKey,
        run: impl FnOnce(&mut Connection) -> R,
    ) -> PyResult<Option<R>> {
        self.try_protocol(py, |protocol| protocol.connection(key).map(run))
    }

    /// Lets the loop send what the program has written to a connection, now that the program has written all that it
    /// has.
    pub fn written(&self, py: Python<'_>, connection: ConnectionKey) {
        if let EndpointOwner::Loop { owner, key, .. } = &self.owned_by {
            // This fails only if the loop is inside the kernel on another thread. Then no data was written, so there is
            // nothing to send.
            let _ = owner
                .get()
                .with_engine(py, |engine| engine.quic_written(*key, connection));
        }
    }

    /// Calls `run` with one connection and the current time. Only for commands that need the time, because reading the
    /// clock costs as much as a small command.
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
        match &self.owned_by {
            EndpointOwner::Object(cell) => cell.with(py, OwnedEndpoint::now),
            EndpointOwner::Loop { .. } => Instant::now(),
        }
    }

    /// Calls `run` with one connection, to read from it. The work that follows commands is not done.
    pub fn peek_connection<R>(
        &self,
        py: Python<'_>,
        key: ConnectionKey,
        run: impl FnOnce(&Connection) -> R,
    ) -> PyResult<Option<R>> {
        self.try_protocol(py, |protocol| protocol.peek(key).map(run))
    }

    /// Calls `run` with the state machines. `None` if the loop or the endpoint has ended.
    pub(super) fn try_protocol<R>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut Endpoint) -> Option<R>,
    ) -> PyResult<Option<R>> {
        match &self.owned_by {
            EndpointOwner::Object(cell) => Ok(cell.with(py, |own| run(&mut own.protocol))),
            EndpointOwner::Loop { owner, key, .. } => {
                let owner = owner.get();
                if owner.is_closed() {
                    return Ok(None);
                }
                owner.with_engine(py, |engine| run(engine.quic(*key)?.protocol()))
            }
        }
    }

    /// Calls `run` with the socket of an open loop. Returns true if the engine takes over the lent descriptor `fd` and
    /// will close it.
    pub(super) fn end_on_loop(
        &self,
        py: Python<'_>,
        fd: Option<RawFd>,
        run: impl FnOnce(&mut uringcore_engine::QuicSocket),
    ) -> PyResult<bool> {
        let EndpointOwner::Loop { owner, key, .. } = &self.owned_by else {
            return Ok(false);
        };
        if owner.get().is_closed() {
            return Ok(false);
        }
        owner.get().with_engine(py, |engine| {
            let Some(socket) = engine.quic(*key) else {
                return false;
            };
            let lent = fd.filter(|fd| socket.is_lent(*fd));
            if let Some(fd) = lent {
                // SAFETY: the caller keeps the lent descriptor open, and detaches it from its socket object when this
                // returns true.
                socket.own(unsafe { OwnedFd::from_raw_fd(fd) });
            }
            run(socket);
            lent.is_some()
        })
    }

    pub fn is_own(&self) -> bool {
        matches!(self.owned_by, EndpointOwner::Object(_))
    }

    /// Sets the time of an endpoint without a loop.
    pub fn set_time(&self, py: Python<'_>, now: Option<f64>) {
        if let (EndpointOwner::Object(cell), Some(now)) = (&self.owned_by, now) {
            cell.with(py, |own| own.now = own.now.max(own.clock.instant(now)));
        }
    }
}
