//! `Http3Connection`: the requests of one QUIC connection, between the events of the connection and the applications.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{PyTraverseError, PyVisit};
use rustc_hash::FxHashMap;
use uringcore_http::http3::{Connection, Event};
use uringcore_http::request_head::Head;
use uringcore_http::response_errors::Refusal;
use uringcore_limits::memory_budget::{Charge, Queued};
use uringcore_limits::semaphore::Semaphore;
use uringcore_quic::{self as quic, ConnectionKey};

use super::connection_info::Tls;
use super::exchange::Exchange;
use super::http3_limits::Http3Limits;
use crate::asgi::asgi_service::AsgiService;
use crate::asgi::request::Request;
use crate::asgi::scope;
use crate::capi::gil_cell::GilCell;
use crate::quic::{QuicConnectionCore, QuicEndpoint, StreamProtocol};
use crate::webtransport::session_limits::WebTransportLimits;
use crate::webtransport::session_registry::SessionRegistry;

/// HTTP/3 on a server's QUIC connection, whose stream events it handles. A service answers the requests.
///
/// `server` is the server's address in the scopes. `on_event(name)` is called with "drained" (no request is open, and
/// all sent response data has been acknowledged), "used_up" (the limit of requests is reached), "idle" (no request
/// for too long), "nothing_taken" and "little_taken" (a response was cancelled, because the client accepted nothing
/// or too little of it). `on_session(session, scope)` is called when a client requests a WebTransport session, within
/// the limits of `sessions`; without it there are no sessions. `tls()` returns the ASGI extension `tls`. `transmit`
/// is called after commands, on a loop that does not send by itself.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct Http3Connection {
    pub(super) service: Py<AsgiService>,
    pub(super) session_limits: Option<Py<WebTransportLimits>>,
    pub(super) endpoint: Py<QuicEndpoint>,
    pub(super) key: ConnectionKey,
    pub(super) server: Py<PyAny>,
    /// Permits for files that stay open while their responses wait for the client.
    pub(super) files: Arc<Semaphore>,
    /// The largest number of open files of the whole process. `None` for a share of the process's descriptors.
    pub(super) max_files: Option<usize>,
    messages: Arc<Semaphore>,
    /// The memory of data that waits for applications.
    pub(super) queued: Arc<Queued>,
    pub(super) state: GilCell<Http3State>,
}

pub(super) struct Http3State {
    pub http: Option<Connection>,
    requests: FxHashMap<u64, Py<Request>>,
    pub sessions: SessionRegistry,
    pub on_session: Option<Py<PyAny>>,
    /// The client's address, and the tuple that applications get for it.
    pub(super) client: Option<(SocketAddr, Py<PyTuple>)>,
    on_event: Option<Py<PyAny>>,
    pub(super) tls: Option<Tls>,
    transmit: Option<Py<PyAny>>,
    /// True if "drained" is reported, which is so only after `announce_end`.
    reports_drained: bool,
    is_delivering: bool,
}

