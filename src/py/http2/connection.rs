//! `Http2Connection`: the protocol of a TCP or TLS transport, between the bytes of the transport and the applications.
//!
//! | file | content |
//! | --- | --- |
//! | `flush` | the methods that write its output |

mod flush;

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use rustc_hash::FxHashMap;
use uringcore_http::http2::{Code, Connection, Event};
use uringcore_http::request_head::Head;
use uringcore_http::response_errors::Refusal;
use uringcore_limits::connection_limits::Admitted;
use uringcore_limits::memory_budget::{Account, Charge, Queued};
use uringcore_limits::semaphore::Semaphore;

use super::exchange::Exchange;
use crate::asgi::asgi_service::AsgiService;
use crate::asgi::open_file_permits::FileClient;
use crate::asgi::request::Request;
use crate::asgi::scope::{self, ConnectionInfo};
use crate::capi::gil_cell::GilCell;
use crate::tcp::connection_info::{Ends, HasEnds, connection_info};
use crate::tcp::lower_transport::LowerTransport;
use crate::tcp::server_connections::{TcpConnection, TcpService, data_of};
use crate::transport::native_protocol::NativeProtocol;

/// HTTP/2 on a server's connection. The transport of the connection has this object as its protocol.
#[pyclass(frozen, extends = NativeProtocol, module = "uringcore._uringcore")]
pub struct Http2Connection {
    service: Py<TcpService>,
    /// Permits for files that stay open while their responses wait for the client.
    pub files: Arc<Semaphore>,
    /// Permits for large messages of WebSockets.
    messages: Arc<Semaphore>,
    /// The memory of data that waits for applications.
    queued: Arc<Queued>,
    client_ip: Option<IpAddr>,
    state: GilCell<Http2State>,
}

struct Http2State {
    http: Connection,
    id: u64,
    /// Present while the connection counts for the limits of the server.
    admitted: Option<Admitted>,
    lower: Option<LowerTransport>,
    requests: FxHashMap<u64, Py<Request>>,
    ends: Option<Ends>,
    is_writing_paused: bool,
    /// True if the connection has paused reading from the transport.
    is_reading_paused: bool,
    is_delivering: bool,
    /// True if a call of `_proceed` is scheduled.
    will_proceed: bool,
}

#[pymethods]
impl Http2Connection {
    #[getter]
    fn transport(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let lower = self.lower(py)?;
        Some(lower.object(py).clone().unbind())
    }

    fn data_received(slf: &Bound<'_, Self>, data: &[u8]) -> PyResult<()> {
        Self::receive(slf.as_any(), data.into())
    }

    fn eof_received(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.get().with_http(slf.py(), Connection::end);
        Self::deliver(slf)
    }

    #[pyo3(signature = (exc))]
    fn connection_lost(slf: &Bound<'_, Self>, exc: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let _ = exc;
        let (id, old) = this.state.with(py, |state| {
            state.http.end();
            (state.id, (state.lower.take(), state.admitted.take()))
        });
        drop(old);
        let left = this.service.get().leave(id, slf.as_any());
        let delivered = Self::deliver(slf);
        let old = this.state.with(py, |state| {
            (std::mem::take(&mut state.requests), state.ends.take())
        });
        drop(old);
        left.and(delivered)
    }

    fn pause_writing(&self, py: Python<'_>) {
        self.set_writing_paused(py, true);
    }

    fn resume_writing(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.get().set_writing_paused(slf.py(), false);
        Self::flush(slf)
    }

    /// Begins to end the connection: open requests are still served. WebSockets are closed with the status code 1012
    /// (service restart).
    fn shutdown(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        this.with_http(py, |http| http.stop(Instant::now()));
        let restarted = this
            .sockets(py)
            .iter()
            .map(|socket| Request::socket_restarts(socket.bind(py)))
            .fold(Ok(()), Result::and);
        restarted.and(Self::flush(slf))
    }

