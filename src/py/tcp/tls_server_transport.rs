//! `TlsServerTransport`: TLS of the server's HTTP/1.1 and HTTP/2, by rustls, between a stream and a protocol of this
//! extension. It is the protocol of the stream and the transport of the HTTP connection.
//!
//! | file | content |
//! | --- | --- |
//! | `encryption` | written data to records; data that waits |
//!
//! Handshakes run in the loop's thread. A handshake has a time limit, and the numbers of handshakes and of bytes that
//! one may hold are limited. Received bytes of incomplete records and messages are charged to the client. Records reach
//! this object without Python objects, and the HTTP connection gets their content without one.
//!
//! **Invariants.** Records are written in the order in which they were made: data that the stream does not accept yet
//! waits before its encryption. While the HTTP connection has paused reading, the stream beneath is paused, so nothing
//! is decrypted. What was received in one piece is delivered in one piece.
//!
//! Not here: `ssl.SSLContext` and the transports of asyncio programs (`tls`).

mod encryption;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use pyo3::{PyTraverseError, PyVisit};
use uringcore_http::tcp_output::Closing;
use uringcore_limits::memory_budget::{Account, Holding};
use uringcore_quic::tls::ServerSession;

use super::connection_info::Ends;
use super::lower_transport::LowerTransport;
use super::server_connections::{TcpConnection, TcpService};
use crate::capi::exception_conversion::is_exit;
use crate::capi::gil_cell::GilCell;
use crate::transport::native_protocol::{NativeProtocol, NativeReceive, is_admitted_by};

/// TLS on one connection of a server. `app` is the protocol of the decrypted data.
#[pyclass(frozen, extends = NativeProtocol, module = "uringcore._uringcore")]
pub struct TlsServerTransport {
    service: Py<TcpService>,
    state: GilCell<TlsServerState>,
}

struct TlsServerState {
    phase: Phase,
    session: Option<ServerSession>,
    lower: Option<LowerTransport>,
    app: Option<Py<PyAny>>,
    /// The function of `app` that gets the decrypted data.
    receive: Option<NativeReceive>,
    /// The number of the handshake at the service.
    id: u64,
    began: Instant,
    /// The connection counts for the limits of the server, and the client is charged for the memory of the session.
    /// `app` has another charge, for the connection and its requests.
    holding: Option<Holding>,
    is_end_reported: bool,
    /// Data that waits to be encrypted.
    waiting: VecDeque<Bytes>,
    waiting_bytes: usize,
    /// The stream beneath has paused writing.
    is_writing_paused: bool,
    /// The way in which the connection ends when no data waits any more.
    ending: Option<Closing>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Handshake,
    Open,
    /// `close()` was called, or TLS has failed.
    Closing,
    Over,
}

/// The effects of received bytes.
#[derive(Default)]
struct Received {
    plain: BytesMut,
    records: Vec<u8>,
    has_handshake_ended: bool,
    has_peer_closed: bool,
    has_failed: bool,
    /// The client is charged for more bytes of the session than before.
    has_grown: bool,
}

#[pymethods]
impl TlsServerTransport {
    #[new]
    fn new(service: Py<TcpService>, app: Py<PyAny>) -> PyClassInitializer<Self> {
        let state = TlsServerState {
            phase: Phase::Handshake,
            session: None,
            lower: None,
            app: Some(app),
            receive: None,
            id: 0,
            began: Instant::now(),
            holding: None,
            is_end_reported: false,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            is_writing_paused: false,
            ending: None,
        };
        let base = NativeProtocol::new(|object, address| {
            object
                .cast::<Self>()
                .is_ok_and(|tls| Self::admit(tls, address))
        });
        PyClassInitializer::from(base).add_subclass(Self {
            service,
            state: GilCell::new(state),
        })
    }

    /// asyncio's class, so that `isinstance(transport, asyncio.Transport)` is true (see `BaseTransport`).
    #[getter(__class__)]
    fn class(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let module = py.import(intern!(py, "uringcore._isinstance_classes"))?;
        Ok(module.getattr(intern!(py, "SSLTransport"))?.unbind())
    }

    // Calls of the transport beneath --------------------------------------------------------------

