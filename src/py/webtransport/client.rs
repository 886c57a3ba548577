//! `WebTransportClient`: a client's connection for sessions alone.

use std::time::Instant;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::{PyTraverseError, PyVisit};
use uringcore_proto::h3::Field;
use uringcore_proto::quic::{self, Event};
use uringcore_proto::webtransport::{Client, Error, Handle, Request};

use super::limits::WebTransportLimits;
use super::registry::Registry;
use super::session::{Host, SessionCore, failed};
use crate::capi::cell::GilCell;
use crate::quic::{Attached, QuicConnectionCore};

/// WebTransport on a client's QUIC connection: its stream events go here. `transmit` is called after commands
/// on a loop that has to be told to send.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct WebTransportClient {
    quic: Py<QuicConnectionCore>,
    new_future: Py<PyAny>,
    limits: Py<WebTransportLimits>,
    state: GilCell<State>,
}

struct State {
    /// From the first event or command on, which is when QUIC's connection runs.
    client: Option<Client>,
    sessions: Registry,
    transmit: Option<Py<PyAny>>,
    is_over: bool,
}

#[pymethods]
impl WebTransportClient {
    #[new]
    #[pyo3(signature = (quic, new_future, limits, *, transmit = None))]
    fn new(
        quic: &Bound<'_, QuicConnectionCore>,
        new_future: Py<PyAny>,
        limits: Py<WebTransportLimits>,
        transmit: Option<Py<PyAny>>,
    ) -> PyResult<Py<Self>> {
        let py = quic.py();
        let state = State {
            client: None,
            sessions: Registry::default(),
            transmit,
            is_over: false,
        };
        let this = Self {
            quic: quic.clone().unbind(),
            new_future,
            limits,
            state: GilCell::new(state),
        };
        let this = Py::new(py, this)?;
        let object = this.clone_ref(py).into_any();
        let receive = Self::receive;
        quic.get().attach(py, Attached { object, receive });
        quic.get().command(py, quic::Command::ReadOnDemand)?;
        Ok(this)
    }

    /// Asks for a session, once the server's settings are there. Its receiver is told what comes of it.
    ///
    /// Raises `ValueError` for what makes the request malformed.
    fn connect(
        slf: &Bound<'_, Self>,
        authority: &str,
        path: &str,
        headers: Vec<(PyBackedBytes, PyBackedBytes)>,
        protocols: Vec<String>,
    ) -> PyResult<Py<SessionCore>> {
        let (py, this) = (slf.py(), slf.get());
        let mut fields: Vec<Field> = headers
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
            protocols,
        };
        let asked = this.run(py, |client, quic, now| client.connect(quic, request, now))?;
        let session_id = asked
            .unwrap_or(Err(Error::Gone))
            .map_err(|error| failed(py, &error))?;
        let host = Box::new(ClientHost(slf.clone().unbind()));
        let future = this.new_future.clone_ref(py);
        let arrivals = this.limits.get().arrivals();
        let core = SessionCore::new(py, host, session_id, None, future, arrivals)?;
        let kept = core.clone_ref(py);
        this.state
            .with(py, |state| state.sessions.add(session_id, kept));
        Ok(core)
    }

    /// The connection is over: nothing is told any more.
    fn closed(&self, py: Python<'_>) {
        let old = self.state.with(py, |state| {
            state.is_over = true;
            let sessions = std::mem::take(&mut state.sessions);
            (state.client.take(), sessions, state.transmit.take())
        });
        drop(old);
        self.quic.get().detach(py);
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.quic)?;
        visit.call(&self.new_future)?;
        self.state
            .traverse(|state| {
                visit.call(&state.transmit)?;
                state.sessions.traverse(&visit)
            })
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        let old = self.state.with(py, |state| {
            (std::mem::take(&mut state.sessions), state.transmit.take())
        });
        drop(old);
    }
}

impl WebTransportClient {
    /// Runs `run` on both halves of the connection, which begins with that; `None` when it is over, or has
    /// not begun, or its loop is closed.
    fn run<R>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut Client, &mut quic::Connection, Instant) -> R,
    ) -> PyResult<Option<R>> {
        let result = self.quic.get().running(py, |quic| {
            let now = Instant::now();
            self.state.with(py, |state| {
                if state.is_over {
                    return None;
                }
                let client = state.client.get_or_insert_with(|| {
                    Client::new(quic, self.limits.get().limits.clone(), now)
                });
                Some(run(client, quic, now))
            })
        })?;
        let transmit = self.state.with(py, |state| {
            state.transmit.as_ref().map(|call| call.clone_ref(py))
        });
        if let Some(transmit) = transmit {
            transmit.bind(py).call0()?;
        }
        Ok(result.flatten())
    }

    /// A turn's stream events.
    fn receive(object: &Bound<'_, PyAny>, events: Vec<Event>) -> PyResult<()> {
        let py = object.py();
        let this = object.cast::<Self>()?.get();
        this.run(py, |client, quic, now| {
            for event in events {
                client.handle(quic, event, now);
            }
        })?;
        this.dispatch(py)
    }

    /// Tells what has happened.
    fn dispatch(&self, py: Python<'_>) -> PyResult<()> {
        Registry::tell(py, || {
            self.state.with(py, |state| {
                let client = state.client.as_mut()?;
                let event = client.webtransport().poll_event()?;
                Some((state.sessions.find(py, &event), event.what))
            })
        })
    }
}

struct ClientHost(Py<WebTransportClient>);

impl Host for ClientHost {
    fn command(
        &self,
        py: Python<'_>,
        run: &mut dyn FnMut(Handle<'_>, &mut quic::Connection, Instant),
    ) -> PyResult<()> {
        let client = self.0.get();
        client.run(py, |client, quic, now| {
            run(client.webtransport(), quic, now);
        })?;
        client.dispatch(py)
    }

    fn dispatch(&self, py: Python<'_>) -> PyResult<()> {
        self.0.get().dispatch(py)
    }

    fn clone_ref(&self, py: Python<'_>) -> Box<dyn Host> {
        Box::new(Self(self.0.clone_ref(py)))
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.0)
    }
}
