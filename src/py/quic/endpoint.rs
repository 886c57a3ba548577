//! `QuicEndpoint`: one UDP socket's worth of connections, on a loop's engine or on its own.
//!
//! | file | noun |
//! | --- | --- |
//! | `home` | where the state machines live, and how they are reached |
//! | `deliver` | engine events to Python calls, one list a connection and turn |
//! | `sockets` | further sockets of an endpoint, and a connection's move to one |
//! | `store` | calls of the program's session store |
//!
//! Here: connecting, closing, and moving datagrams by hand. Not here: the socket's own work (the engine's
//! `quic_socket`) and the commands of a connection (`connection`).
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

use super::clock::Clock;
use super::connection::QuicConnectionCore;
use super::endpoint_settings;
use super::setup::{QuicClientSetup, QuicServerSetup};
use crate::capi::address;
use crate::capi::cell::GilCell;
use crate::capi::code;
use crate::capi::context;
use crate::capi::error;
use crate::event_loop::loop_core::LoopCore;

mod deliver;
mod home;
mod sockets;
mod store;

use deliver::FirstError;
use home::{EndpointState, Home, Own};

/// One UDP socket with its QUIC connections.
#[pyclass(frozen, weakref, module = "uringcore._uringcore")]
pub struct QuicEndpoint {
    home: Home,
    state: GilCell<EndpointState>,
}

