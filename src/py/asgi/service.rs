//! The state that all requests of a server share: the application, the scope's common part, and the functions for
//! reports.
//!
//! A request without X-Forwarded fields goes straight to the application inside uvicorn's `ProxyHeadersMiddleware`
//! (`direct`). The middleware would only pass it on, at the cost of a coroutine and a look at every header.

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PySet, PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use super::header_cache::HeaderCache;
use super::request::Request;
use super::scope;
use super::websocket_limits::WebSocketLimits;
use crate::capi::bounded_arguments::List;
use crate::capi::gil_cell::GilCell;
use crate::event_loop::loop_core::LoopCore;
#[cfg(Py_3_12)]
use crate::event_loop::tasks;

/// One server's application, and the state that its requests share.
///
/// `scope` is the beginning of every scope; `state` and `extensions` are copied into each. `tasks` is the set of
/// tasks that run applications. `report(kind, message, what)` is called for faults. The kinds are "application" with
/// the exception or None, "departure" with the address of a client that has gone and the exception that its
/// application raised after that, "client" with its address, "fault" with an exception of the server's own code,
/// "load" with None, and "debug" with an object that an application wants to log. `log_access(scope, status)`, if
/// given, is called for every response that begins. `overloaded()`, if given, is called before an application is
/// started. `direct`, if given, is called instead of the application for requests without X-Forwarded fields: it is
/// the application without the layer that handles those. `websockets` has the limits of each WebSocket, if the server
/// accepts them.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct AsgiService {
    pub application: Py<PyAny>,
    /// Called for requests without X-Forwarded fields.
    pub direct: Py<PyAny>,
    pub event_loop: Py<PyAny>,
    #[cfg(Py_3_12)]
    pub task_keywords: Py<PyDict>,
    pub template: Py<PyDict>,
    pub root_path: Option<RootPath>,
    pub app_state: Py<PyDict>,
    pub extensions: Py<PyDict>,
    pub tasks: Py<PySet>,
    pub report: Py<PyAny>,
    pub log_access: Option<Py<PyAny>>,
    pub overloaded: Option<Py<PyAny>>,
    /// Every application begins in an empty context instead of a copy of the server's.
    pub fresh_context: bool,
    /// If absent, no request is a WebSocket.
    pub websockets: Option<Py<WebSocketLimits>>,
    pub lines: GilCell<HeaderCache>,
    changing: GilCell<Changing>,
}

/// The cause of a fault.
pub enum Blame<'a, 'py> {
    /// An application failed, with the exception that it raised, if any.
    Application(Option<PyErr>),
    /// An application raised this after the client at this address had gone. Clients can cause it at any rate.
    Departure(&'a Bound<'py, PyAny>, PyErr),
    /// A client failed, with its address.
    Client(&'a Bound<'py, PyAny>),
    /// The server's own code, which raised this.
    Server(PyErr),
    Load,
    /// No fault: an object that an application wants to log.
    Debug(&'a Bound<'py, PyAny>),
}

/// The prefix of every path.
pub struct RootPath {
    pub text: Py<PyString>,
    pub raw: Py<PyBytes>,
}

#[derive(Default)]
struct Changing {
    /// Fields of every response.
    default_headers: Vec<Line>,
    /// Requests that were answered since the last call.
    answered: u64,
    /// Responses whose head waits for content, until the end of the turn.
    held: Vec<Py<Request>>,
    /// A flush at the end of the turn is scheduled.
    will_flush: bool,
}

/// A field line of the server.
pub type Line = (Py<PyBytes>, Py<PyBytes>);

#[pymethods]
impl AsgiService {
    #[new]
    #[pyo3(signature = (
        application, *, event_loop, scope, root_path, raw_root_path, state, extensions, tasks, report,
        log_access = None, overloaded = None, fresh_context = false, websockets = None, direct = None,
    ))]
    #[expect(clippy::too_many_arguments)] // Keyword arguments in Python.
    fn new(
        application: Py<PyAny>,
        event_loop: &Bound<'_, PyAny>,
        scope: &Bound<'_, PyDict>,
        root_path: &Bound<'_, PyString>,
        raw_root_path: Py<PyBytes>,
        state: Py<PyDict>,
        extensions: Py<PyDict>,
        tasks: Py<PySet>,
        report: Py<PyAny>,
        log_access: Option<Py<PyAny>>,
        overloaded: Option<Py<PyAny>>,
        fresh_context: bool,
        websockets: Option<Py<WebSocketLimits>>,
        direct: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        Ok(Self {
            direct: direct.unwrap_or_else(|| application.clone_ref(event_loop.py())),
            application,
            event_loop: event_loop.clone().unbind(),
            #[cfg(Py_3_12)]
            task_keywords: tasks::eager_keywords(event_loop)?,
            template: scope::template(scope)?,
            root_path: (!root_path.to_str()?.is_empty()).then(|| RootPath {
                text: root_path.clone().unbind(),
                raw: raw_root_path,
            }),
            app_state: state,
            extensions,
            tasks,
            report,
            log_access,
            overloaded,
            fresh_context,
            websockets,
            lines: GilCell::new(HeaderCache::new()),
            changing: GilCell::new(Changing::default()),
        })
    }

    /// The fields that every response begins with, as pairs of bytes.
    fn set_default_headers(&self, py: Python<'_>, headers: List<Line>) {
        let old = self.changing.with(py, |changing| {
            std::mem::replace(&mut changing.default_headers, headers.0)
        });
        drop(old);
    }

    /// The number of requests that were answered since the last call.
    fn take_answered(&self, py: Python<'_>) -> u64 {
        self.changing
            .with(py, |changing| std::mem::take(&mut changing.answered))
    }

    /// Sends the heads of responses whose content has not come with them.
    fn flush(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let held = slf.get().changing.with(py, |changing| {
            changing.will_flush = false;
            std::mem::take(&mut changing.held)
        });
        let release = |request: Py<Request>| {
            if !request.get().holds_head(py) {
                return Ok(());
            }
            let released = Request::release_head(request.bind(py));
            request.get().written(py);
            released
        };
        held.into_iter().map(release).fold(Ok(()), Result::and)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.application)?;
        visit.call(&self.direct)?;
        visit.call(&self.event_loop)?;
        #[cfg(Py_3_12)]
        visit.call(&self.task_keywords)?;
        visit.call(&self.template)?;
        visit.call(&self.app_state)?;
        visit.call(&self.extensions)?;
        visit.call(&self.tasks)?;
        visit.call(&self.report)?;
        visit.call(&self.log_access)?;
        visit.call(&self.overloaded)?;
        self.changing
            .traverse(|changing| {
                changing
                    .held
                    .iter()
                    .try_for_each(|request| visit.call(request))
            })
            .unwrap_or(Ok(()))
    }
}

