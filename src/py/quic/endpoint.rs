//! `QuicEndpoint`: the connections of one UDP socket, on a loop's engine or without a loop.
//!
//! | file | content |
//! | --- | --- |
//! | `state_machine_access` | the owner of the state machines, and access to them |
//! | `event_delivery` | delivers events to Python, one list for each connection and loop iteration |
//! | `additional_sockets` | further sockets of an endpoint, and migration to one of them |
//! | `session_store_queries` | calls of the program's session store |
//!
//! This file opens and closes connections. For endpoints without a loop it also passes datagrams in and out. In this
//! folder *endpoint* is the Python object, *protocol* its state machines (`uringcore_quic::Endpoint`), and *socket*
//! the engine's `QuicSocket`. Commands of a connection are in `connection`.
//!
//! No Python code runs while the engine or a cell is borrowed.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use uringcore_engine::SocketFd;
use uringcore_quic::{ConnectError, ConnectionKey, DatagramMeta, Endpoint, EndpointSettings};

use super::client_and_server_config::{QuicClientSetup, QuicServerSetup};
use super::clock_conversion::Clock;
use super::connection::QuicConnectionCore;
use super::endpoint_settings;
use crate::capi::address;
use crate::capi::bounded_arguments::{BytesLike, List, OwnedBytes};
use crate::capi::contextvars_context;
use crate::capi::exception_conversion;
use crate::capi::gil_cell::GilCell;
use crate::capi::integer_arguments;
use crate::event_loop::loop_core::LoopCore;

mod additional_sockets;
mod event_delivery;
mod session_store_queries;
mod state_machine_access;

use event_delivery::FirstError;
use state_machine_access::{EndpointOwner, EndpointState, OwnedEndpoint};

/// A UDP socket and its QUIC connections.
#[pyclass(frozen, weakref, module = "uringcore._uringcore")]
pub struct QuicEndpoint {
    owned_by: EndpointOwner,
    state: GilCell<EndpointState>,
}

impl QuicEndpoint {
    /// Makes an endpoint without a loop for a single connection. A client may choose its first connection ID, a server
    /// the only ClientHello that it accepts.
    pub fn new_own(
        py: Python<'_>,
        connection_id_length: usize,
        connection_id: Option<Vec<u8>>,
        server: Option<&QuicServerSetup>,
        hello: Option<&[u8]>,
    ) -> PyResult<Self> {
        let settings = EndpointSettings {
            connection_id_length,
            max_connections: 1,
            first_connection_id: connection_id,
            reports_connection_ids: true,
            ..EndpointSettings::default()
        };
        let settings = endpoint_settings::checked(py, settings)?;
        Self::with_settings(py, settings, server, hello, None)
    }

    fn with_settings(
        py: Python<'_>,
        settings: EndpointSettings,
        server: Option<&QuicServerSetup>,
        hello: Option<&[u8]>,
        now: Option<f64>,
    ) -> PyResult<Self> {
        let setup = server.map(|server| match hello {
            Some(hello) => server.setup.clone().expecting(hello),
            None => server.setup.clone(),
        });
        let own = OwnedEndpoint {
            protocol: Endpoint::new(settings, setup),
            clock: now.map_or_else(Clock::new, Clock::running),
            now: Instant::now(),
            is_live: now.is_some(),
            has_begun: false,
        };
        Ok(Self {
            owned_by: EndpointOwner::Object(Box::new(GilCell::new(own))),
            state: GilCell::new(EndpointState::new(py, server)),
        })
    }

    /// Opens a client's connection, whose events are passed to `connection`.
    pub fn open(
        &self,
        py: Python<'_>,
        connection: Py<QuicConnectionCore>,
        setup: &QuicClientSetup,
        remote: std::net::SocketAddr,
        server_name: &str,
        now: Option<f64>,
    ) -> PyResult<ConnectionKey> {
        self.set_time(py, now);
        let watermarks = setup.shared.watermarks;
        let key = self
            .with_protocol(py, |protocol, now| {
                let key = protocol.connect(now, &setup.setup, remote, server_name)?;
                if let Some(connection) = protocol.connection(key) {
                    connection.set_watermarks(watermarks.0, watermarks.1);
                }
                Ok(key)
            })?
            .map_err(|error| connect_error(&error))?;
        if let EndpointOwner::Object(cell) = &self.owned_by {
            cell.with(py, |own| own.has_begun = true);
        }
        self.state.with(py, |state| {
            state.connections.insert(key, connection);
            if let Some(log) = &setup.shared.key_log
                && !state.key_logs.iter().any(|known| known.is(log))
            {
                state.key_logs.push(log.clone_ref(py));
            }
        });
        Ok(key)
    }