    /// Delivers events that a command of an application has caused.
    fn _proceed(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.get()
            .state
            .with(slf.py(), |state| state.will_proceed = false);
        Self::deliver(slf)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.service)?;
        self.state
            .traverse(|state| {
                if let Some(lower) = &state.lower {
                    lower.traverse(&visit)?;
                }
                if let Some(ends) = &state.ends {
                    ends.traverse(&visit)?;
                }
                state
                    .requests
                    .values()
                    .try_for_each(|request| visit.call(request))
            })
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        let old = self.state.with(py, |state| {
            (state.lower.take(), std::mem::take(&mut state.requests))
        });
        drop(old);
    }
}

/// The functions that the other files call.
impl Http2Connection {
    /// Creates a connection, sets it as the protocol of `transport`, and reads `input`, which the client has already
    /// sent.
    pub fn begin(
        service: &Bound<'_, TcpService>,
        transport: &Bound<'_, PyAny>,
        mut admitted: Option<Admitted>,
        input: BytesMut,
    ) -> PyResult<()> {
        let py = service.py();
        let limits = service.get().limits.get();
        let ends = Ends::of(transport)?;
        let queued = Arc::<Queued>::default();
        if let Some(admitted) = &mut admitted {
            queued.charged_to(&admitted.holding);
            admitted.established();
        }
        let state = Http2State {
            http: Connection::new(limits.http2.clone(), Instant::now()),
            id: 0,
            admitted,
            lower: None,
            requests: FxHashMap::default(),
            ends: None,
            is_writing_paused: false,
            is_reading_paused: false,
            is_delivering: false,
            will_proceed: false,
        };
        let connection = Self {
            service: service.clone().unbind(),
            files: Semaphore::new(limits.open_files),
            messages: Semaphore::new(limits.large_messages),
            queued,
            client_ip: ends.ip(py),
            state: GilCell::new(state),
        };
        // A connection that exists was admitted already.
        let base = NativeProtocol::new(|_, _| true);
        let slf = Bound::new(py, PyClassInitializer::from(base).add_subclass(connection))?;
        transport.call_method1(intern!(py, "set_protocol"), (&slf,))?;
        let lower = LowerTransport::new(transport, Self::receive);
        let id = service
            .get()
            .enter(slf.as_any(), Box::new(slf.clone().unbind()))?;
        let is_stopping = service.get().is_stopping(py);
        slf.get().state.with(py, |state| {
            if is_stopping {
                state.http.announce_stop(Instant::now());
            }
            state.id = id;
            state.lower = Some(lower);
            state.ends = Some(ends);
        });
        match input.is_empty() {
            true => Self::flush(&slf),
            false => Self::receive(slf.as_any(), input),
        }
    }

    pub fn with_http<R>(&self, py: Python<'_>, run: impl FnOnce(&mut Connection) -> R) -> R {
        self.state.with(py, |state| run(&mut state.http))
    }

    /// True if the sender of content of this response has to wait.
    pub fn is_held_up(&self, py: Python<'_>, stream_id: u64) -> bool {
        let is_short = self.is_short_of_memory(py);
        self.with_http(py, |http| {
            http.is_held_up(stream_id, is_short, Instant::now())
        })
    }

    /// True if the process exceeds its memory budget, and this client's address holds a significant part of it.
    pub fn is_short_of_memory(&self, py: Python<'_>) -> bool {
        self.queued.is_budget_exceeded()
            && self.state.with(py, |state| {
                let admitted = state.admitted.as_ref();
                admitted.is_some_and(|admitted| admitted.holding.is_short())
            })
    }

    /// The client that is charged for open files. All clients without an address count as one.
    pub fn file_client(&self) -> FileClient {
        let ip = self.client_ip;
        FileClient {
            block: ip.unwrap_or(Ipv6Addr::UNSPECIFIED.into()).into(),
            max: self.service.get().limits.get().process_files,
        }
    }

    /// Drops a request whose application has returned.
    pub fn request_done(&self, py: Python<'_>, stream_id: u64) {
        let old = self
            .state
            .with(py, |state| state.requests.remove(&stream_id));
        drop(old);
    }

    /// The requests that are WebSockets.
    pub fn sockets(&self, py: Python<'_>) -> Vec<Py<Request>> {
        self.requests(py, |request| request.is_socket())
    }
}

