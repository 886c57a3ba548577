//! A request that is a WebSocket: converts the client's frames to ASGI's `websocket` messages and back.
//!
//! Such a request has a [`Socket`]. The methods of [`Request`] call the functions here. `uringcore_http::ws` reads
//! the frames; [`HttpStream`](super::http_stream::HttpStream) is the stream that carries them.
//!
//! A message is passed to the client as a whole, because another message may be sent while it waits. So `send` waits
//! before it passes the message on.

use std::time::Instant;

use bytes::Bytes;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use pyo3::{create_exception, intern};
use uringcore_http::ws::{
    Close, Event, FrameHead, Opcode, Phase, Socket, Stop, close_codes, frame,
};

use super::http_stream::Ending;
use super::message_parser::{optional, required};
use super::request::{Answer, Request};
use super::response::Sent;
use crate::capi::bytes_like_objects::{self, REFERENCED_FROM_BYTES};
use crate::capi::integer_arguments::of_bits;

create_exception!(
    uringcore._uringcore,
    ClientDisconnected,
    PyOSError,
    "A WebSocket message was sent after its client had gone or closed the connection."
);

/// Methods that the connection calls.
impl Request {
    /// Reads data of the client. `None` if this is not a WebSocket.
    pub(super) fn socket_content(
        &self,
        py: Python<'_>,
        pieces: &[Bytes],
        ended: bool,
    ) -> Option<PyResult<()>> {
        let socket = self.socket.as_ref()?;
        let stop = socket.with(py, |socket| {
            let (last, before) = pieces
                .split_last()
                .map_or((&[][..], pieces), |(last, before)| (&last[..], before));
            let stop = before
                .iter()
                .find_map(|piece| socket.received(piece, false));
            stop.or_else(|| socket.received(last, ended))
        });
        Some(self.socket_has_read(py, stop))
    }

    /// Handles the result of a read. `stop` is the reason for which reading has ended, if it has.
    fn socket_has_read(&self, py: Python<'_>, stop: Option<Stop>) -> PyResult<()> {
        let is_over = stop.is_some();
        match stop {
            None => self.send_pongs(py),
            // The received code is sent back (RFC 6455 section 5.5.1).
            Some(Stop::Closed(close)) => {
                let reply = Event::Close(close.clone()).to_frame(None);
                self.send_last(py, reply, close);
            }
            Some(Stop::Violation(fault)) => {
                let close = Close {
                    code: fault.code,
                    reason: fault.reason.to_owned(),
                };
                self.send_last(py, Event::Close(close.clone()).to_frame(None), close);
                self.with_stream(py, |stream| stream.end(py, Ending::NoMoreWanted));
            }
            Some(Stop::Lost) => self.send_last(py, Bytes::new(), Close::abnormal()),
        }
        self.update_pause(py);
        match is_over {
            true => self.wake_all(py),
            false => self.wake_readers(py),
        }
    }

    /// Pauses or resumes reading from the client, depending on the space in the queue of messages.
    pub fn update_pause(&self, py: Python<'_>) {
        let Some(socket) = &self.socket else { return };
        let (is_full, frees_permit, held) = socket.with(py, |socket| {
            let is_full = socket.is_full();
            (is_full, socket.permits.take_wanted(), socket.held_bytes())
        });
        let changes = self.state.with(py, |state| {
            state.charge.set(held);
            std::mem::replace(&mut state.is_paused, is_full) != is_full
        });
        if changes {
            self.with_stream(py, |stream| match is_full {
                true => stream.pause(py),
                false => stream.resume(py),
            });
        }
        if frees_permit {
            self.with_stream(py, |stream| stream.message_permit_is_free(py));
        }
    }

    /// Ends the WebSocket, because the client has gone.
    pub(super) fn socket_lost(&self, py: Python<'_>) {
        if let Some(socket) = &self.socket {
            let held = socket.with(py, |socket| {
                socket.end(Close::abnormal());
                socket.held_bytes()
            });
            self.state.with(py, |state| state.charge.set(held));
        }
    }

