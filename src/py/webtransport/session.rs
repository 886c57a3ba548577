//! `WebTransportSessionCore`: one session, between its connection and the program.

use std::time::Instant;

use bytes::Bytes;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyList};
use pyo3::{PyTraverseError, PyVisit};
use uringcore_h3::Field;
use uringcore_http::webtransport::{Draft, Error, EventKind, SessionCommands, SessionStats};
use uringcore_quic as quic;
use uringcore_quic::read_on_demand::Inbox;

use super::session_transport::SessionTransportAccess;
use crate::capi::bounded_arguments::List;
use crate::capi::gil_cell::GilCell;
use crate::streams::stream_manager::StreamManager;

/// The connection of a session, at a client or a server.
pub trait SessionConnection: Send + Sync {
    /// Calls `run` once, unless the connection or its loop has ended. Delivers the events that `run` causes before it
    /// returns.
    fn with_session(
        &self,
        py: Python<'_>,
        run: &mut dyn FnMut(SessionCommands<'_>, &mut quic::Connection, Instant),
    ) -> PyResult<()>;

    /// Lets the loop send the written data. Called when the program has written all that it has at present.
    fn written(&self, py: Python<'_>);

    /// Delivers pending events to the session objects that they belong to.
    fn dispatch(&self, py: Python<'_>) -> PyResult<()>;

    /// Makes another reference to the connection. The owner of each reference passes it to the garbage collector.
    fn clone_ref(&self, py: Python<'_>) -> Box<dyn SessionConnection>;

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError>;
}

/// A WebTransport session.
///
/// `set_receiver` sets the function that gets its events, as `receiver(what, ...)`. The values of `what` are
/// "accepted" with the headers of the response and the protocol, "refused" with the status and the headers,
/// "draining", "ended" with code, reason and True if a side has sent these, and "released" when the peer has
/// acknowledged our last message.
#[pyclass(
    frozen,
    weakref,
    name = "WebTransportSessionCore",
    module = "uringcore._uringcore"
)]
pub struct SessionCore {
    connection: Box<dyn SessionConnection>,
    session_id: u64,
    manager: Py<StreamManager>,
    state: GilCell<SessionState>,
}

struct SessionState {
    receiver: Option<Py<PyAny>>,
    /// Events that came before a receiver was set, such as the failure of a client's request.
    unreported: Vec<EventKind>,
    draft: Option<Draft>,
    /// The session's counters, copied when the session ended.
    stats: SessionStats,
}

type Headers = List<(PyBackedBytes, PyBackedBytes)>;

#[pymethods]
impl SessionCore {
    /// The streams and datagrams of the session.
    #[getter]
    fn manager(&self, py: Python<'_>) -> Py<StreamManager> {
        self.manager.clone_ref(py)
    }

    /// The ID of the session's CONNECT stream.
    #[getter]
    fn id(&self) -> u64 {
        self.session_id
    }

    /// The number of the negotiated draft.
    #[getter]
    fn draft(&self, py: Python<'_>) -> &'static str {
        let draft = self.state.with(py, |state| state.draft);
        draft.map_or("", Draft::name)
    }

    /// Sets the receiver of the session's events, and passes it the events from before.
    fn set_receiver(slf: &Bound<'_, Self>, receiver: Py<PyAny>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let (old, unreported) = this.state.with(py, |state| {
            let old = state.receiver.replace(receiver);
            (old, std::mem::take(&mut state.unreported))
        });
        drop(old);
        for what in unreported {
            this.handle_event(py, what)?;
        }
        this.connection.dispatch(py)
    }

    /// Accepts the session, at a server.
    #[pyo3(signature = (headers, protocol = None))]
    fn accept(&self, py: Python<'_>, headers: Headers, protocol: Option<&str>) -> PyResult<()> {
        self.answer(py, &headers, |handle, quic, id, fields, now| {
            handle.accept(quic, id, fields, protocol, now)
        })
    }

    /// Refuses the session with a status, at a server.
    fn refuse(&self, py: Python<'_>, status: u16, headers: Headers) -> PyResult<()> {
        self.answer(py, &headers, |handle, quic, id, fields, now| {
            handle.refuse(quic, id, status, fields, now)
        })
    }

    /// Closes the session with a code and a reason.
    fn close(&self, py: Python<'_>, code: u32, reason: &str) -> PyResult<()> {
        let id = self.session_id;
        self.connection
            .with_session(py, &mut |mut handle, quic, now| {
                handle.close(quic, id, code, reason, now);
            })
    }

    /// Asks the peer to end the session (WT_DRAIN_SESSION).
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        let id = self.session_id;
        self.connection
            .with_session(py, &mut |mut handle, quic, now| {
                handle.drain(quic, id, now);
            })
    }

    /// The counters of the session.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut now = None;
        self.connection.with_session(py, &mut |handle, _, _| {
            now = handle.stats(self.session_id);
        })?;
        let stats = now.unwrap_or_else(|| self.state.with(py, |state| state.stats));
        let dict = PyDict::new(py);
        for (name, value) in [
            ("streams_opened", stats.streams_opened[0]),
            ("uni_streams_opened", stats.streams_opened[1]),
            ("streams_accepted", stats.streams_accepted[0]),
            ("uni_streams_accepted", stats.streams_accepted[1]),
            ("streams_open", stats.streams_open),
            ("bytes_sent", stats.bytes_sent),
            ("bytes_received", stats.bytes_received),
            ("datagrams_sent", stats.datagrams_sent),
            ("datagrams_received", stats.datagrams_received),
        ] {
            dict.set_item(name, value)?;
        }
        let unread = self
            .manager
            .get()
            .inbox(py, |inbox| inbox.datagrams_dropped());
        dict.set_item("datagrams_dropped", stats.datagrams_dropped + unread)?;
        Ok(dict)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.connection.traverse(&visit)?;
        visit.call(&self.manager)?;
        self.state
            .traverse(|state| visit.call(&state.receiver))
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        drop(self.state.with(py, |state| state.receiver.take()));
    }
}