#[pymethods]
impl Http3Connection {
    #[new]
    #[pyo3(signature = (
        connection, service, limits, *, server, on_event, on_session = None, sessions = None,
        tls = None, transmit = None,
    ))]
    #[expect(clippy::too_many_arguments)] // Keyword arguments in Python.
    fn new(
        connection: &Bound<'_, QuicConnectionCore>,
        service: Py<AsgiService>,
        limits: &Bound<'_, Http3Limits>,
        server: Py<PyAny>,
        on_event: Py<PyAny>,
        on_session: Option<Py<PyAny>>,
        sessions: Option<Py<WebTransportLimits>>,
        tls: Option<Py<PyAny>>,
        transmit: Option<Py<PyAny>>,
    ) -> PyResult<Py<Self>> {
        let py = connection.py();
        let (endpoint, key) = connection
            .get()
            .place(py)
            .ok_or_else(|| PyRuntimeError::new_err("the connection is not open"))?;
        let opened = endpoint.get().with_connection(py, key, |quic| {
            let (mut settings, mut limits) =
                (limits.get().settings.clone(), limits.get().limits.clone());
            if service.get().websockets.is_none() {
                let others = limits.protocols.iter();
                limits.protocols = others
                    .filter(|&name| name != "websocket")
                    .cloned()
                    .collect();
            }
            settings.enable_connect_protocol = !limits.protocols.is_empty();
            let now = Instant::now();
            let http = match &sessions {
                None => Connection::new(quic, settings, limits, now),
                Some(sessions) => {
                    let sessions = sessions.get().limits.clone();
                    Connection::with_webtransport(quic, settings, limits, sessions, now)
                }
            };
            (http, quic.queued())
        })?;
        let (http, queued) = opened.unzip();
        let state = Http3State {
            http,
            requests: FxHashMap::default(),
            sessions: SessionRegistry::default(),
            on_session,
            client: None,
            on_event: Some(on_event),
            tls: tls.map(Tls::Asked),
            transmit,
            reports_drained: false,
            is_delivering: false,
        };
        let this = Py::new(
            py,
            Self {
                service,
                session_limits: sessions,
                endpoint,
                key,
                server,
                files: Semaphore::new(limits.get().open_files),
                max_files: limits.get().process_files,
                messages: Semaphore::new(limits.get().large_messages),
                queued: queued.unwrap_or_default(),
                state: GilCell::new(state),
            },
        )?;
        let streams = Streams(this.clone_ref(py));
        connection.get().attach(py, Arc::new(streams));
        Ok(this)
    }

    /// The number of requests whose application is running, including WebTransport sessions.
    #[getter]
    fn open_requests(&self, py: Python<'_>) -> usize {
        self.state
            .with(py, |state| state.requests.len() + state.sessions.len())
    }

    /// True if no request is open and all sent response data has been acknowledged.
    #[getter]
    fn is_drained(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| {
            state.http.as_ref().is_none_or(Connection::is_drained)
        })
    }

    /// Sends a first GOAWAY. Requests that the client has already sent are still served (RFC 9114 section 5.2). From
    /// now on the connection reports "drained" when no request is left.
    fn announce_end(&self, py: Python<'_>) {
        self.state.with(py, |state| state.reports_drained = true);
        self.with_connections_unraisable(py, |http, quic, now| http.announce_end(quic, now));
    }

    /// Sends the last GOAWAY. Later requests are not served.
    fn go_away(&self, py: Python<'_>) {
        self.with_connections_unraisable(py, |http, quic, now| http.go_away(quic, now));
    }

    /// Delivers requests from 0-RTT data that had to wait for the handshake, because they must not be executed twice if
    /// an attacker replays them.
    fn handshake_completed(slf: &Bound<'_, Self>) -> PyResult<()> {
        let this = slf.get();
        this.with_connections(slf.py(), |http, quic, now| {
            http.handshake_completed(quic, now);
        })?;
        Self::dispatch(slf)
    }

    /// Cancels everything that has exceeded its time-out. Must be called about once a second.
    fn tick(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let now = Instant::now();
        let is_due = this.state.with(py, |state| {
            state.http.as_ref().is_some_and(|http| http.is_due(now))
        });
        if !is_due {
            return Ok(());
        }
        this.with_connections(py, |http, quic, now| http.tick(quic, now))?;
        Self::dispatch(slf)?;
        let sockets = this.sockets(py);
        sockets
            .iter()
            .map(|socket| socket.get().socket_tick(py, now))
            .fold(Ok(()), Result::and)
    }

    /// Closes WebSockets with the code 1012 of a stopping server, because they might last for ever.
    fn close_sockets(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let sockets = slf.get().sockets(py);
        sockets
            .iter()
            .map(|socket| Request::socket_restarts(socket.bind(py)))
            .fold(Ok(()), Result::and)
    }

    /// Notifies every application that the connection has ended. If the connection was closed because the client had
    /// cancelled too many requests, their applications are cancelled.
    fn closed(&self, py: Python<'_>) -> PyResult<()> {
        let cancels = self.state.with(py, |state| {
            state
                .http
                .as_ref()
                .is_some_and(Connection::is_closed_for_abuse)
        });
        let last = self.state.with(py, |state| {
            let handle = state.http.as_mut()?.webtransport()?;
            Some(state.sessions.last_stats(py, &handle))
        });
        last.unwrap_or_default().keep(py);
        let (requests, old) = self.state.with(py, |state| {
            let old = (
                state.http.take(),
                state.on_event.take(),
                (state.on_session.take(), std::mem::take(&mut state.sessions)),
                state.tls.take(),
                state.transmit.take(),
            );
            (std::mem::take(&mut state.requests), old)
        });
        drop(old);
        let mut outcome = Ok(());
        for request in requests.into_values() {
            outcome = outcome.and(request.get().disconnect(py));
            if cancels {
                outcome = outcome.and(request.get().cancel(py));
            }
        }
        outcome
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.service)?;
        visit.call(&self.endpoint)?;
        visit.call(&self.server)?;
        self.state
            .traverse(|state| {
                visit.call(&state.on_event)?;
                visit.call(&state.on_session)?;
                state.sessions.traverse(&visit)?;
                visit.call(state.tls.as_ref().map(Tls::object))?;
                visit.call(&state.transmit)?;
                state
                    .requests
                    .values()
                    .try_for_each(|request| visit.call(request))
            })
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        let old = self.state.with(py, |state| {
            (
                std::mem::take(&mut state.requests),
                (state.on_session.take(), std::mem::take(&mut state.sessions)),
                state.on_event.take(),
                state.tls.take(),
                state.transmit.take(),
            )
        });
        drop(old);
    }
}

