//! Makes the exceptions that streams raise, which are defined in `uringcore.quic._errors`.

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use uringcore_http::webtransport::NO_CODE;
use uringcore_quic::DatagramError;

/// The error of a read after the peer has reset its sending side of the stream.
pub fn stream_reset(py: Python<'_>, stream_id: u64, code: u64) -> PyErr {
    of_quic(py, "StreamResetError", (stream_id, applications(code)))
}

/// The error of a send after the peer has sent STOP_SENDING for the stream.
pub fn stream_stopped(py: Python<'_>, stream_id: u64, code: u64) -> PyErr {
    of_quic(py, "StreamStoppedError", (stream_id, applications(code)))
}

/// The application's error code for Python. The peer of a WebTransport session may have sent a code that is none of
/// an application's; it becomes 0.
fn applications(code: u64) -> u64 {
    match code {
        NO_CODE => 0,
        code => code,
    }
}

/// The error of a call after this side has ended the stream, or the direction that the call uses.
pub fn stream_closed(py: Python<'_>, stream_id: u64, what: &str) -> PyErr {
    of_quic(py, "StreamClosedError", (stream_id, what))
}

/// The error for a datagram that cannot be sent.
pub fn datagram(py: Python<'_>, error: DatagramError) -> PyErr {
    of_quic(py, "DatagramSendError", (error.to_string(),))
}

/// The error of a call between this side's close of the connection and the event of the connection's end.
pub fn connection_closed(py: Python<'_>) -> PyErr {
    let (code, frame_type) = (0, py.None());
    let message = "the connection was closed on this side";
    of_quic(py, "ConnectionClosedError", (code, frame_type, "", message))
}

/// The error for a stream that has ended too early, with the bytes `partial`. `expected` is the requested number of
/// bytes, if a number was requested.
pub fn incomplete(py: Python<'_>, partial: Py<PyAny>, expected: Option<usize>) -> PyErr {
    of_asyncio(py, "IncompleteReadError", (partial, expected))
}

/// The error for `consumed` bytes without a separator. They stay unread.
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