    /// Sends the pongs that wait for space on the stream.
    pub(super) fn send_pongs(&self, py: Python<'_>) {
        let Some(socket) = &self.socket else { return };
        if !socket.with(py, |socket| socket.has_pongs()) {
            return;
        }
        // If the stream is full, the connection calls this again when there is space.
        if self.with_stream(py, |stream| stream.is_held_up(py)) == Some(false) {
            let pongs = socket.with(py, Socket::take_pongs);
            self.send_control(py, pongs);
        }
    }

    fn send_control(&self, py: Python<'_>, frames: Bytes) {
        // A refusal means that the stream has ended. The event of its end follows.
        self.with_stream(py, |stream| stream.content(py, frames, false));
    }

    /// Sends the last frame and ends the stream, as a TCP connection would be ended (RFC 9220 section 3). The
    /// application gets `close`, unless it has got another end already.
    fn send_last(&self, py: Python<'_>, last: Bytes, close: Close) {
        let Some(socket) = &self.socket else { return };
        let was_open = socket.with(py, |socket| {
            let was_open = socket.phase == Phase::Open;
            socket.end(close);
            was_open
        });
        if was_open {
            self.with_stream(py, |stream| stream.content(py, last, true));
            self.state.with(py, |state| state.response.complete());
        }
    }

    /// Closes the WebSocket with `code` on behalf of the server. Returns false if it is not open.
    pub(super) fn close_socket(&self, py: Python<'_>, code: u16, reason: &str) -> bool {
        let is_open = |socket: &mut Socket| socket.phase == Phase::Open;
        let Some(socket) = &self.socket else {
            return false;
        };
        let was_open = socket.with(py, is_open);
        if was_open {
            let close = Close {
                code,
                reason: reason.to_owned(),
            };
            self.send_last(py, Event::Close(close.clone()).to_frame(None), close);
            self.update_pause(py);
        }
        was_open
    }

    /// Closes the WebSocket with the code 1012, because the server stops.
    pub fn socket_restarts(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let Some(socket) = &this.socket else {
            return Ok(());
        };
        if socket.with(py, |socket| socket.phase == Phase::Connecting) {
            socket.with(py, |socket| socket.end(Close::abnormal()));
            Self::respond_or_end(slf, 503, b"Service Unavailable")?;
        }
        this.close_socket(py, close_codes::SERVICE_RESTART, "");
        this.wake_all(py)
    }

    /// Checks the time-outs. Called about once a second.
    pub fn socket_tick(&self, py: Python<'_>, now: Instant) -> PyResult<()> {
        let Some(socket) = &self.socket else {
            return Ok(());
        };
        if socket.with(py, |socket| socket.is_unresponsive(now)) {
            socket.with(py, |socket| socket.ended = Some(Close::abnormal()));
            self.close_socket(py, close_codes::INTERNAL_ERROR, "keepalive ping timeout");
            self.with_stream(py, |stream| stream.end(py, Ending::Cancelled));
            return self.wake_all(py);
        }
        socket.with(py, Socket::free_unused);
        // Another WebSocket may have ended and freed a permit without an event for this one.
        self.update_pause(py);
        if let Some(payload) = socket.with(py, |socket| socket.take_ping(now)) {
            self.send_control(py, frame(Opcode::Ping, &payload, None));
        }
        Ok(())
    }

    /// True if the WebSocket has ended before the application has closed it.
    pub(super) fn is_socket_over(&self, py: Python<'_>) -> bool {
        let is_closed = |socket: &mut Socket| socket.phase == Phase::Closed;
        let socket = self.socket.as_ref();
        socket.is_some_and(|socket| socket.with(py, is_closed))
    }

    pub fn is_socket(&self) -> bool {
        self.socket.is_some()
    }
}

