//! WebSocket frames for the client, which is written in Python: the functions of `uringcore_http::ws` as a class and
//! two functions.
//!
//! The frames of a server's WebSockets are read in `asgi` and never reach Python.

use bytes::{Buf, BytesMut};
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use pyo3::{create_exception, intern};
use uringcore_http::ws::{Close, Event, Opcode, Reader, Side, frame};

use crate::capi::gil_cell::GilCell;
use crate::capi::integer_arguments;

create_exception!(
    uringcore._uringcore,
    WebSocketFault,
    PyException,
    "The other side sent what no WebSocket may: `args` are the close code that says so (RFC 6455 section 7.4) and \
     the reason."
);

/// The receiving half of a client's WebSocket (RFC 6455): bytes in, messages of at most `max_size` bytes out.
#[pyclass(frozen, module = "uringcore._uringcore")]
struct WebSocketReader(GilCell<(Reader, BytesMut)>);

#[pymethods]
impl WebSocketReader {
    #[new]
    fn new(max_size: usize) -> Self {
        let reader = Reader::new(Side::Client, max_size);
        Self(GilCell::new((reader, BytesMut::new())))
    }

    /// Adds bytes that the client has received.
    fn feed(&self, py: Python<'_>, data: &[u8]) {
        self.0
            .with(py, |(_, unread)| unread.extend_from_slice(data));
    }

    /// Returns the next complete message: ("text", str), ("binary", bytes), ("ping", bytes), ("pong", bytes) or
    /// ("close", code, reason), with code 1005 for a Close frame without a code (RFC 6455 section 7.1.5). None if the
    /// message is incomplete. Raises WebSocketFault for a frame that violates the protocol.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let read = self.0.with(py, |(reader, unread)| {
            let mut rest = &unread[..];
            let read = reader.read(&mut rest);
            let used = unread.len() - rest.len();
            unread.advance(used);
            read
        });
        let event = read.map_err(|fault| WebSocketFault::new_err((fault.code, fault.reason)))?;
        let bytes = |kind, content: Vec<u8>| (kind, PyBytes::new(py, &content)).into_pyobject(py);
        Ok(Some(match event {
            None => return Ok(None),
            Some(Event::Text(text)) => {
                let text = PyString::from_bytes(py, text.as_bytes())?;
                (intern!(py, "text"), text).into_pyobject(py)?
            }
            Some(Event::Binary(content)) => bytes(intern!(py, "binary"), content)?,
            Some(Event::Ping(content)) => bytes(intern!(py, "ping"), content)?,
            Some(Event::Pong(content)) => bytes(intern!(py, "pong"), content)?,
            Some(Event::Close(Close { code, reason })) => {
                (intern!(py, "close"), code, reason).into_pyobject(py)?
            }
        }))
    }
}

/// Encodes a client's frame of the kind "text", "binary", "ping" or "pong". `mask` must be unpredictable (RFC 6455
/// section 5.3).
#[pyfunction]
fn websocket_frame<'py>(
    py: Python<'py>,
    kind: &str,
    payload: &[u8],
    mask: [u8; 4],
) -> Bound<'py, PyBytes> {
    let opcode = match kind {
        "text" => Opcode::Text,
        "ping" => Opcode::Ping,
        "pong" => Opcode::Pong,
        _ => Opcode::Binary,
    };
    PyBytes::new(py, &frame(opcode, payload, Some(mask)))
}

/// Encodes a client's Close frame. A reason that is too long is cut. Raises ValueError for a code that must not be
/// sent.
#[pyfunction]
fn websocket_close_frame<'py>(
    py: Python<'py>,
    #[pyo3(from_py_with = integer_arguments::code)] code: u64,
    reason: &str,
    mask: [u8; 4],
) -> PyResult<Bound<'py, PyBytes>> {
    let payload = match u16::try_from(code) {
        Ok(code) if Close::is_sendable(code) => Close::payload(code, reason),
        _ => {
            let message = format!("code: {code} is not a status code that may be sent");
            return Err(PyValueError::new_err(message));
        }
    };
    Ok(PyBytes::new(
        py,
        &frame(Opcode::Close, &payload, Some(mask)),
    ))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<WebSocketReader>()?;
    m.add("WebSocketFault", m.py().get_type::<WebSocketFault>())?;
    m.add_function(wrap_pyfunction!(websocket_frame, m)?)?;
    m.add_function(wrap_pyfunction!(websocket_close_frame, m)?)
}