    /// Sets the object that gets the events of an accepted connection.
    pub fn adopt(&self, py: Python<'_>, key: ConnectionKey, connection: Py<QuicConnectionCore>) {
        let old = self
            .state
            .with(py, |state| state.connections.insert(key, connection));
        drop(old);
    }

    /// Sets `on_accept(endpoint, key, alpn)`, which makes the objects of accepted connections.
    pub fn set_on_accept(&self, py: Python<'_>, on_accept: Py<PyAny>) {
        let old = self
            .state
            .with(py, |state| state.on_accept.replace(on_accept));
        drop(old);
    }

    /// Calls `take` for each datagram that has to be sent, with its address and the number of its socket.
    fn each_to_send<'py>(
        &self,
        py: Python<'py>,
        now: f64,
        mut take: impl FnMut(Bound<'py, PyBytes>, &Bound<'py, PyTuple>, u32) -> PyResult<()>,
    ) -> PyResult<()> {
        let EndpointOwner::Object(cell) = &self.owned_by else {
            return Ok(());
        };
        self.set_time(py, Some(now));
        cell.with(py, |own| own.has_begun = false);
        let mut buffer = Vec::new();
        let mut last: Option<(std::net::SocketAddr, Bound<'py, PyTuple>)> = None;
        while let Some(sent) = cell.with(py, |own| own.protocol.poll_transmit(own.now, &mut buffer))
        {
            let remote = match &last {
                Some((addr, tuple)) if *addr == sent.remote => tuple.clone(),
                _ => address::inet_to_python(py, sent.remote)?,
            };
            let size = sent.segment_size.unwrap_or(sent.size).max(1);
            for datagram in buffer[..sent.size].chunks(size) {
                take(PyBytes::new(py, datagram), &remote, sent.socket)?;
            }
            last = Some((sent.remote, remote));
        }
        Ok(())
    }
}