    fn connection_made(slf: &Bound<'_, Self>, transport: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let service = this.service.get();
        let lower = LowerTransport::new(transport, Self::receive);
        // Only the loop of this extension admits a connection before it makes a transport.
        let is_admitted = this.state.with(py, |state| state.holding.is_some())
            || Self::admit(slf, Ends::of(transport)?.ip(py));
        let session = match service.tls_session(py) {
            Some(session) if is_admitted => session,
            _ => return lower.end(py, Closing::AtOnce),
        };
        let id = service.enter_handshake(py, Box::new(slf.clone().unbind()));
        this.state.with(py, |state| {
            state.session = Some(session);
            state.lower = Some(lower);
            state.id = id;
            state.began = Instant::now();
        });
        Ok(())
    }

    fn data_received(slf: &Bound<'_, Self>, data: &[u8]) -> PyResult<()> {
        Self::receive(slf.as_any(), data.into())
    }

    /// Returns true, because this object closes the transport beneath after close_notify.
    fn eof_received(slf: &Bound<'_, Self>) -> PyResult<bool> {
        Self::end_received(slf).map(|()| true)
    }

    fn connection_lost(slf: &Bound<'_, Self>, exc: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let (phase, id, old) = this.state.with(py, |state| {
            let phase = std::mem::replace(&mut state.phase, Phase::Over);
            let old = (state.session.take(), state.lower.take(), state.app.take());
            state.holding = None;
            state.waiting = VecDeque::new();
            state.waiting_bytes = 0;
            (phase, std::mem::take(&mut state.id), old)
        });
        let is_unfinished = this.service.get().leave_handshake(py, id);
        let (_, lower, app) = old;
        drop(lower);
        match app {
            Some(app) if phase != Phase::Handshake && !is_unfinished => app
                .bind(py)
                .call_method1(intern!(py, "connection_lost"), (exc,))
                .map(drop),
            _ => Ok(()),
        }
    }

    fn pause_writing(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let state = &slf.get().state;
        state.with(py, |state| state.is_writing_paused = true);
        Self::call_open_app(slf, intern!(py, "pause_writing"))
    }

    fn resume_writing(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let state = &slf.get().state;
        state.with(py, |state| state.is_writing_paused = false);
        match Self::write_waiting(slf)? {
            true => Ok(()),
            false => Self::call_open_app(slf, intern!(py, "resume_writing")),
        }
    }

    // Methods of asyncio.Transport ----------------------------------------------------------------

    #[pyo3(signature = (name, default = None))]
    fn get_extra_info(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        default: Option<Py<PyAny>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        match self.lower(py) {
            Some(lower) => {
                let get = intern!(py, "get_extra_info");
                let found = lower.object(py).call_method1(get, (name, default))?;
                Ok(Some(found.unbind()))
            }
            None => Ok(default),
        }
    }

    fn set_protocol(&self, py: Python<'_>, protocol: Py<PyAny>) {
        let old = self.state.with(py, |state| state.app.replace(protocol));
        drop(old);
    }

    fn get_protocol(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.state
            .with(py, |state| state.app.as_ref().map(|app| app.clone_ref(py)))
    }

    fn is_closing(&self, py: Python<'_>) -> PyResult<bool> {
        let is_open = self.state.with(py, |state| {
            matches!(state.phase, Phase::Handshake | Phase::Open)
        });
        match self.lower(py).filter(|_| is_open) {
            Some(lower) => lower
                .object(py)
                .call_method0(intern!(py, "is_closing"))?
                .is_truthy(),
            None => Ok(true),
        }
    }

    /// Closes the connection with close_notify when all data is sent. The client's close_notify is not awaited (RFC
    /// 8446 section 6.1).
    fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::end(slf, Closing::Gracefully)
    }

    /// Closes the connection at once. Unsent data is lost.
    fn abort(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::end(slf, Closing::AtOnce)
    }

    fn pause_reading(&self, py: Python<'_>) -> PyResult<()> {
        self.set_reading(py, false)
    }

    fn resume_reading(&self, py: Python<'_>) -> PyResult<()> {
        self.set_reading(py, true)
    }

    fn write(slf: &Bound<'_, Self>, data: &[u8]) -> PyResult<()> {
        Self::write_pieces(slf, vec![Bytes::copy_from_slice(data)])
    }

    fn can_write_eof(&self) -> bool {
        true
    }

    /// Sends close_notify and closes the sending direction when all data is sent. Data is still received.
    fn write_eof(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::end(slf, Closing::Sending)
    }

    /// The number of bytes that wait to be encrypted or to be sent by the transport beneath.
    fn get_write_buffer_size(&self, py: Python<'_>) -> PyResult<usize> {
        self.unsent_bytes(py)
    }

    // Results of the handshake --------------------------------------------------------------------

    /// The numbers of the TLS version, the cipher suite and the group of the key exchange, and true for a resumed
    /// session. `None` before the end of the handshake, and after the end of the connection.
    fn _negotiated(&self, py: Python<'_>) -> Option<(u16, u16, Option<u16>, bool)> {
        self.state.with(py, |state| {
            let found = state.session.as_ref()?.negotiated()?;
            let (version, suite) = (found.version, found.cipher_suite);
            Some((version, suite, found.group, found.is_resumed))
        })
    }

    /// The client's certificates in DER, leaf first.
    fn _client_chain<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        let chain: Vec<Vec<u8>> = self.state.with(py, |state| {
            let session = state.session.iter();
            let chain = session.flat_map(ServerSession::client_chain);
            chain.map(<[u8]>::to_vec).collect()
        });
        chain.iter().map(|one| PyBytes::new(py, one)).collect()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.service)?;
        self.state
            .traverse(|state| {
                if let Some(lower) = &state.lower {
                    lower.traverse(&visit)?;
                }
                visit.call(&state.app)
            })
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        let old = self
            .state
            .with(py, |state| (state.lower.take(), state.app.take()));
        drop(old);
    }
}