/// Methods for `receive`.
impl Request {
    /// Returns the next message, or a wait for it. `None` if this is not a WebSocket.
    pub(super) fn next_socket_message(
        &self,
        py: Python<'_>,
    ) -> Option<PyResult<Answer<Py<PyAny>>>> {
        let socket = self.socket.as_ref()?;
        let is_first = socket.with(py, |socket| {
            !std::mem::replace(&mut socket.connect_reported, true)
        });
        if is_first {
            return Some(connect_message(py).map(Answer::Now));
        }
        let message = socket.with(py, Socket::next_message);
        let asked = match message {
            Some(message) => {
                let stop = socket.with(py, |socket| match socket.phase {
                    Phase::Open => socket.read_on(),
                    _ => None,
                });
                self.socket_has_read(py, stop)
                    .and_then(|()| receive_message(py, &message))
            }
            None => match socket.with(py, |socket| socket.ended.clone()) {
                Some(close) => disconnect_message(py, &close),
                None => {
                    socket.with(py, |socket| socket.is_awaited = true);
                    self.update_pause(py);
                    return Some(Ok(Answer::Wait));
                }
            },
        };
        Some(asked.map(Answer::Now))
    }
}

fn connect_message(py: Python<'_>) -> PyResult<Py<PyAny>> {
    let message = PyDict::new(py);
    message.set_item(intern!(py, "type"), intern!(py, "websocket.connect"))?;
    Ok(message.into_any().unbind())
}

fn receive_message(py: Python<'_>, event: &Event) -> PyResult<Py<PyAny>> {
    let message = PyDict::new(py);
    message.set_item(intern!(py, "type"), intern!(py, "websocket.receive"))?;
    match event {
        Event::Text(text) => {
            let text = PyString::from_bytes(py, text.as_bytes())?;
            message.set_item(intern!(py, "text"), text)?;
        }
        Event::Binary(content) => {
            message.set_item(intern!(py, "bytes"), PyBytes::new(py, content))?;
        }
        // These events are never queued for the application.
        Event::Ping(_) | Event::Pong(_) | Event::Close(_) => {}
    }
    Ok(message.into_any().unbind())
}

fn disconnect_message(py: Python<'_>, close: &Close) -> PyResult<Py<PyAny>> {
    let message = PyDict::new(py);
    message.set_item(intern!(py, "type"), intern!(py, "websocket.disconnect"))?;
    message.set_item(intern!(py, "code"), close.code)?;
    message.set_item(intern!(py, "reason"), &close.reason)?;
    Ok(message.into_any().unbind())
}

/// Methods for `send`.
impl Request {
    /// Handles a message of the application. `None` if this is not a WebSocket.
    pub(super) fn take_socket_message(
        slf: &Bound<'_, Self>,
        message: &Bound<'_, PyAny>,
    ) -> Option<PyResult<Sent>> {
        let socket = slf.get().socket.as_ref()?;
        let phase = socket.with(slf.py(), |socket| socket.phase);
        Some(Self::take_in_phase(slf, message, phase))
    }

    fn take_in_phase(
        slf: &Bound<'_, Self>,
        message: &Bound<'_, PyAny>,
        phase: Phase,
    ) -> PyResult<Sent> {
        let (py, this) = (slf.py(), slf.get());
        let kind = required(message, intern!(py, "type"))?;
        let kind: std::borrow::Cow<'_, str> = kind.extract()?;
        let (is_complete, is_gone) = this.state.with(py, |state| {
            (state.response.is_complete(), state.disconnected)
        });
        let expected = match (phase, &*kind) {
            _ if is_gone => return Err(ClientDisconnected::new_err("the client has gone")),
            (Phase::Connecting, "websocket.accept") => return Self::accept(slf, message),
            (Phase::Connecting, "websocket.close") => return Self::deny(slf),
            (Phase::Connecting, "websocket.http.response.start") => {
                let taken = Self::start(slf, message)?;
                this.enter(py, Phase::Denied);
                return Ok(taken);
            }
            (Phase::Connecting, _) => {
                "'websocket.accept', 'websocket.close' or 'websocket.http.response.start'"
            }
            (Phase::Denied, "websocket.http.response.body") if !is_complete => {
                let taken = Self::body(slf, message)?;
                if this.state.with(py, |state| state.response.is_complete()) {
                    this.socket_lost(py);
                    this.mark_closed(py);
                    this.wake_all(py)?;
                }
                return Ok(taken);
            }
            (Phase::Denied, _) if !is_complete => "'websocket.http.response.body'",
            (Phase::Open, "websocket.send") => return Self::send_message(slf, message),
            (Phase::Open, "websocket.close") => return Self::close_by_application(slf, message),
            (Phase::Open, _) => "'websocket.send' or 'websocket.close'",
            // The client has closed the WebSocket first, or the server stops.
            (Phase::Closed, kind) if !this.was_closed_by_application(py) => {
                return match kind {
                    "websocket.close" => Ok(Sent::Taken),
                    _ => Err(ClientDisconnected::new_err("the connection was closed")),
                };
            }
            (Phase::Denied | Phase::Closed, _) => {
                return Err(PyRuntimeError::new_err(format!(
                    "Unexpected ASGI message '{kind}', after sending 'websocket.close' or response already \
                     completed."
                )));
            }
        };
        Err(PyRuntimeError::new_err(format!(
            "Expected ASGI message {expected}, but got '{kind}'."
        )))
    }