#[pymethods]
impl QuicEndpoint {
    /// Makes an endpoint on a bound UDP socket. The caller keeps the socket open until `on_closed` is called.
    #[staticmethod]
    #[pyo3(signature = (owner, fd, *, server = None, on_accept = None, on_closed = None, when_negotiated = false, **options))]
    #[expect(clippy::too_many_arguments)] // Keyword arguments in Python.
    fn on_loop(
        py: Python<'_>,
        owner: &Bound<'_, LoopCore>,
        fd: RawFd,
        server: Option<&Bound<'_, QuicServerSetup>>,
        on_accept: Option<Py<PyAny>>,
        on_closed: Option<Py<PyAny>>,
        when_negotiated: bool,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<Self>> {
        let settings = settings_from(py, options)?;
        let server = server.map(|server| server.get());
        let protocol = Endpoint::new(settings, server.map(|server| server.setup.clone()));
        let context = contextvars_context::copy_current(py)?;
        let opened = owner.get().with_engine(py, |engine| {
            engine.open_quic(|_, token| {
                uringcore_engine::QuicSocket::new(SocketFd::Lent(fd), protocol, token)
            })
        })?;
        let key = opened.map_err(|error| exception_conversion::io_error(&error))?;
        let state = EndpointState {
            on_accept,
            when_negotiated,
            on_closed,
            ..EndpointState::new(py, server)
        };
        let owned_by = EndpointOwner::Loop {
            owner: owner.clone().unbind(),
            key,
            context,
        };
        let object = Py::new(
            py,
            Self {
                owned_by,
                state: GilCell::new(state),
            },
        )?;
        let held = object.clone_ref(py).into_any();
        owner
            .get()
            .objects
            .with(py, |objects| objects.quic.insert(key, held));
        Ok(object)
    }

    /// Makes an endpoint without a loop. The caller passes received datagrams, fetches those to send, and passes the
    /// time. If `now` is given, it is a time of CLOCK_MONOTONIC, and commands use the current time instead of the time
    /// of the last call.
    #[staticmethod]
    #[pyo3(signature = (*, server = None, on_accept = None, when_negotiated = false, now = None, **options))]
    fn sans_io(
        py: Python<'_>,
        server: Option<&Bound<'_, QuicServerSetup>>,
        on_accept: Option<Py<PyAny>>,
        when_negotiated: bool,
        now: Option<f64>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let server = server.map(|server| server.get());
        let endpoint = Self::with_settings(py, settings_from(py, options)?, server, None, now)?;
        endpoint.state.with(py, |state| {
            state.on_accept = on_accept;
            state.when_negotiated = when_negotiated;
        });
        Ok(endpoint)
    }

    /// Connections keep their server's address (no migration to a preferred address), because the caller's socket is
    /// connected.
    fn keep_to_peer(&self, py: Python<'_>) -> PyResult<()> {
        self.with_protocol(py, |protocol, _| protocol.keep_to_peer())
    }

    /// Takes over a further bound UDP socket, whose descriptor the caller has detached. Returns its number. The socket
    /// is closed with the endpoint or by `remove_socket`.
    fn add_socket(&self, py: Python<'_>, fd: RawFd) -> PyResult<u32> {
        self.take_socket(py, fd)
    }

    /// Closes a further socket.
    fn remove_socket(&self, py: Python<'_>, number: u32) -> PyResult<()> {
        self.close_socket(py, number)
    }

    /// The number of connections, including those that are closing.
    #[getter]
    fn connections(&self, py: Python<'_>) -> PyResult<usize> {
        self.with_protocol(py, |protocol, _| protocol.len())
    }

    /// Changes the secrets for stateless resets. Former secrets are kept for connections that began before.
    fn set_reset_keys(
        &self,
        py: Python<'_>,
        keys: List<OwnedBytes>,
        socket_name: BytesLike<'_>,
    ) -> PyResult<()> {
        let keys = endpoint_settings::reset_keys(py, keys)?;
        self.with_protocol(py, |protocol, _| {
            protocol.set_reset_keys(&keys, &socket_name)
        })
    }

    /// Accepts new connections with `server` from now on.
    fn set_server(&self, py: Python<'_>, server: &Bound<'_, QuicServerSetup>) -> PyResult<()> {
        let server = server.get();
        self.with_protocol(py, |protocol, _| {
            protocol.set_server(Some(server.setup.clone()));
        })?;
        let old = self.state.with(py, |state| {
            state.watermarks = Some(server.shared.watermarks);
            // Drops the logs to which no connection writes any more.
            let (mut kept, old): (Vec<_>, Vec<_>) = std::mem::take(&mut state.key_logs)
                .into_iter()
                .partition(|log| Arc::strong_count(&log.get().log) > 1);
            if let Some(log) = &server.shared.key_log
                && !kept.iter().any(|known| known.is(log))
            {
                kept.push(log.clone_ref(py));
            }
            state.key_logs = kept;
            let store = server.foreign_store.as_ref();
            let store = store.map(|store| store.clone_ref(py));
            (old, std::mem::replace(&mut state.foreign_store, store))
        });
        drop(old);
        Ok(())
    }

    /// Sets a callback for answers of a session store that may block. It is called on the store's thread and must cause
    /// a call of `deliver_events` soon. Without it, `get_timer` includes the times at which to look for answers.
    fn set_on_answer(&self, py: Python<'_>, on_answer: Py<PyAny>) {
        let old = self
            .state
            .with(py, |state| state.on_answer.replace(on_answer));
        drop(old);
    }

    /// Sets a callback `on_error(message, exception)` for exceptions of receivers, handlers and session stores. Without
    /// it, the call that delivers the events raises the first exception, and others go to `sys.unraisablehook`. On a
    /// loop the callback is never called, because exceptions go to the loop's exception handler.
    fn set_on_error(&self, py: Python<'_>, on_error: Py<PyAny>) {
        let old = self
            .state
            .with(py, |state| state.on_error.replace(on_error));
        drop(old);
    }

    /// Refuses new connections (CONNECTION_REFUSED). Open ones continue.
    fn stop_accepting(&self, py: Python<'_>) -> PyResult<()> {
        self.with_protocol(py, |protocol, _| protocol.refuse_incoming())
    }

    /// Refuses new connections from now on. On a loop, the endpoint ends when its last connection has ended. Returns
    /// True if the endpoint takes over the socket `fd`, which it had borrowed; the caller then detaches the socket
    /// object.
    #[pyo3(signature = (fd = None))]
    fn drain(&self, py: Python<'_>, fd: Option<RawFd>) -> PyResult<bool> {
        match &self.owned_by {
            EndpointOwner::Object(cell) => {
                cell.with(py, |own| own.protocol.refuse_incoming());
                Ok(false)
            }
            EndpointOwner::Loop { .. } => {
                self.end_on_loop(py, fd, uringcore_engine::QuicSocket::drain)
            }
        }
    }

    /// Closes all connections with an application error code. The endpoint stays open.
    #[pyo3(
        signature = (error_code = 0, reason_phrase = String::new()),
        text_signature = "($self, error_code=0, reason_phrase='')"
    )]
    fn close_connections(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer_arguments::error_code)] error_code: u64,
        #[pyo3(from_py_with = integer_arguments::reason_phrase)] reason_phrase: String,
    ) -> PyResult<()> {
        let reason = reason_phrase.as_bytes();
        self.with_protocol(py, |protocol, now| {
            protocol.close_all(now, error_code, reason)
        })
    }

    /// Closes all connections with an application error code. Closes the socket when all peers have answered or the
    /// time for that has passed. `fd` and the result are those of `drain`.
    #[pyo3(
        signature = (error_code = 0, reason_phrase = String::new(), fd = None),
        text_signature = "($self, error_code=0, reason_phrase='', fd=None)"
    )]
    fn close(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer_arguments::error_code)] error_code: u64,
        #[pyo3(from_py_with = integer_arguments::reason_phrase)] reason_phrase: String,
        fd: Option<RawFd>,
    ) -> PyResult<bool> {
        let reason = reason_phrase.as_bytes();
        match &self.owned_by {
            EndpointOwner::Object(cell) => {
                cell.with(py, |own| {
                    let now = own.now();
                    own.protocol.refuse_incoming();
                    own.protocol.close_all(now, error_code, reason);
                });
                Ok(false)
            }
            EndpointOwner::Loop { .. } => self.end_on_loop(py, fd, |socket| {
                socket.close(Instant::now(), error_code, reason);
            }),
        }
    }

    /// True if all peers have answered the close of their connections, or the time for that has passed.
    #[getter]
    fn may_end(&self, py: Python<'_>) -> PyResult<bool> {
        match &self.owned_by {
            EndpointOwner::Object(cell) => Ok(cell.with(py, |own| own.protocol.may_end())),
            // A socket that has ended is removed from the engine some callbacks before `on_closed`.
            EndpointOwner::Loop { owner, key, .. } => owner.get().with_engine(py, |engine| {
                let socket = engine.quic(*key);
                socket.is_none_or(|socket| socket.protocol().may_end())
            }),
        }
    }

    /// The counters of the protocol, and on a loop also those of the socket.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (stats, connections, handshakes) = self.with_protocol(py, |protocol, _| {
            (protocol.stats(), protocol.len(), protocol.handshakes())
        })?;
        let dict = PyDict::new(py);
        for (name, value) in [
            ("connections", connections as u64),
            ("handshakes", handshakes as u64),
            ("datagrams_received", stats.datagrams_received),
            ("bytes_received", stats.bytes_received),
            ("datagrams_sent", stats.datagrams_sent),
            ("bytes_sent", stats.bytes_sent),
            ("transmits", stats.transmits),
            ("connections_opened", stats.connections_opened),
            ("connections_accepted", stats.connections_accepted),
            ("connections_closed", stats.connections_closed),
            ("incoming_refused", stats.incoming_refused),
            ("refused_for_closing", stats.refused_for_closing),
            ("refused_for_connections", stats.refused_for_connections),
            ("refused_for_handshakes", stats.refused_for_handshakes),
            ("refused_for_address", stats.refused_for_address),
            ("incoming_retried", stats.incoming_retried),
            ("incoming_ignored", stats.incoming_ignored),
            ("ignored_for_rate", stats.ignored_for_rate),
            ("stateless_resets_sent", stats.stateless_resets_sent),
            ("responses_dropped", stats.responses_dropped),
            ("moves_dropped", stats.moves_dropped),
            ("held_bytes", stats.held_bytes),
            ("credit_withheld", stats.credit_withheld),
            ("streams_shed", stats.streams_shed),
            ("connections_shed", stats.connections_shed),
        ] {
            dict.set_item(name, value)?;
        }
        if let EndpointOwner::Loop { owner, key, .. } = &self.owned_by {
            let of_socket = owner
                .get()
                .with_engine(py, |engine| engine.quic(*key).map(|socket| socket.stats()))?;
            if let Some(stats) = of_socket {
                dict.set_item("socket_receives", stats.receives)?;
                dict.set_item("socket_sends", stats.sends)?;
                dict.set_item("socket_send_errors", stats.send_errors)?;
                dict.set_item("socket_receive_errors", stats.receive_errors)?;
                dict.set_item("socket_truncated", stats.truncated)?;
            }
        }
        Ok(dict)
    }

    // Methods for connections without a loop ---------------------------------------------------------

    /// Handles one datagram that the caller has received on the socket with this number, and delivers the events.
    #[pyo3(signature = (data, addr, now, socket = 0))]
    pub fn receive_datagram(
        slf: &Bound<'_, Self>,
        data: &[u8],
        addr: &Bound<'_, PyAny>,
        now: f64,
        socket: u32,
    ) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let EndpointOwner::Object(cell) = &this.owned_by else {
            return Err(PyRuntimeError::new_err(
                "the loop receives for this connection",
            ));
        };
        let meta = DatagramMeta {
            remote: address::inet_from_python(addr)?,
            local_ip: None,
            ecn: None,
        };
        this.set_time(py, Some(now));
        if !data.is_empty() {
            let data = BytesMut::from(data);
            cell.with(py, |own| {
                own.protocol.handle_datagram_at(own.now, socket, meta, data);
            });
        }
        Self::deliver(slf)
    }

    /// Returns the datagrams to send now, as `(data, address)`. Empty on a loop, which sends by itself.
    pub fn datagrams_to_send<'py>(
        &self,
        py: Python<'py>,
        now: f64,
    ) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        self.each_to_send(py, now, |data, remote, _| list.append((data, remote)))?;
        Ok(list)
    }

    /// Returns the datagrams to send now, as `(data, address, socket)`, with the number of the caller's socket.
    fn datagrams_by_socket<'py>(&self, py: Python<'py>, now: f64) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        self.each_to_send(py, now, |data, remote, socket| {
            list.append((data, remote, socket))
        })?;
        Ok(list)
    }

    /// The time at which `handle_timer` must be called, in the caller's seconds. While a client's first packet waits to
    /// be sent, it is the current time, because programs written for aioquic sleep until this time before their first
    /// send.
    pub fn get_timer(&self, py: Python<'_>) -> Option<f64> {
        let EndpointOwner::Object(cell) = &self.owned_by else {
            return None;
        };
        cell.with(py, |own| {
            let at = match own.has_begun {
                true => Some(own.now),
                false => own.protocol.next_timeout(),
            };
            let at = at.into_iter().chain(self.answers_due(py, own));
            at.min().map(|at| own.clock.seconds(at))
        })
    }

    /// Runs the timers that are due at `now`, and delivers the events.
    pub fn handle_timer(slf: &Bound<'_, Self>, now: f64) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        if let EndpointOwner::Object(cell) = &this.owned_by {
            this.set_time(py, Some(now));
            cell.with(py, |own| own.protocol.handle_timeout(own.now));
        }
        Self::deliver(slf)
    }

    /// Sends a datagram of the program, which belongs to no connection, to a numeric address.
    fn send_datagram(&self, py: Python<'_>, data: &[u8], addr: &Bound<'_, PyAny>) -> PyResult<()> {
        let remote = address::inet_from_python(addr)?;
        self.with_protocol(py, |protocol, _| {
            protocol.send_datagram(remote, data.to_vec())
        })
    }

    /// Ends the handshakes with `addr`, because the network has reported it as unreachable.
    pub fn unreachable(
        slf: &Bound<'_, Self>,
        addr: &Bound<'_, PyAny>,
        errno: i32,
        now: f64,
    ) -> PyResult<()> {
        let remote = address::inet_from_python(addr)?;
        slf.get().set_time(slf.py(), Some(now));
        slf.get().with_protocol(slf.py(), |protocol, now| {
            protocol.handle_unreachable(now, remote, errno);
        })?;
        Self::deliver(slf)
    }

    /// Delivers events that commands have caused, such as the end of a connection that was closed. A loop does that in
    /// its iteration; there this call only continues handshakes for which a session store has answered.
    pub fn deliver_events(slf: &Bound<'_, Self>) -> PyResult<()> {
        match slf.get().owned_by {
            EndpointOwner::Object(_) => Self::deliver(slf),
            EndpointOwner::Loop { .. } => {
                let mut first_error = FirstError::default();
                Self::take_answers(slf, &mut first_error)?;
                first_error.raise()
            }
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let EndpointOwner::Loop { owner, context, .. } = &self.owned_by {
            visit.call(owner)?;
            visit.call(context)?;
        }
        self.state
            .traverse(|state| {
                visit.call(&state.on_accept)?;
                visit.call(&state.on_closed)?;
                visit.call(&state.on_answer)?;
                visit.call(&state.on_error)?;
                visit.call(&state.foreign_store)?;
                let mut key_logs = state.key_logs.iter();
                key_logs.try_for_each(|log| visit.call(log))?;
                state
                    .connections
                    .values()
                    .try_for_each(|connection| visit.call(connection))
            })
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        drop(self.state.take(py));
    }
}

fn settings_from(
    py: Python<'_>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<EndpointSettings> {
    match options {
        Some(options) => endpoint_settings::from_options(py, options),
        None => Err(PyTypeError::new_err("the endpoint's settings are missing")),
    }
}

fn connect_error(error: &ConnectError) -> PyErr {
    match error {
        ConnectError::TooManyConnections { .. } => PyOSError::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    }
}