/// The functions that the other files of this folder call.
impl TlsServerTransport {
    /// From now on, decrypted data is passed to `receive`.
    pub fn receive_natively(&self, py: Python<'_>, receive: NativeReceive) {
        self.state.with(py, |state| state.receive = Some(receive));
    }

    /// True if the transport beneath is a stream of this extension.
    pub fn is_over_stream(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| {
            matches!(state.lower, Some(LowerTransport::Stream(_)))
        })
    }

    /// The application protocol on which both sides have agreed.
    pub fn alpn(&self, py: Python<'_>) -> Option<String> {
        self.state.with(py, |state| {
            let name = state.session.as_ref()?.alpn()?;
            Some(String::from_utf8_lossy(name).into_owned())
        })
    }

    /// The number of bytes that wait to be encrypted or to be sent by the transport beneath.
    pub fn unsent_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        let waiting = self.state.with(py, |state| state.waiting_bytes);
        match self.lower(py) {
            Some(lower) => Ok(waiting + lower.unsent_bytes(py)?),
            None => Ok(waiting),
        }
    }

    /// The number of bytes of the session that the client is charged for, if it belongs to this account.
    pub fn session_data_of(&self, py: Python<'_>, account: &Arc<Account>) -> usize {
        self.state.with(py, |state| {
            let holding = state.holding.as_ref();
            holding.map_or(0, |holding| holding.data_of(account))
        })
    }

    /// Ends the connection in the given way.
    pub fn end(slf: &Bound<'_, Self>, closing: Closing) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let (waits, phase) = this.state.with(py, |state| {
            let waits = !state.waiting.is_empty() && closing != Closing::AtOnce;
            if waits {
                state.ending = Some(closing);
            }
            let phase = state.phase;
            // After the end of the sending direction, data is still received.
            if closing != Closing::Sending && phase != Phase::Over {
                state.phase = Phase::Closing;
            }
            if closing == Closing::AtOnce {
                // The memory is freed at the end of the loop iteration, but the budget must not count it any more.
                state.holding = None;
            }
            (waits, phase)
        });
        let (false, Some(lower)) = (waits, this.lower(py)) else {
            return Ok(());
        };
        // There is nothing to close before the end of the handshake.
        let closing = match phase {
            Phase::Handshake => Closing::AtOnce,
            _ => closing,
        };
        if closing != Closing::AtOnce {
            let mut records = Vec::new();
            this.state.with(py, |state| {
                if let Some(session) = &mut state.session {
                    session.close(&mut records);
                }
            });
            Self::write_records(&lower, py, records)?;
        }
        lower.end(py, closing)
    }
}

