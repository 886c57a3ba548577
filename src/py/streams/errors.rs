//! The exceptions of `uringcore.quic._errors` that streams raise.

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use uringcore_http::webtransport::NO_CODE;
use uringcore_quic::DatagramError;

/// The peer has abandoned its side of the stream.
pub fn stream_reset(py: Python<'_>, stream_id: u64, code: u64) -> PyErr {
    of_quic(py, "StreamResetError", (stream_id, applications(code)))
}

/// The peer accepts no more data.
pub fn stream_stopped(py: Python<'_>, stream_id: u64, code: u64) -> PyErr {
    of_quic(py, "StreamStoppedError", (stream_id, applications(code)))
}

/// An application's code. A session's peer may have sent none; then it is the code of no error.
fn applications(code: u64) -> u64 {
    match code {
        NO_CODE => 0,
        code => code,
    }
}

/// This side has ended the stream, or this direction of it.
pub fn stream_closed(py: Python<'_>, stream_id: u64, what: &str) -> PyErr {
    of_quic(py, "StreamClosedError", (stream_id, what))
}

/// A datagram that cannot be sent.
pub fn datagram(py: Python<'_>, error: DatagramError) -> PyErr {
    of_quic(py, "DatagramSendError", (error.to_string(),))
}

/// This side has closed the connection, and the event of its end has not come yet.
pub fn connection_closed(py: Python<'_>) -> PyErr {
    let (code, frame_type) = (0, py.None());
    let message = "the connection was closed on this side";
    of_quic(py, "ConnectionClosedError", (code, frame_type, "", message))
}

/// The end came too early; `expected` is the requested number of bytes, if there is one.
pub fn incomplete(py: Python<'_>, partial: Py<PyAny>, expected: Option<usize>) -> PyErr {
    of_asyncio(py, "IncompleteReadError", (partial, expected))
}

/// The first `consumed` bytes contain no separator, and stay unread.
pub fn limit_overrun(py: Python<'_>, consumed: usize) -> PyErr {
    let message = "the separator is not within the limit";
    of_asyncio(py, "LimitOverrunError", (message, consumed))
}

fn of_quic<'py>(py: Python<'py>, class: &str, args: impl PyCallArgs<'py>) -> PyErr {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    made(py, &MODULE, "uringcore.quic._errors", class, args)
}

fn of_asyncio<'py>(py: Python<'py>, class: &str, args: impl PyCallArgs<'py>) -> PyErr {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    made(py, &MODULE, "asyncio", class, args)
}

fn made<'py>(
    py: Python<'py>,
    known: &'static PyOnceLock<Py<PyModule>>,
    name: &str,
    class: &str,
    args: impl PyCallArgs<'py>,
) -> PyErr {
    let made = known
        .get_or_try_init(py, || py.import(name).map(Bound::unbind))
        .and_then(|module| module.bind(py).getattr(class)?.call1(args));
    made.map_or_else(|error| error, PyErr::from_value)
}