    fn enter(&self, py: Python<'_>, phase: Phase) {
        if let Some(socket) = &self.socket {
            socket.with(py, |socket| socket.phase = phase);
        }
    }

    pub(super) fn was_closed_by_application(&self, py: Python<'_>) -> bool {
        let socket = self.socket.as_ref();
        socket.is_some_and(|socket| socket.with(py, |socket| socket.closed_by_application))
    }

    /// Handles the message `websocket.accept`.
    fn accept(slf: &Bound<'_, Self>, message: &Bound<'_, PyAny>) -> PyResult<Sent> {
        let (py, this) = (slf.py(), slf.get());
        let headers = optional(message, intern!(py, "headers"))?;
        let subprotocol = match optional(message, intern!(py, "subprotocol"))? {
            Some(subprotocol) if subprotocol.is_truthy()? => Some(subprotocol.extract::<String>()?),
            _ => None,
        };
        let line = subprotocol.as_ref().map(|subprotocol| {
            let name = PyBytes::new(py, b"sec-websocket-protocol");
            (
                name.unbind(),
                PyBytes::new(py, subprotocol.as_bytes()).unbind(),
            )
        });
        let agreed = this
            .socket
            .as_ref()
            .and_then(|it| it.with(py, |socket| socket.agreed()));
        let extension = agreed.map(|agreed| {
            let name = PyBytes::new(py, b"sec-websocket-extensions");
            let value = PyBytes::new(py, agreed.to_string().as_bytes());
            (name.unbind(), value.unbind())
        });
        let lines = line.into_iter().chain(extension);
        // The status 200 is the equivalent of 101 in HTTP/1.1 (RFC 9220 section 3).
        Self::hold_head(slf, 200, headers.as_ref(), lines)?;
        Self::send_part(slf, Bytes::new(), false, false)?;
        this.written(py);
        if this.state.with(py, |state| state.disconnected) {
            return Err(ClientDisconnected::new_err("the client has gone"));
        }
        let Some(socket) = &this.socket else {
            return Ok(Sent::Taken);
        };
        let stop = socket.with(py, |socket| socket.open(Instant::now()));
        this.socket_has_read(py, stop)?;
        Ok(Sent::Taken)
    }

    /// Handles the message `websocket.close` in place of `websocket.accept`.
    fn deny(slf: &Bound<'_, Self>) -> PyResult<Sent> {
        let (py, this) = (slf.py(), slf.get());
        this.socket_lost(py);
        this.mark_closed(py);
        Self::respond(slf, 403, b"")?;
        this.wake_all(py)?;
        Ok(Sent::Taken)
    }

    fn mark_closed(&self, py: Python<'_>) {
        if let Some(socket) = &self.socket {
            socket.with(py, |socket| socket.closed_by_application = true);
        }
    }