impl QuicEndpoint {
    /// An endpoint of one connection without a loop, whose first ID may be named, and at a server the ClientHello.
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
            tells_connection_ids: true,
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
        let endpoint = Endpoint::new(settings, setup);
        let own = Own {
            endpoint,
            clock: now.map_or_else(Clock::new, Clock::running),
            now: Instant::now(),
            is_live: now.is_some(),
            has_begun: false,
        };
        Ok(Self {
            home: Home::Own(Box::new(GilCell::new(own))),
            state: GilCell::new(EndpointState::new(py, server)),
        })
    }

    /// Begins a client's connection; its events go to `connection` from now on.
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
            .with_protocol(py, |endpoint, now| {
                let key = endpoint.connect(now, &setup.setup, remote, server_name)?;
                if let Some(connection) = endpoint.connection(key) {
                    connection.set_watermarks(watermarks.0, watermarks.1);
                }
                Ok(key)
            })?
            .map_err(|error| connect_error(&error))?;
        if let Home::Own(cell) = &self.home {
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

    /// Takes charge of an accepted connection's events.
    pub fn adopt(&self, py: Python<'_>, key: ConnectionKey, connection: Py<QuicConnectionCore>) {
        let old = self
            .state
            .with(py, |state| state.connections.insert(key, connection));
        drop(old);
    }

    /// `on_accept(endpoint, key, alpn)` makes the objects of accepted connections.
    pub fn set_on_accept(&self, py: Python<'_>, on_accept: Py<PyAny>) {
        let old = self
            .state
            .with(py, |state| state.on_accept.replace(on_accept));
        drop(old);
    }

    /// Hands out what has to go out now: the datagram, its address, and the socket to send from.
    fn each_to_send<'py>(
        &self,
        py: Python<'py>,
        now: f64,
        mut take: impl FnMut(Bound<'py, PyBytes>, &Bound<'py, PyTuple>, u32) -> PyResult<()>,
    ) -> PyResult<()> {
        let Home::Own(cell) = &self.home else {
            return Ok(());
        };
        self.set_time(py, Some(now));
        cell.with(py, |own| own.has_begun = false);
        let mut buffer = Vec::new();
        let mut last: Option<(std::net::SocketAddr, Bound<'py, PyTuple>)> = None;
        while let Some(sent) = cell.with(py, |own| own.endpoint.poll_transmit(own.now, &mut buffer))
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
    /// Joins a bound UDP socket, which stays the caller's to close once `on_closed` was called.
    #[staticmethod]
    #[pyo3(signature = (owner, fd, *, server = None, on_accept = None, on_closed = None, when_negotiated = false, **options))]
    #[expect(clippy::too_many_arguments)] // They are keywords in Python.
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
        let endpoint = Endpoint::new(settings, server.map(|server| server.setup.clone()));
        let context = context::copy_current(py)?;
        let opened = owner.get().with_engine(py, |engine| {
            engine.open_quic(|_, token| {
                uringcore_engine::QuicSocket::new(SocketFd::Lent(fd), endpoint, token)
            })
        })?;
        let key = opened.map_err(|error| error::io_error(&error))?;
        let state = EndpointState {
            on_accept,
            when_negotiated,
            on_closed,
            ..EndpointState::new(py, server)
        };
        let home = Home::Loop {
            owner: owner.clone().unbind(),
            key,
            context,
        };
        let object = Py::new(
            py,
            Self {
                home,
                state: GilCell::new(state),
            },
        )?;
        let held = object.clone_ref(py).into_any();
        owner
            .get()
            .hosts
            .with(py, |hosts| hosts.quic.insert(key, held));
        Ok(object)
    }

    /// An endpoint without a loop: the caller moves the datagrams and tells the time. With `now` the
    /// clock is this machine's, and commands need not wait for the next time told.
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

    /// The caller's socket is connected: clients do not move to another address of their server's.
    fn keep_to_peer(&self, py: Python<'_>) -> PyResult<()> {
        self.with_protocol(py, |endpoint, _| endpoint.keep_to_peer())
    }

    /// Takes a further bound UDP socket, whose descriptor the caller has detached, and returns its
    /// number. It is closed with the endpoint, or by `remove_socket`.
    fn add_socket(&self, py: Python<'_>, fd: RawFd) -> PyResult<u32> {
        self.take_socket(py, fd)
    }

    /// Closes a further socket.
    fn remove_socket(&self, py: Python<'_>, number: u32) -> PyResult<()> {
        self.give_up_socket(py, number)
    }

    /// Connections that are not yet forgotten.
    #[getter]
    fn connections(&self, py: Python<'_>) -> PyResult<usize> {
        self.with_protocol(py, |endpoint, _| endpoint.len())
    }

    /// New connections are accepted with `server` from now on.
    fn set_server(&self, py: Python<'_>, server: &Bound<'_, QuicServerSetup>) -> PyResult<()> {
        let server = server.get();
        self.with_protocol(py, |endpoint, _| {
            endpoint.set_server(Some(server.setup.clone()));
        })?;
        let old = self.state.with(py, |state| {
            state.watermarks = Some(server.shared.watermarks);
            // Logs that no connection writes to any more.
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

    /// Called on the thread of a session store that may block, when it has answered: it has to see to
    /// it that `deliver_events` is called soon. Without it `get_timer` says when to look.
    fn set_on_answer(&self, py: Python<'_>, on_answer: Py<PyAny>) {
        let old = self
            .state
            .with(py, |state| state.on_answer.replace(on_answer));
        drop(old);
    }

    /// Called as `on_error(message, exception)` with what receivers, handlers and session stores raise.
    /// Without it the first error leaves whatever call delivered the events, and those that come on top
    /// go to `sys.unraisablehook`. On a loop its exception handler is called, and this is never.
    fn set_on_error(&self, py: Python<'_>, on_error: Py<PyAny>) {
        let old = self
            .state
            .with(py, |state| state.on_error.replace(on_error));
        drop(old);
    }

    /// Refuses further connections (CONNECTION_REFUSED); those that are open go on.
    fn stop_accepting(&self, py: Python<'_>) -> PyResult<()> {
        self.with_protocol(py, |endpoint, _| endpoint.refuse_incoming())
    }

    /// The same, and on a loop the endpoint ends with its last connection. True: the socket `fd`,
    /// which was lent, is now the endpoint's to close, and the caller detaches it.
    #[pyo3(signature = (fd = None))]
    fn drain(&self, py: Python<'_>, fd: Option<RawFd>) -> PyResult<bool> {
        match &self.home {
            Home::Own(cell) => {
                cell.with(py, |own| own.endpoint.refuse_incoming());
                Ok(false)
            }
            Home::Loop { .. } => self.end_on_loop(py, fd, uringcore_engine::QuicSocket::drain),
        }
    }

    /// Closes all connections with an application error code; the endpoint stays open.
    #[pyo3(
        signature = (error_code = 0, reason_phrase = String::new()),
        text_signature = "($self, error_code=0, reason_phrase='')"
    )]
    fn close_connections(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = code::error_code)] error_code: u64,
        #[pyo3(from_py_with = code::reason_phrase)] reason_phrase: String,
    ) -> PyResult<()> {
        let reason = reason_phrase.as_bytes();
        self.with_protocol(py, |endpoint, now| {
            endpoint.close_all(now, error_code, reason)
        })
    }

    /// Closes all connections with an application error code, and the socket when the peers have
    /// heard of it. `fd` and the answer as for `drain`.
    #[pyo3(
        signature = (error_code = 0, reason_phrase = String::new(), fd = None),
        text_signature = "($self, error_code=0, reason_phrase='', fd=None)"
    )]
    fn close(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = code::error_code)] error_code: u64,
        #[pyo3(from_py_with = code::reason_phrase)] reason_phrase: String,
        fd: Option<RawFd>,
    ) -> PyResult<bool> {
        let reason = reason_phrase.as_bytes();
        match &self.home {
            Home::Own(cell) => {
                cell.with(py, |own| {
                    let now = own.now();
                    own.endpoint.refuse_incoming();
                    own.endpoint.close_all(now, error_code, reason);
                });
                Ok(false)
            }
            Home::Loop { .. } => self.end_on_loop(py, fd, |endpoint| {
                endpoint.close(Instant::now(), error_code, reason);
            }),
        }
    }

    /// True if every peer has heard that it is over, or has had the time to.
    #[getter]
    fn may_end(&self, py: Python<'_>) -> PyResult<bool> {
        match &self.home {
            Home::Own(cell) => Ok(cell.with(py, |own| own.endpoint.may_end())),
            // One that has ended is gone some callbacks before its host hears of it.
            Home::Loop { owner, key, .. } => owner.get().with_engine(py, |engine| {
                let endpoint = engine.quic(*key);
                endpoint.is_none_or(|endpoint| endpoint.protocol().may_end())
            }),
        }
    }

    /// Counters: of the protocol, and on a loop of the socket.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (stats, connections, handshakes) = self.with_protocol(py, |endpoint, _| {
            (endpoint.stats(), endpoint.len(), endpoint.handshakes())
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
        if let Home::Loop { owner, key, .. } = &self.home {
            let socket = owner.get().with_engine(py, |engine| {
                engine.quic(*key).map(|endpoint| endpoint.stats())
            })?;
            if let Some(socket) = socket {
                dict.set_item("socket_receives", socket.receives)?;
                dict.set_item("socket_sends", socket.sends)?;
                dict.set_item("socket_send_errors", socket.send_errors)?;
                dict.set_item("socket_receive_errors", socket.receive_errors)?;
                dict.set_item("socket_truncated", socket.truncated)?;
            }
        }
        Ok(dict)
    }

    // Without a loop -----------------------------------------------------------------------------

    /// Takes one datagram in, from the caller's socket of this number, and delivers what it causes.
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
        let Home::Own(cell) = &this.home else {
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
                own.endpoint.handle_datagram_at(own.now, socket, meta, data);
            });
        }
        Self::deliver(slf)
    }

    /// What has to go out now, as `(data, address)`. Empty on a loop, which sends by itself.
    pub fn datagrams_to_send<'py>(
        &self,
        py: Python<'py>,
        now: f64,
    ) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        self.each_to_send(py, now, |data, remote, _| list.append((data, remote)))?;
        Ok(list)
    }

    /// The same as `(data, address, socket)`, with the number of the caller's socket to send from.
    fn datagrams_by_socket<'py>(&self, py: Python<'py>, now: f64) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        self.each_to_send(py, now, |data, remote, socket| {
            list.append((data, remote, socket))
        })?;
        Ok(list)
    }

    /// When `handle_timer` wants to be called, in the caller's seconds. At once while a client's first
    /// packet waits: as with aioquic, programs sleep by the timer before they send for the first time.
    pub fn get_timer(&self, py: Python<'_>) -> Option<f64> {
        let Home::Own(cell) = &self.home else {
            return None;
        };
        cell.with(py, |own| {
            let at = match own.has_begun {
                true => Some(own.now),
                false => own.endpoint.next_timeout(),
            };
            let at = at.into_iter().chain(self.answers_due(py, own));
            at.min().map(|at| own.clock.seconds(at))
        })
    }

    /// It is `now`: handles what is due and delivers what that causes.
    pub fn handle_timer(slf: &Bound<'_, Self>, now: f64) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        if let Home::Own(cell) = &this.home {
            this.set_time(py, Some(now));
            cell.with(py, |own| own.endpoint.handle_timeout(own.now));
        }
        Self::deliver(slf)
    }

    /// Sends a datagram of the program's own to a numeric address, which is about no connection.
    fn send_datagram(&self, py: Python<'_>, data: &[u8], addr: &Bound<'_, PyAny>) -> PyResult<()> {
        let remote = address::inet_from_python(addr)?;
        self.with_protocol(py, |endpoint, _| {
            endpoint.send_datagram(remote, data.to_vec())
        })
    }

    /// The network said that nobody is at `addr`: handshakes with it end.
    pub fn unreachable(
        slf: &Bound<'_, Self>,
        addr: &Bound<'_, PyAny>,
        errno: i32,
        now: f64,
    ) -> PyResult<()> {
        let remote = address::inet_from_python(addr)?;
        slf.get().set_time(slf.py(), Some(now));
        slf.get().with_protocol(slf.py(), |endpoint, now| {
            endpoint.handle_unreachable(now, remote, errno);
        })?;
        Self::deliver(slf)
    }

    /// Delivers what commands have caused, e.g. the end of a connection that was closed. On a loop,
    /// whose turn does that, it only lets the handshakes go on that a session store has answered about.
    pub fn deliver_events(slf: &Bound<'_, Self>) -> PyResult<()> {
        match slf.get().home {
            Home::Own(_) => Self::deliver(slf),
            Home::Loop { .. } => {
                let mut first_error = FirstError::default();
                Self::take_answers(slf, &mut first_error)?;
                first_error.raise()
            }
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Home::Loop { owner, context, .. } = &self.home {
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