impl SessionCore {
    pub fn new(
        py: Python<'_>,
        connection: Box<dyn SessionConnection>,
        session_id: u64,
        draft: Option<Draft>,
        event_loop: &Bound<'_, PyAny>,
        inbox: Inbox,
    ) -> PyResult<Py<Self>> {
        let access = SessionTransportAccess {
            connection: connection.clone_ref(py),
            session_id,
        };
        let new_future = event_loop.getattr(intern!(py, "create_future"))?.unbind();
        let made_at = origin(event_loop)?;
        let manager =
            StreamManager::for_transport(Box::new(access), new_future, made_at, inbox, None);
        let manager = Py::new(py, manager)?;
        let state = SessionState {
            receiver: None,
            unreported: Vec::new(),
            draft,
            stats: SessionStats::default(),
        };
        let core = Self {
            connection,
            session_id,
            manager,
            state: GilCell::new(state),
        };
        Py::new(py, core)
    }

    /// Handles an event of the session.
    pub fn handle_event(&self, py: Python<'_>, what: EventKind) -> PyResult<()> {
        match what {
            EventKind::Quic(event) => self.manager.get().receive_events(py, |inbox, keys| {
                inbox.handle(event, |key| keys.push(key));
            }),
            EventKind::Opened { stream_id, .. } => {
                self.manager.get().receive_events(py, |inbox, keys| {
                    inbox.announced(stream_id, |key| keys.push(key));
                })
            }
            what => self.notify_receiver(py, what),
        }
    }

    /// Stores the counters of a session that has ended.
    pub fn keep_stats(&self, py: Python<'_>, stats: SessionStats) {
        let stats = SessionStats {
            streams_open: 0,
            ..stats
        };
        self.state.with(py, |state| state.stats = stats);
    }

    fn notify_receiver(&self, py: Python<'_>, what: EventKind) -> PyResult<()> {
        let receiver = self.state.with(py, |state| {
            state.receiver.as_ref().map(|call| call.clone_ref(py))
        });
        let Some(receiver) = receiver else {
            self.state.with(py, |state| state.unreported.push(what));
            return Ok(());
        };
        let args = match what {
            EventKind::Accepted {
                fields,
                protocol,
                draft,
            } => {
                self.state.with(py, |state| state.draft = Some(draft));
                ("accepted", headers(py, &fields)?, protocol).into_pyobject(py)?
            }
            EventKind::Refused { status, fields } => {
                ("refused", status, headers(py, &fields)?).into_pyobject(py)?
            }
            EventKind::Draining => ("draining",).into_pyobject(py)?,
            EventKind::Released => ("released",).into_pyobject(py)?,
            EventKind::Ended {
                code,
                reason,
                is_clean,
                stats,
            } => {
                self.keep_stats(py, stats);
                ("ended", code, reason, is_clean).into_pyobject(py)?
            }
            EventKind::Quic(_) | EventKind::Opened { .. } => return Ok(()),
        };
        receiver.bind(py).call1(args).map(drop)
    }

    fn answer(
        &self,
        py: Python<'_>,
        headers: &Headers,
        answer: impl Fn(
            &mut SessionCommands<'_>,
            &mut quic::Connection,
            u64,
            &[(&[u8], &[u8])],
            Instant,
        ) -> Result<(), Error>,
    ) -> PyResult<()> {
        let fields: Vec<(&[u8], &[u8])> = headers
            .0
            .iter()
            .map(|(name, value)| (&name[..], &value[..]))
            .collect();
        let mut answered = Err(Error::Gone);
        self.connection
            .with_session(py, &mut |mut handle, quic, now| {
                answered = answer(&mut handle, quic, self.session_id, &fields, now);
            })?;
        answered.map_err(|error| failed(py, &error))
    }
}

/// The function that returns the line of the program that makes a stream. `None` without debug mode.
fn origin(event_loop: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
    let py = event_loop.py();
    if !event_loop
        .call_method0(intern!(py, "get_debug"))?
        .is_truthy()?
    {
        return Ok(None);
    }
    let made_at = py
        .import(intern!(py, "uringcore.quic._typed_api.unclosed_objects"))?
        .getattr(intern!(py, "made_at"))?;
    let partial = py.import("functools")?.getattr("partial")?;
    Ok(Some(partial.call1((made_at, event_loop))?.unbind()))
}

/// Makes the exception for a refused command.
pub fn failed(py: Python<'_>, error: &Error) -> PyErr {
    match error {
        Error::Invalid(_) | Error::TooLarge { .. } => PyValueError::new_err(error.to_string()),
        Error::Gone | Error::GoingAway | Error::TooMany { .. } => {
            let made = py
                .import(intern!(py, "uringcore.webtransport._errors"))
                .and_then(|module| module.getattr(intern!(py, "WebTransportError")))
                .and_then(|class| class.call1((error.to_string(),)));
            made.map_or_else(|error| error, PyErr::from_value)
        }
    }
}

fn headers<'py>(py: Python<'py>, fields: &[Field]) -> PyResult<Bound<'py, PyList>> {
    let pair = |(name, value): &(Bytes, Bytes)| (PyBytes::new(py, name), PyBytes::new(py, value));
    PyList::new(py, fields.iter().map(pair))
}