impl Http2Connection {
    fn set_writing_paused(&self, py: Python<'_>, is_paused: bool) {
        self.state.with(py, |state| {
            state.is_writing_paused = is_paused;
            state.http.set_writable(!is_paused);
        });
    }

    fn lower(&self, py: Python<'_>) -> Option<LowerTransport> {
        self.state.with(py, |state| {
            state.lower.as_ref().map(|lower| lower.clone_ref(py))
        })
    }

    fn asgi<'a, 'py>(&'a self, py: Python<'py>) -> &'a Bound<'py, AsgiService> {
        self.service.get().asgi.bind(py)
    }

    fn requests(&self, py: Python<'_>, filter: impl Fn(&Request) -> bool) -> Vec<Py<Request>> {
        self.state.with(py, |state| {
            let requests = state.requests.values();
            requests
                .filter(|request| filter(request.get()))
                .map(|request| request.clone_ref(py))
                .collect()
        })
    }

    /// Reads bytes of the client.
    fn receive(object: &Bound<'_, PyAny>, data: BytesMut) -> PyResult<()> {
        let slf = object.cast::<Self>()?;
        let now = Instant::now();
        slf.get()
            .with_http(slf.py(), |http| http.receive(data, now));
        Self::deliver(slf)
    }

    /// Passes events to the applications, and writes the output.
    fn deliver(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let begins = this.state.with(py, |state| {
            let begins = !state.is_delivering && state.http.has_events();
            state.is_delivering |= begins;
            begins
        });
        if !begins {
            return Self::flush(slf);
        }
        let delivery = AsgiService::begin_delivery(this.asgi(py));
        let dispatched = Self::dispatch(slf);
        let ended = delivery.end();
        this.state.with(py, |state| state.is_delivering = false);
        dispatched.and(ended).and(Self::flush(slf))
    }

    fn dispatch(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        // An exception of one event does not prevent the delivery of the others.
        let mut outcome = Ok(());
        while let Some(event) = this.with_http(py, Connection::poll_event) {
            let handled = Self::handle(slf, event).or_else(|error| this.report(py, error));
            outcome = outcome.and(handled);
        }
        if this.with_http(py, |http| http.is_closed_for_abuse()) {
            for request in this.requests(py, |_| true) {
                outcome = outcome.and(request.get().cancel(py));
            }
        }
        outcome
    }

    fn report(&self, py: Python<'_>, error: PyErr) -> PyResult<()> {
        self.asgi(py).get().report_exception(py, "HTTP/2", error)
    }