impl AsgiService {
    /// The fields of every response, with capacity for so many others.
    pub fn default_headers(&self, py: Python<'_>, others: usize) -> Vec<Line> {
        self.changing.with(py, |changing| {
            let line = |(name, value): &Line| (name.clone_ref(py), value.clone_ref(py));
            let mut lines = Vec::with_capacity(changing.default_headers.len() + others);
            lines.extend(changing.default_headers.iter().map(line));
            lines
        })
    }

    pub fn count_answered(&self, py: Python<'_>) {
        self.changing.with(py, |changing| changing.answered += 1);
    }

    /// Holds a response's head until its content comes. At the end of the turn it is sent alone.
    pub fn hold(slf: &Bound<'_, Self>, request: Py<Request>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let is_first = this.changing.with(py, |changing| {
            changing.held.push(request);
            !std::mem::replace(&mut changing.will_flush, true)
        });
        if is_first {
            let flush = slf.getattr(intern!(py, "flush"))?;
            this.event_loop
                .bind(py)
                .call_method1(intern!(py, "call_soon"), (flush,))?;
        }
        Ok(())
    }

    /// While events are delivered, heads are held until the end of the delivery: [`Delivery`]'s drop.
    pub fn begin_delivery<'a, 'py>(slf: &'a Bound<'py, Self>) -> Delivery<'a, 'py> {
        let was_on = slf.get().changing.with(slf.py(), |changing| {
            std::mem::replace(&mut changing.will_flush, true)
        });
        Delivery {
            service: slf,
            is_outermost: !was_on,
        }
    }

    pub fn is_overloaded(&self, py: Python<'_>) -> PyResult<bool> {
        match &self.overloaded {
            Some(overloaded) => overloaded.bind(py).call0()?.is_truthy(),
            None => Ok(false),
        }
    }

    /// A future of the loop.
    pub fn new_future<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let event_loop = self.event_loop.bind(py);
        match event_loop.cast::<LoopCore>() {
            Ok(core) => crate::event_loop::tasks::new_future(core),
            Err(_) => event_loop.call_method0(intern!(py, "create_future")),
        }
    }

    /// Reports a fault to the server. If the server's own function raises, the exception goes to `sys.unraisablehook`.
    pub fn tell(&self, py: Python<'_>, blame: Blame<'_, '_>, message: &str) {
        let (kind, what) = match blame {
            Blame::Application(error) => {
                let error = error.map(|error| error.into_value(py).into_any());
                ("application", error.unwrap_or_else(|| py.None()))
            }
            Blame::Departure(address, error) => {
                let pair = (address, error.into_value(py)).into_pyobject(py);
                (
                    "departure",
                    pair.map_or_else(|_| py.None(), |pair| pair.into_any().unbind()),
                )
            }
            Blame::Client(address) => ("client", address.clone().unbind()),
            Blame::Server(error) => ("fault", error.into_value(py).into_any()),
            Blame::Load => ("load", py.None()),
            Blame::Debug(info) => ("debug", info.clone().unbind()),
        };
        if let Err(error) = self.report.bind(py).call1((kind, message, what)) {
            error.write_unraisable(py, None);
        }
    }

    /// `((name, value), ...)` of an application's message: any iterable of pairs.
    pub fn pair<'py>(item: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        if let Ok(pair) = item.cast_exact::<PyTuple>()
            && pair.len() == 2
        {
            return Ok((pair.get_item(0)?, pair.get_item(1)?));
        }
        let mut parts = item.try_iter()?;
        match (parts.next(), parts.next(), parts.next()) {
            (Some(name), Some(value), None) => Ok((name?, value?)),
            _ => Err(PyTypeError::new_err(
                "headers: each must be a pair of name and value",
            )),
        }
    }
}

/// Events are being delivered: see [`AsgiService::begin_delivery`].
pub struct Delivery<'a, 'py> {
    service: &'a Bound<'py, AsgiService>,
    is_outermost: bool,
}

impl Delivery<'_, '_> {
    pub fn end(self) -> PyResult<()> {
        match self.is_outermost {
            true => AsgiService::flush(self.service),
            false => Ok(()),
        }
    }
}
