//! `WebTransportClient`: a client's HTTP/3 connection that carries only WebTransport sessions.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::{PyTraverseError, PyVisit};
use uringcore_h3::Field;
use uringcore_http::webtransport::{Client, Error, Request, SessionCommands};
use uringcore_limits::memory_budget::Charge;
use uringcore_quic::{self as quic, Event};

use super::session::{SessionConnection, SessionCore, failed};
use super::session_limits::WebTransportLimits;
use super::session_registry::SessionRegistry;
use crate::capi::bounded_arguments::List;
use crate::capi::gil_cell::GilCell;
use crate::quic::{QuicConnectionCore, StreamProtocol};

/// WebTransport on a client's QUIC connection, whose stream events it handles.
///
/// `on_due` is called when a time-out starts; from then on `tick` must be called each second, until it returns False.
/// `transmit` is called after commands, on a loop that does not send by itself.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct WebTransportClient {
    quic: Py<QuicConnectionCore>,
    event_loop: Py<PyAny>,
    limits: Py<WebTransportLimits>,
    state: GilCell<ClientState>,
}

struct ClientState {
    /// The HTTP/3 connection, which is made at the first event or command when the QUIC connection is running.
    client: Option<Client>,
    sessions: SessionRegistry,
    on_due: Option<Py<PyAny>>,
    /// `on_due` was called, and `tick` has not returned False since.
    is_ticking: bool,
    /// `on_due` has to be called now.
    calls_on_due: bool,
    transmit: Option<Py<PyAny>>,
    is_over: bool,
}

#[pymethods]
impl WebTransportClient {
    #[new]
    #[pyo3(signature = (quic, event_loop, limits, *, on_due, transmit = None))]
    fn new(
        quic: &Bound<'_, QuicConnectionCore>,
        event_loop: Py<PyAny>,
        limits: Py<WebTransportLimits>,
        on_due: Py<PyAny>,
        transmit: Option<Py<PyAny>>,
    ) -> PyResult<Py<Self>> {
        let py = quic.py();
        let state = ClientState {
            client: None,
            sessions: SessionRegistry::default(),
            on_due: Some(on_due),
            is_ticking: false,
            calls_on_due: false,
            transmit,
            is_over: false,
        };
        let this = Self {
            quic: quic.clone().unbind(),
            event_loop,
            limits,
            state: GilCell::new(state),
        };
        let this = Py::new(py, this)?;
        let streams = Streams(this.clone_ref(py));
        quic.get().attach(py, Arc::new(streams));
        quic.get().command(py, quic::Command::ReadOnDemand)?;
        Ok(this)
    }

    /// Requests a session when the server's settings have arrived. The session's receiver gets the result.
    ///
    /// Raises `ValueError` if the arguments make the request malformed.
    fn connect(
        slf: &Bound<'_, Self>,
        authority: &str,
        path: &str,
        headers: List<(PyBackedBytes, PyBackedBytes)>,
        protocols: List<String>,
    ) -> PyResult<Py<SessionCore>> {
        let (py, this) = (slf.py(), slf.get());
        let mut fields: Vec<Field> = headers
            .0
            .into_iter()
            .map(|(name, value)| {
                (
                    Bytes::copy_from_slice(&name),
                    Bytes::copy_from_slice(&value),
                )
            })
            .collect();
        let origin = fields.iter().position(|(name, _)| &**name == b"origin");
        let origin = origin.map(|at| fields.remove(at).1);
        let request = Request {
            authority: Bytes::copy_from_slice(authority.as_bytes()),
            path: Bytes::copy_from_slice(path.as_bytes()),
            origin,
            fields,
            protocols: protocols.0,
        };
        let asked = this.run(py, |client, quic, now| client.connect(quic, request, now))?;
        let session_id = asked
            .unwrap_or(Err(Error::Gone))
            .map_err(|error| failed(py, &error))?;
        let connection = Box::new(ClientSessionConnection(slf.clone().unbind()));
        let event_loop = this.event_loop.bind(py);
        let inbox = this.limits.get().inbox(Charge::default());
        let core = SessionCore::new(py, connection, session_id, None, event_loop, inbox)?;
        let kept = core.clone_ref(py);
        this.state
            .with(py, |state| state.sessions.add(session_id, kept));
        Ok(core)
    }

    /// Ends everything that has exceeded its time-out. Returns True while a time-out is running.
    fn tick(&self, py: Python<'_>) -> PyResult<bool> {
        self.state.with(py, |state| state.is_ticking = true);
        let is_due = self.run(py, |client, quic, now| {
            client.tick(quic, now);
            client.is_due()
        })?;
        let is_due = is_due.unwrap_or(false);
        self.state.with(py, |state| state.is_ticking = is_due);
        self.dispatch(py)?;
        Ok(is_due)
    }

