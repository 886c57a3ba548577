//! The state that all requests of a server share: the application, the part of the scope that is the same for all,
//! and the functions for reports.
//!
//! A request without X-Forwarded fields skips uvicorn's `ProxyHeadersMiddleware` and goes to the application inside
//! it (`direct`). The middleware would only pass the request on, at the cost of a coroutine and a check of every
//! header.

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PySet, PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use super::header_cache::HeaderCache;
use super::request::Request;
use super::response_compression::ResponseCompression;
use super::scope;
use super::static_answers::StaticAnswers;
use super::websocket_limits::WebSocketLimits;
use crate::capi::bounded_arguments::List;
use crate::capi::exception_conversion::is_exit;
use crate::capi::gil_cell::GilCell;
use crate::event_loop::loop_core::LoopCore;
#[cfg(Py_3_12)]
use crate::event_loop::task_and_future_creation;

/// A server's application, and the state that its requests share.
///
/// `scope` is the part of the scope that is the same for all requests; `state` and `extensions` are copied into each
/// scope. `tasks` is the set of tasks that run applications. `report(kind, message, what)` is called for faults. The
/// kinds are "application" with the exception or None, "departure" with the address of a client that has gone and the
/// exception that its application raised after that, "client" with its address, "fault" with an exception of the
/// server's own code, "load" with None, and "debug" with an object that an application wants to log.
/// `log_access(scope, status)`, if given, is called when the head of a response is sent. `overloaded()`, if given, is
/// called before an application is started. `direct`, if given, is called instead of the application for requests
/// without X-Forwarded fields: it is the application without the layer that handles those. `websockets` has the
/// limits of each WebSocket, if the server accepts them. `compression`, if given, compresses responses. With
/// `repeats_files`, requests for published files may be answered without a call of the application.
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
    /// True if every application begins in an empty context, instead of a copy of the server's.
    pub fresh_context: bool,
    /// The limits of a WebSocket. `None` if no request can be a WebSocket.
    pub websockets: Option<Py<WebSocketLimits>>,
    pub compression: Option<Py<ResponseCompression>>,
    pub lines: GilCell<HeaderCache>,
    /// True if requests may be answered with files without the application.
    pub(super) repeats_files: bool,
    pub(super) answers: GilCell<StaticAnswers>,
    changing: GilCell<Changing>,
}

/// The cause of a fault that is reported.
pub enum ReportedFault<'a, 'py> {
    /// An application has failed, with the exception that it has raised, if any.
    Application(Option<PyErr>),
    /// An application has raised this exception after the client at this address had gone. Clients can cause such
    /// reports at any rate.
    Departure(&'a Bound<'py, PyAny>, PyErr),
    /// The client at this address has made a mistake.
    Client(&'a Bound<'py, PyAny>),
    /// The server's own code has raised this exception.
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
    /// The fields that every response has.
    default_headers: Vec<Line>,
    /// The number of requests that were answered since the last call of `take_answered`.
    answered: u64,
    /// The requests whose response head is held until its content comes, or until the end of the loop iteration.
    held: Vec<Py<Request>>,
    /// A call of `flush` at the end of the loop iteration is scheduled.
    will_flush: bool,
}

/// A field line of the server: name and value.
pub type Line = (Py<PyBytes>, Py<PyBytes>);

#[pymethods]
impl AsgiService {
    #[new]
    #[pyo3(signature = (
        application, *, event_loop, scope, root_path, raw_root_path, state, extensions, tasks, report,
        log_access = None, overloaded = None, fresh_context = false, websockets = None, direct = None,
        compression = None, repeats_files = false,
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
        compression: Option<Py<ResponseCompression>>,
        repeats_files: bool,
    ) -> PyResult<Self> {
        Ok(Self {
            direct: direct.unwrap_or_else(|| application.clone_ref(event_loop.py())),
            application,
            event_loop: event_loop.clone().unbind(),
            #[cfg(Py_3_12)]
            task_keywords: task_and_future_creation::eager_keywords(event_loop)?,
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
            compression,
            lines: GilCell::new(HeaderCache::new()),
            repeats_files,
            answers: GilCell::new(StaticAnswers::default()),
            changing: GilCell::new(Changing::default()),
        })
    }

    /// Sets the fields with which every response begins, as pairs of bytes.
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

    /// Sends the held heads of responses whose content has not come in this loop iteration.
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
    /// The fields of every response, in a vector with capacity for `others` more.
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

    /// Holds the head of a response until its content comes. At the end of the loop iteration the head is sent alone.
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

    /// Holds heads until the end of a delivery of events, which is the drop of the returned [`Delivery`].
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

    /// Makes a future of the loop.
    pub fn new_future<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let event_loop = self.event_loop.bind(py);
        match event_loop.cast::<LoopCore>() {
            Ok(core) => crate::event_loop::task_and_future_creation::new_future(core),
            Err(_) => event_loop.call_method0(intern!(py, "create_future")),
        }
    }

    /// Reports an exception of the server's own code in a connection of `version`. The server's log limits the number of
    /// lines, and the exception handler of the loop does not, although a client may be able to repeat the exception.
    /// Exceptions that end the loop are raised.
    pub fn report_exception(&self, py: Python<'_>, version: &str, error: PyErr) -> PyResult<()> {
        if is_exit(py, &error) {
            return Err(error);
        }
        let message = format!("Exception in an {version} connection\n");
        self.report_fault(py, ReportedFault::Server(error), &message);
        Ok(())
    }

    /// Reports a fault to the server. If the server's function raises, the exception goes to `sys.unraisablehook`.
    pub fn report_fault(&self, py: Python<'_>, fault: ReportedFault<'_, '_>, message: &str) {
        let (kind, what) = match fault {
            ReportedFault::Application(error) => {
                let error = error.map(|error| error.into_value(py).into_any());
                ("application", error.unwrap_or_else(|| py.None()))
            }
            ReportedFault::Departure(address, error) => {
                let pair = (address, error.into_value(py)).into_pyobject(py);
                (
                    "departure",
                    pair.map_or_else(|_| py.None(), |pair| pair.into_any().unbind()),
                )
            }
            ReportedFault::Client(address) => ("client", address.clone().unbind()),
            ReportedFault::Server(error) => ("fault", error.into_value(py).into_any()),
            ReportedFault::Load => ("load", py.None()),
            ReportedFault::Debug(info) => ("debug", info.clone().unbind()),
        };
        if let Err(error) = self.report.bind(py).call1((kind, message, what)) {
            error.write_unraisable(py, None);
        }
    }

    /// Reads a pair `(name, value)` of an application's message: any iterable with two items.
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

/// A delivery of events that is in progress (see [`AsgiService::begin_delivery`]).
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
