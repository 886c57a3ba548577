//! A WebSocket's [`Limits`] from Python.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use uringcore_http::ws::Limits;

use crate::capi::bounded_arguments;

/// The limits of a WebSocket: `max_size` bytes of a message, `max_queue` messages that wait for the application.
/// `ping_interval` is in seconds, or None for no pings, and so is `ping_timeout`, within which each is answered.
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
            // uvicorn uses 0 for "never".
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