    /// Ends the object, because the connection has ended. No events are delivered afterwards.
    fn closed(&self, py: Python<'_>) {
        let last = self.state.with(py, |state| {
            let client = state.client.as_mut()?;
            Some(state.sessions.last_stats(py, &client.webtransport()))
        });
        last.unwrap_or_default().keep(py);
        let old = self.state.with(py, |state| {
            state.is_over = true;
            let sessions = std::mem::take(&mut state.sessions);
            let calls = (state.on_due.take(), state.transmit.take());
            (state.client.take(), sessions, calls)
        });
        drop(old);
        self.quic.get().detach(py);
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.quic)?;
        visit.call(&self.event_loop)?;
        self.state
            .traverse(|state| {
                visit.call(&state.on_due)?;
                visit.call(&state.transmit)?;
                state.sessions.traverse(&visit)
            })
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        let old = self.state.with(py, |state| {
            let calls = (state.on_due.take(), state.transmit.take());
            (std::mem::take(&mut state.sessions), calls)
        });
        drop(old);
    }
}

impl WebTransportClient {
    /// Calls `run` with the HTTP/3 client and the QUIC connection. The first call makes the client. `None` if the
    /// connection has not started or has ended, or if its loop is closed.
    fn run<R>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut Client, &mut quic::Connection, Instant) -> R,
    ) -> PyResult<Option<R>> {
        let result = self.quic.get().running(py, |quic| {
            let now = Instant::now();
            self.with_client(py, quic, now, run)
        })?;
        self.follow_up(py)?;
        Ok(result.flatten())
    }

    /// Calls `run` with the HTTP/3 client, which the first call makes. Runs no Python code.
    fn with_client<R>(
        &self,
        py: Python<'_>,
        quic: &mut quic::Connection,
        now: Instant,
        run: impl FnOnce(&mut Client, &mut quic::Connection, Instant) -> R,
    ) -> Option<R> {
        self.state.with(py, |state| {
            if state.is_over {
                return None;
            }
            let client = state
                .client
                .get_or_insert_with(|| Client::new(quic, self.limits.get().limits.clone(), now));
            let result = run(client, quic, now);
            let begins = client.is_due() && !state.is_ticking;
            state.is_ticking |= begins;
            state.calls_on_due |= begins;
            Some(result)
        })
    }

    /// Calls `on_due` and `transmit` if the last change of the connection's state requires it.
    fn follow_up(&self, py: Python<'_>) -> PyResult<()> {
        let (on_due, transmit) = self.state.with(py, |state| {
            let clone = |call: &Option<Py<PyAny>>| call.as_ref().map(|call| call.clone_ref(py));
            let begins = std::mem::take(&mut state.calls_on_due);
            (
                clone(&state.on_due).filter(|_| begins),
                clone(&state.transmit),
            )
        });
        if let Some(on_due) = on_due {
            on_due.bind(py).call0()?;
        }
        if let Some(transmit) = transmit {
            transmit.bind(py).call0()?;
        }
        Ok(())
    }

    /// Delivers pending events to the session objects that they belong to.
    fn dispatch(&self, py: Python<'_>) -> PyResult<()> {
        SessionRegistry::deliver(py, || {
            self.state.with(py, |state| {
                let client = state.client.as_mut()?;
                let event = client.webtransport().poll_event()?;
                Some((state.sessions.find(py, &event), event.what))
            })
        })
    }
}

/// Makes a client the protocol that is attached to a connection's streams.
struct Streams(Py<WebTransportClient>);

impl StreamProtocol for Streams {
    fn handle(&self, py: Python<'_>, quic: &mut quic::Connection, event: Event, now: Instant) {
        self.0
            .get()
            .with_client(py, quic, now, |client, quic, now| {
                client.handle(quic, event, now);
            });
    }

    fn deliver(&self, py: Python<'_>) -> PyResult<()> {
        let client = self.0.get();
        client.follow_up(py)?;
        client.dispatch(py)
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.0)
    }
}

struct ClientSessionConnection(Py<WebTransportClient>);

impl SessionConnection for ClientSessionConnection {
    fn with_session(
        &self,
        py: Python<'_>,
        run: &mut dyn FnMut(SessionCommands<'_>, &mut quic::Connection, Instant),
    ) -> PyResult<()> {
        let client = self.0.get();
        client.run(py, |client, quic, now| {
            run(client.webtransport(), quic, now);
        })?;
        client.dispatch(py)
    }

    fn written(&self, py: Python<'_>) {
        self.0.get().quic.get().written(py);
    }

    fn dispatch(&self, py: Python<'_>) -> PyResult<()> {
        self.0.get().dispatch(py)
    }

    fn clone_ref(&self, py: Python<'_>) -> Box<dyn SessionConnection> {
        Box::new(Self(self.0.clone_ref(py)))
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.0)
    }
}
