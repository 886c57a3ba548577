//! [`WebSocketLimits`]: the options of a server for each WebSocket, converted from Python to [`Limits`], and the start of
//! a WebSocket with them.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use uringcore_http::request_head::Head;
use uringcore_http::ws::{Agreed, Limits, Socket};
use uringcore_limits::semaphore::Semaphore;

use crate::capi::bounded_arguments;

/// The limits of each WebSocket of a server.
///
/// `max_size` is the largest message in bytes, `max_queue` the number of messages that wait for the application.
/// `ping_interval` is in seconds, or None for no pings. `ping_timeout` is the time in seconds within which each ping
/// must be answered, or None for no limit. `compresses` is true if messages may be compressed (RFC 7692).
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct WebSocketLimits {
    limits: Limits,
    compresses: bool,
}

#[pymethods]
impl WebSocketLimits {
    #[new]
    #[pyo3(signature = (*, max_size, max_queue, ping_interval, ping_timeout, compresses))]
    fn new(
        max_size: usize,
        max_queue: usize,
        ping_interval: Option<f64>,
        ping_timeout: Option<f64>,
        compresses: bool,
    ) -> PyResult<Self> {
        let seconds = |name: &str, value: Option<f64>| match value {
            // 0 means "never", as in uvicorn.
            None | Some(0.0) => Ok(None),
            Some(value) => bounded_arguments::span(value).map(Some).ok_or_else(|| {
                PyValueError::new_err(format!("{name}: not a number of seconds: {value}"))
            }),
        };
        Ok(Self {
            limits: Limits {
                message_max: max_size,
                queue_max: max_queue.max(1),
                ping_interval: seconds("ping_interval", ping_interval)?,
                ping_timeout: seconds("ping_timeout", ping_timeout)?,
            },
            compresses,
        })
    }
}

impl WebSocketLimits {
    /// Makes the state of a WebSocket, and agrees on compression with the client. `ended` is true if the client sends
    /// nothing. `permits` are those for large messages.
    pub fn socket(&self, head: &Head, ended: bool, permits: Arc<Semaphore>) -> Socket {
        let socket = Socket::new(&self.limits, ended, permits);
        let fields = head.fields.iter();
        let offers = fields.filter(|(name, _)| &**name == b"sec-websocket-extensions");
        let agreed = match self.compresses {
            true => Agreed::to_offers(offers.map(|(_, value)| &**value)),
            false => None,
        };
        match agreed {
            Some(agreed) => socket.with_compression(agreed),
            None => socket,
        }
    }
}
