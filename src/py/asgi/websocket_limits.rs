//! [`WebSocketLimits`]: the options of a server for each WebSocket, converted from Python to [`Limits`].

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use uringcore_http::ws::Limits;

use crate::capi::bounded_arguments;

/// The limits of each WebSocket of a server.
///
/// `max_size` is the largest message in bytes, `max_queue` the number of messages that wait for the application.
/// `ping_interval` is in seconds, or None for no pings. `ping_timeout` is the time in seconds within which each ping
/// must be answered, or None for no limit.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct WebSocketLimits(pub Limits);

#[pymethods]
impl WebSocketLimits {
    #[new]
    #[pyo3(signature = (*, max_size, max_queue, ping_interval, ping_timeout))]
    fn new(
        max_size: usize,
        max_queue: usize,
        ping_interval: Option<f64>,
        ping_timeout: Option<f64>,
    ) -> PyResult<Self> {
        let seconds = |name: &str, value: Option<f64>| match value {
            // 0 means "never", as in uvicorn.
            None | Some(0.0) => Ok(None),
            Some(value) => bounded_arguments::span(value).map(Some).ok_or_else(|| {
                PyValueError::new_err(format!("{name}: not a number of seconds: {value}"))
            }),
        };
        Ok(Self(Limits {
            message_max: max_size,
            queue_max: max_queue.max(1),
            ping_interval: seconds("ping_interval", ping_interval)?,
            ping_timeout: seconds("ping_timeout", ping_timeout)?,
        }))
    }
}