    fn handle(slf: &Bound<'_, Self>, event: Event) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
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
            } => this.with_request(py, stream_id, |request| {
                request.get().content(py, &pieces, ended)
            }),
            Event::BodyTimedOut { stream_id } => {
                this.with_request(py, stream_id, Request::body_timed_out)
            }
            Event::Writable { stream_id } => {
                this.with_request(py, stream_id, |request| request.get().writable(py))
            }
            Event::Aborted { stream_id } => {
                this.with_request(py, stream_id, |request| request.get().disconnect(py))
            }
            Event::TooSlow(why) => this.service.get().report_slow(py, why),
        }
    }

    fn with_request(
        &self,
        py: Python<'_>,
        stream_id: u64,
        run: impl FnOnce(&Bound<'_, Request>) -> PyResult<()>,
    ) -> PyResult<()> {
        let found = self.state.with(py, |state| {
            let request = state.requests.get(&stream_id)?;
            Some(request.clone_ref(py))
        });
        match found {
            Some(request) => run(request.bind(py)),
            None => Ok(()),
        }
    }

    /// Begins a request. If an exception prevents that, the stream is reset, because nothing would answer the request.
    fn request(
        slf: &Bound<'_, Self>,
        stream_id: u64,
        head: &Head,
        refusal: Option<Refusal>,
        ended: bool,
    ) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let reset = |code: Code| {
            let now = Instant::now();
            this.with_http(py, |http| {
                http.cancel(stream_id, code, now);
                http.done(stream_id, now);
            });
        };
        // The client may have cancelled the request in the bytes that followed.
        if !this.with_http(py, |http| http.is_waited_for(stream_id)) {
            this.with_http(py, |http| http.done(stream_id, Instant::now()));
            return Ok(());
        }
        let ends = match this.is_short_of_memory(py) {
            false => connection_info(py, &this.state, this.service.get()),
            true => Ok(None),
        };
        let made = match ends {
            Ok(None) => {
                reset(Code::RefusedStream);
                return Ok(());
            }
            Ok(Some(ends)) => {
                let is_refused = refusal.is_some();
                Self::new_request(slf, stream_id, head, is_refused, ended, &ends)
                    .map(|request| (request, ends))
            }
            Err(error) => Err(error),
        };
        match (made, refusal) {
            (Ok((request, ends)), Some(refusal)) => {
                Request::refuse_invalid(&request, "HTTP/2", head, refusal, &ends)
            }
            (Ok((request, _)), None) => {
                Request::call_application(&request, head.is_forwarded(), || {
                    this.state.with(py, |state| {
                        state.requests.insert(stream_id, request.clone().unbind())
                    });
                })
            }
            (Err(error), _) => {
                reset(Code::InternalError);
                Err(error)
            }
        }
    }

    fn new_request<'py>(
        slf: &Bound<'py, Self>,
        stream_id: u64,
        head: &Head,
        is_refused: bool,
        ended: bool,
        ends: &ConnectionInfo<'py>,
    ) -> PyResult<Bound<'py, Request>> {
        let (py, this) = (slf.py(), slf.get());
        let asgi = this.asgi(py);
        let service = asgi.get();
        let scope = scope::build(py, service, head, ends)?;
        scope.set_item(intern!(py, "http_version"), intern!(py, "2"))?;
        if head.is_websocket {
            scope::for_websocket(&scope, head)?;
            if !this.service.get().is_secure() {
                scope.set_item(intern!(py, "scheme"), intern!(py, "ws"))?;
            }
        }
        // The method is compared as the application sees it, in upper case, because an application that gets HEAD sends
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
            asgi.clone().unbind(),
            scope.unbind(),
            Arc::new(stream),
            is_head,
            expects_continue,
            ended,
            fields,
        );
        let request = match &service.websockets {
            Some(limits) if head.is_websocket && !is_refused => {
                let messages = this.messages.clone();
                request.with_socket(limits.get().socket(head, ended, messages))
            }
            _ => request,
        };
        Bound::new(py, request)
    }
}

impl HasEnds for Http2State {
    fn ends(&mut self) -> Option<&mut Ends> {
        self.ends.as_mut()
    }

    fn lower(&self) -> Option<&LowerTransport> {
        self.lower.as_ref()
    }
}

impl TcpConnection for Py<Http2Connection> {
    fn tick(&self, py: Python<'_>, now: Instant) -> PyResult<()> {
        let slf = self.bind(py);
        let this = slf.get();
        let Some(lower) = this.lower(py) else {
            return Ok(());
        };
        let unsent = lower.unsent_bytes(py)?;
        this.with_http(py, |http| http.tick(unsent, now));
        let ticked = this
            .sockets(py)
            .iter()
            .map(|socket| socket.get().socket_tick(py, now))
            .fold(Ok(()), Result::and);
        ticked.and(Http2Connection::deliver(slf))
    }

    fn announce_stop(&self, py: Python<'_>) -> PyResult<()> {
        let slf = self.bind(py);
        slf.get()
            .with_http(py, |http| http.announce_stop(Instant::now()));
        Http2Connection::flush(slf)
    }

    fn shed(&self, py: Python<'_>) -> PyResult<()> {
        // The memory is freed at the end of the loop iteration, but the budget must not count it any more.
        let admitted = self.get().state.with(py, |state| {
            state.http.shed();
            state.admitted.take()
        });
        drop(admitted);
        Http2Connection::deliver(self.bind(py))
    }

    fn data_of(&self, py: Python<'_>, account: &Arc<Account>) -> usize {
        self.get().state.with(py, |state| {
            data_of(py, state.admitted.as_ref(), state.lower.as_ref(), account)
        })
    }

    fn clone_ref(&self, py: Python<'_>) -> Box<dyn TcpConnection> {
        Box::new(Py::clone_ref(self, py))
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(self)
    }
}