impl TlsServerTransport {
    /// Counts a new connection of the server. Returns false if it exceeds a limit.
    fn admit(slf: &Bound<'_, Self>, address: Option<IpAddr>) -> bool {
        let (py, this) = (slf.py(), slf.get());
        let app = this.get_protocol(py);
        let is_admitted = app.is_some_and(|app| is_admitted_by(app.bind(py), address));
        let holding = is_admitted.then(|| this.service.get().new_holding(address));
        this.state.with(py, |state| state.holding = holding);
        is_admitted
    }

    fn lower(&self, py: Python<'_>) -> Option<LowerTransport> {
        self.state.with(py, |state| {
            state.lower.as_ref().map(|lower| lower.clone_ref(py))
        })
    }

    fn set_reading(&self, py: Python<'_>, reads: bool) -> PyResult<()> {
        match self.lower(py) {
            Some(lower) => lower.set_reading(py, reads),
            None => Ok(()),
        }
    }

    fn call_open_app(
        slf: &Bound<'_, Self>,
        method: &Bound<'_, pyo3::types::PyString>,
    ) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let is_open = this.state.with(py, |state| {
            !matches!(state.phase, Phase::Handshake | Phase::Over)
        });
        match this.get_protocol(py).filter(|_| is_open) {
            Some(app) => app.bind(py).call_method0(method).map(drop),
            None => Ok(()),
        }
    }

    /// Reads bytes of the client.
    fn receive(object: &Bound<'_, PyAny>, data: BytesMut) -> PyResult<()> {
        let slf = object.cast::<Self>()?;
        let (py, this) = (slf.py(), slf.get());
        let received = this.state.with(py, |state| state.handle_input(data));
        let (Some(received), Some(lower)) = (received, this.lower(py)) else {
            return Ok(());
        };
        if !received.records.is_empty() {
            Self::write_records(&lower, py, received.records)?;
        }
        if received.has_handshake_ended {
            Self::handshake_ended(slf)?;
        }
        if !received.plain.is_empty() {
            Self::deliver(slf, received.plain)?;
        }
        if received.has_failed {
            return Self::failed(slf);
        }
        if received.has_peer_closed {
            return Self::end_received(slf);
        }
        match received.has_grown {
            // This does nothing unless the process exceeds its budget.
            true => this.service.get().shed(py),
            false => Ok(()),
        }
    }

    fn handshake_ended(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let id = this.state.with(py, |state| {
            state.phase = Phase::Open;
            std::mem::take(&mut state.id)
        });
        let service = this.service.get();
        service.leave_handshake(py, id);
        let Some(app) = this.get_protocol(py) else {
            return Ok(());
        };
        let app = app.bind(py);
        match app.call_method1(intern!(py, "connection_made"), (slf,)) {
            Ok(_) => Ok(()),
            Err(error) => Self::not_made(slf, app, error),
        }
    }

    /// Ends a connection whose protocol has raised an exception in `connection_made`: no time limit applies to it any
    /// more, and none yet. The loop's exception handler gets the exception, of any type.
    fn not_made(slf: &Bound<'_, Self>, app: &Bound<'_, PyAny>, error: PyErr) -> PyResult<()> {
        let py = slf.py();
        let aborted = Self::abort(slf);
        if is_exit(py, &error) {
            return Err(error);
        }
        let context = PyDict::new(py);
        context.set_item(
            intern!(py, "message"),
            "Exception in protocol.connection_made()",
        )?;
        context.set_item(intern!(py, "exception"), error.into_value(py))?;
        context.set_item(intern!(py, "transport"), slf)?;
        context.set_item(intern!(py, "protocol"), app)?;
        let asgi = slf.get().service.get().asgi.get();
        let event_loop = asgi.event_loop.bind(py);
        event_loop.call_method1(intern!(py, "call_exception_handler"), (context,))?;
        aborted
    }

    /// Passes decrypted data to the protocol, which `connection_made` may have replaced.
    fn deliver(slf: &Bound<'_, Self>, plain: BytesMut) -> PyResult<()> {
        let py = slf.py();
        let (app, receive) = slf.get().state.with(py, |state| {
            let is_wanted = matches!(state.phase, Phase::Open);
            let app = state.app.as_ref().filter(|_| is_wanted);
            (app.map(|app| app.clone_ref(py)), state.receive)
        });
        match (app, receive) {
            (Some(app), Some(receive)) => receive(app.bind(py), plain),
            _ => Ok(()),
        }
    }

    /// Reports the end of the client's data once, and closes the connection as asyncio does. A client that ends the
    /// TCP connection without close_notify is treated alike: HTTP itself shows if a message is incomplete.
    fn end_received(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let (phase, was_reported) = this.state.with(py, |state| {
            let was_reported = std::mem::replace(&mut state.is_end_reported, true);
            (state.phase, was_reported)
        });
        if phase == Phase::Open && !was_reported {
            Self::call_open_app(slf, intern!(py, "eof_received"))?;
        }
        Self::close(slf)
    }

    /// Ends the connection after a failure of TLS, whose alert was written.
    fn failed(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let phase = this.state.with(py, |state| {
            state.waiting = VecDeque::new();
            state.waiting_bytes = 0;
            match state.phase {
                // `connection_lost` needs to know that the protocol had no `connection_made`.
                Phase::Handshake => Phase::Handshake,
                _ => std::mem::replace(&mut state.phase, Phase::Closing),
            }
        });
        if phase == Phase::Handshake {
            this.service.get().count_failed_handshake(py);
        }
        match this.lower(py) {
            Some(lower) => lower.end(py, Closing::Gracefully),
            None => Ok(()),
        }
    }

    fn write_records(lower: &LowerTransport, py: Python<'_>, records: Vec<u8>) -> PyResult<()> {
        match records.is_empty() {
            true => Ok(()),
            false => lower.write_pieces(py, vec![records.into()]),
        }
    }
}