    /// Handles the message `websocket.send`.
    fn send_message(slf: &Bound<'_, Self>, message: &Bound<'_, PyAny>) -> PyResult<Sent> {
        let py = slf.py();
        if let Some(bytes) = given(message, intern!(py, "bytes"))? {
            match bytes.cast::<PyBytes>() {
                Ok(bytes) if bytes.as_bytes().len() < REFERENCED_FROM_BYTES => {
                    Self::send_joined(slf, Opcode::Binary, bytes.as_bytes())
                }
                _ => {
                    let content = bytes_like_objects::contiguous(&bytes, "bytes")?;
                    Self::send_content(slf, Opcode::Binary, content)
                }
            }
        } else if let Some(text) = given(message, intern!(py, "text"))? {
            let text = text.cast::<PyString>()?;
            match text.to_str()? {
                short if short.len() < REFERENCED_FROM_BYTES => {
                    Self::send_joined(slf, Opcode::Text, short.as_bytes())
                }
                _ => Self::send_content(slf, Opcode::Text, bytes_like_objects::hold_text(text)?),
            }
        } else {
            // uvicorn ignores such a message too.
            Ok(Sent::Taken)
        }
    }

    /// Sends a message, without a copy of its content if it is large, not compressed, and accepted at once.
    fn send_content(slf: &Bound<'_, Self>, opcode: Opcode, content: Bytes) -> PyResult<Sent> {
        let (py, this) = (slf.py(), slf.get());
        let Some(socket) = &this.socket else {
            return Ok(Sent::Taken);
        };
        let is_held_up = || this.with_stream(py, |stream| stream.is_held_up(py)) == Some(true);
        let is_short = content.len() < REFERENCED_FROM_BYTES;
        if is_short || socket.with(py, |socket| socket.compresses()) || is_held_up() {
            return Self::send_joined(slf, opcode, &content);
        }
        this.check_socket(py)?;
        let head = FrameHead::new(opcode, content.len());
        let sent = this.with_stream(py, |stream| stream.frame(py, head.as_bytes(), content));
        if sent.is_none() {
            return Ok(Sent::ToNobody);
        }
        Self::outcome(slf, sent)?;
        this.written(py);
        Ok(match is_held_up() {
            true => Sent::Full,
            false => Sent::Taken,
        })
    }

    /// Sends a message whose header and content are joined, and compressed if both sides have agreed on it.
    fn send_joined(slf: &Bound<'_, Self>, opcode: Opcode, content: &[u8]) -> PyResult<Sent> {
        let (py, this) = (slf.py(), slf.get());
        let Some(socket) = &this.socket else {
            return Ok(Sent::Taken);
        };
        // A compressed message must be sent, because later ones refer to it. So the wait for space, which the program
        // may cancel, comes before the compression.
        if socket.with(py, |socket| socket.compresses())
            && this.with_stream(py, |stream| stream.is_held_up(py)) == Some(true)
        {
            return Ok(Sent::NotTaken(content.len()));
        }
        let whole = socket.with(py, |socket| socket.to_frame(opcode, content));
        Self::send_rest(slf, whole, false)
    }

    /// Handles the message `websocket.close`.
    fn close_by_application(slf: &Bound<'_, Self>, message: &Bound<'_, PyAny>) -> PyResult<Sent> {
        let (py, this) = (slf.py(), slf.get());
        let code = match given(message, intern!(py, "code"))? {
            Some(code) => of_bits(&code, "code", u16::BITS)? as u16,
            None => close_codes::NORMAL,
        };
        if !Close::is_sendable(code) {
            let text = format!("code: {code} is not a status code that may be sent");
            return Err(PyValueError::new_err(text));
        }
        let reason = match given(message, intern!(py, "reason"))? {
            Some(reason) => reason.extract()?,
            None => String::new(),
        };
        this.mark_closed(py);
        this.close_socket(py, code, &reason);
        this.wake_all(py)?;
        Ok(Sent::Taken)
    }

    /// Fails if the WebSocket has ended. A message that waits for space is not sent then, and `send` raises this error.
    pub(super) fn check_socket(&self, py: Python<'_>) -> PyResult<()> {
        match self.is_socket_over(py) {
            true => Err(ClientDisconnected::new_err("the connection was closed")),
            false => Ok(()),
        }
    }
}

/// The value of a key of a message. `None` if the key is missing or its value is None.
fn given<'py>(
    message: &Bound<'py, PyAny>,
    key: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    Ok(optional(message, key)?.filter(|value| !value.is_none()))
}