/// Makes HTTP/3 the protocol that is attached to a connection's streams.
struct Streams(Py<Http3Connection>);

impl StreamProtocol for Streams {
    fn handle(
        &self,
        py: Python<'_>,
        quic: &mut quic::Connection,
        event: quic::Event,
        now: Instant,
    ) {
        self.0.get().state.with(py, |state| {
            if let Some(http) = &mut state.http {
                http.handle(quic, event, now);
            }
        });
    }

    fn deliver(&self, py: Python<'_>) -> PyResult<()> {
        let this = self.0.get();
        let was_delivering = this.state.with(py, |state| {
            std::mem::replace(&mut state.is_delivering, true)
        });
        let delivery = AsgiService::begin_delivery(this.service.bind(py));
        let dispatched = Http3Connection::dispatch(self.0.bind(py));
        let ended = delivery.end();
        this.state
            .with(py, |state| state.is_delivering = was_delivering);
        dispatched.and(ended)
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.0)
    }
}

impl Http3Connection {
    /// Calls `run` with the HTTP/3 and the QUIC connection. `None` if the connection or its loop has ended.
    pub fn with_connections<R>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut Connection, &mut quic::Connection, Instant) -> R,
    ) -> PyResult<Option<R>> {
        let result = self
            .endpoint
            .get()
            .with_connection_now(py, self.key, |quic, now| {
                self.state.with(py, |state| {
                    state.http.as_mut().map(|http| run(http, quic, now))
                })
            })?;
        self.transmit(py);
        Ok(result.flatten())
    }

    /// Lets the loop send the written data. Called when the application has written all that it has at present.
    pub fn written(&self, py: Python<'_>) {
        self.endpoint.get().written(py, self.key);
    }

    /// Calls `run` with the QUIC connection, to read from it. `None` if the connection has ended or its loop is inside
    /// the kernel.
    pub fn peek<R>(&self, py: Python<'_>, run: impl FnOnce(&quic::Connection) -> R) -> Option<R> {
        let peeked = self.endpoint.get().peek_connection(py, self.key, run);
        peeked.ok().flatten()
    }

    /// Calls `run` as `with_connections` does, for callers that cannot raise. An error, which means that the loop is
    /// inside the kernel on another thread, goes to `sys.unraisablehook`.
    pub fn with_connections_unraisable<R>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut Connection, &mut quic::Connection, Instant) -> R,
    ) -> Option<R> {
        self.with_connections(py, run).unwrap_or_else(|error| {
            error.write_unraisable(py, None);
            None
        })
    }

    pub fn with_http(&self, py: Python<'_>, run: impl FnOnce(&mut Connection, Instant)) {
        self.state.with(py, |state| {
            if let Some(http) = &mut state.http {
                run(http, Instant::now());
            }
        });
    }

    /// Calls the program's `transmit`, on a loop that does not send by itself.
    fn transmit(&self, py: Python<'_>) {
        let transmit = self.state.with(py, |state| match &state.transmit {
            Some(transmit) if !state.is_delivering => Some(transmit.clone_ref(py)),
            _ => None,
        });
        if let Some(transmit) = transmit
            && let Err(error) = transmit.bind(py).call0()
        {
            error.write_unraisable(py, Some(transmit.bind(py)));
        }
    }

    /// Passes events to the applications and to the program.
    fn dispatch(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let next = || {
            this.state.with(py, |state| {
                state.http.as_mut().and_then(Connection::poll_event)
            })
        };
        // An exception that one event causes does not prevent the delivery of others.
        let mut outcome = Ok(());
        while let Some(event) = next() {
            let reported = Self::handle_event(slf, event).or_else(|error| this.report(py, error));
            outcome = outcome.and(reported);
        }
        let reported = Self::deliver_session_events(slf).or_else(|error| this.report(py, error));
        outcome.and(reported)
    }

    fn report(&self, py: Python<'_>, error: PyErr) -> PyResult<()> {
        self.service.get().report_exception(py, "HTTP/3", error)
    }

    fn handle_event(slf: &Bound<'_, Self>, event: Event) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let with = |stream_id: u64, run: &dyn Fn(&Bound<'_, Request>) -> PyResult<()>| match this
            .find(py, stream_id)
        {
            Some(request) => run(request.bind(py)),
            None => Ok(()),
        };
        match event {
            Event::Request {
                stream_id,
                head,
                refusal,
                ended,
            } => Self::request(slf, stream_id, &head, refusal, ended),
            Event::Body {
                stream_id,
                pieces,
                ended,
            } => with(stream_id, &|request| {
                request.get().content(py, pieces.pieces(), ended)
            }),
            Event::Datagram { stream_id, data } => with(stream_id, &|request| {
                request.get().datagram(py, data.clone())
            }),
            Event::BodyTimedOut { stream_id } => with(stream_id, &Request::body_timed_out),
            Event::TooSlow(why) => this.notify_program(py, why.name(), false),
            Event::Aborted { stream_id } => {
                with(stream_id, &|request| request.get().disconnect(py))
            }
            Event::Writable { stream_id } => with(stream_id, &|request| request.get().writable(py)),
            Event::Session {
                session_id,
                head,
                protocols,
                draft,
            } => Self::session(slf, session_id, &head, &protocols, draft),
            Event::Drained => this.notify_program(py, "drained", true),
            Event::UsedUp => this.notify_program(py, "used_up", false),
            Event::Idle => this.notify_program(py, "idle", false),
        }
    }

    fn request(
        slf: &Bound<'_, Self>,
        stream_id: u64,
        head: &Head,
        refusal: Option<Refusal>,
        ended: bool,
    ) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let service = this.service.get();
        // The client may have cancelled the request in the same packet.
        let is_waited_for = this.state.with(py, |state| {
            state.http.as_mut().is_some_and(|http| {
                let is_waited_for = http.is_waited_for(stream_id);
                if !is_waited_for {
                    http.done(stream_id, Instant::now());
                }
                is_waited_for
            })
        });
        if !is_waited_for {
            return Ok(());
        }
        let ends = this.ends(py, stream_id, head)?;
        let scope = scope::build(py, service, head, &ends)?;
        let sockets = service.websockets.as_ref().filter(|_| head.is_websocket);
        if head.is_websocket {
            scope::for_websocket(&scope, head)?;
        }
        // The method is compared in upper case, as the application sees it, because an application that gets HEAD sends
        // no content.
        let is_head = head.method.eq_ignore_ascii_case(b"HEAD");
        let stream = Exchange {
            connection: slf.clone().unbind(),
            stream_id,
            is_mistaken_for_head: is_head && &*head.method != b"HEAD",
        };
        let expects_continue = head
            .field(b"expect")
            .is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"));
        let mut fields = Charge::new(this.queued.clone());
        fields.set(head.size());
        let request = Request::new(
            this.service.clone_ref(py),
            scope.unbind(),
            Arc::new(stream),
            is_head,
            expects_continue,
            ended,
            fields,
        );
        let request = match sockets {
            Some(limits) if refusal.is_none() => {
                let messages = this.messages.clone();
                request.with_socket(limits.get().socket(head, ended, messages))
            }
            None if head.protocol.is_some() && refusal.is_none() => {
                request.with_datagrams(Charge::new(this.queued.clone()))
            }
            _ => request,
        };
        let request = Bound::new(py, request)?;
        if let Some(refusal) = refusal {
            return Request::refuse_invalid(&request, "HTTP/3", head, refusal, &ends);
        }
        Request::call_application(&request, head.is_forwarded(), || {
            this.state.with(py, |state| {
                state.requests.insert(stream_id, request.clone().unbind())
            });
        })
    }

    /// Ends a request whose application has returned.
    pub fn request_done(slf: &Bound<'_, Self>, stream_id: u64) {
        let py = slf.py();
        let this = slf.get();
        let old = this.state.with(py, |state| {
            if let Some(http) = &mut state.http {
                http.done(stream_id, Instant::now());
            }
            state.requests.remove(&stream_id)
        });
        drop(old);
        let is_alone = this
            .state
            .with(py, |state| state.reports_drained && !state.is_delivering);
        if is_alone && let Err(error) = Self::dispatch(slf) {
            error.write_unraisable(py, Some(slf));
        }
    }

    /// The requests that are WebSockets.
    pub(super) fn sockets(&self, py: Python<'_>) -> Vec<Py<Request>> {
        self.state.with(py, |state| {
            let requests = state.requests.values();
            requests
                .filter(|request| request.get().is_socket())
                .map(|request| request.clone_ref(py))
                .collect()
        })
    }

    fn find(&self, py: Python<'_>, stream_id: u64) -> Option<Py<Request>> {
        self.state.with(py, |state| {
            let request = state.requests.get(&stream_id)?;
            Some(request.clone_ref(py))
        })
    }

    fn notify_program(&self, py: Python<'_>, name: &str, only_if_wanted: bool) -> PyResult<()> {
        let on_event = self.state.with(py, |state| match &state.on_event {
            Some(on_event) if state.reports_drained || !only_if_wanted => {
                Some(on_event.clone_ref(py))
            }
            _ => None,
        });
        match on_event {
            Some(on_event) => on_event.bind(py).call1((name,)).map(drop),
            None => Ok(()),
        }
    }
}