impl TlsServerState {
    /// Reads bytes of the client. `None` if they are not wanted any more.
    fn handle_input(&mut self, data: BytesMut) -> Option<Received> {
        if matches!(self.phase, Phase::Closing | Phase::Over) {
            return None;
        }
        let session = self.session.as_mut()?;
        let mut received = Received::default();
        let was_closed = session.has_peer_closed();
        let outcome = session.handle_input(data, &mut received.plain, &mut received.records);
        let is_complete = !session.is_handshaking();
        received.has_failed = outcome.is_err();
        received.has_handshake_ended =
            self.phase == Phase::Handshake && is_complete && outcome.is_ok();
        received.has_peer_closed = session.has_peer_closed() && !was_closed;
        let held = session.incoming_bytes();
        if let Some(holding) = &mut self.holding {
            let before = holding.data();
            holding.set(held);
            received.has_grown = holding.data() > before;
        }
        Some(received)
    }
}

impl TcpConnection for Py<TlsServerTransport> {
    /// Ends a handshake that takes too long.
    fn tick(&self, py: Python<'_>, now: Instant) -> PyResult<()> {
        let this = self.get();
        let began = this.state.with(py, |state| state.began);
        let limit: Duration = this.service.get().handshake_timeout();
        match now.duration_since(began) > limit {
            true => TlsServerTransport::abort(self.bind(py)),
            false => Ok(()),
        }
    }

    /// The connection of HTTP that begins after the handshake asks whether the server is stopping.
    fn announce_stop(&self, _py: Python<'_>) -> PyResult<()> {
        Ok(())
    }

    fn shed(&self, py: Python<'_>) -> PyResult<()> {
        TlsServerTransport::abort(self.bind(py))
    }

    fn data_of(&self, py: Python<'_>, account: &Arc<Account>) -> usize {
        self.get().session_data_of(py, account)
    }

    fn clone_ref(&self, py: Python<'_>) -> Box<dyn TcpConnection> {
        Box::new(Py::clone_ref(self, py))
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(self)
    }
}
