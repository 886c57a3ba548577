//! HTTP datagrams of a request (RFC 9297): the messages `http.datagram.receive` and `http.datagram.send`. A request
//! whose scope has the extension `http.datagram` may use them.
//!
//! At most [`WAITING_BYTES_MAX`] of received datagrams wait for the application. Above that the oldest are dropped,
//! because the newest are worth most. Sent datagrams wait in QUIC, which drops the oldest as well. Neither direction
//! waits for the other.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use uringcore_limits::memory_budget::Charge;
use uringcore_quic::read_on_demand::Datagrams;

use super::http_stream::Refused;
use super::message_parser::required;
use super::request::Request;
use super::response::Sent;
use crate::capi::bytes_like_objects;
use crate::capi::gil_cell::GilCell;

/// Received datagrams that wait for the application.
pub(super) type QueuedDatagrams = Box<GilCell<Datagrams>>;

impl Request {
    /// Adds a queue of datagrams to the request. `charge` accounts it to the client.
    pub fn with_datagrams(self, charge: Charge) -> Self {
        let mut datagrams = Datagrams::new(WAITING_BYTES_MAX);
        datagrams.set_charge(charge);
        Self {
            datagrams: Some(Box::new(GilCell::new(datagrams))),
            ..self
        }
    }

    /// Handles a received datagram.
    pub fn datagram(&self, py: Python<'_>, data: bytes::Bytes) -> PyResult<()> {
        let Some(datagrams) = &self.datagrams else {
            return Ok(());
        };
        datagrams.with(py, |datagrams| datagrams.push(data));
        self.wake_readers(py)
    }

    /// The message of the next datagram. `None` if none waits.
    pub(super) fn next_datagram(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let next = |datagrams: &QueuedDatagrams| datagrams.with(py, Datagrams::pop);
        let Some(data) = self.datagrams.as_ref().and_then(next) else {
            return Ok(None);
        };
        let message = PyDict::new(py);
        message.set_item(intern!(py, "type"), intern!(py, "http.datagram.receive"))?;
        message.set_item(intern!(py, "data"), PyBytes::new(py, &data))?;
        Ok(Some(message.into_any().unbind()))
    }

    /// Handles the message `http.datagram.send`.
    pub(super) fn send_datagram(
        slf: &Bound<'_, Self>,
        message: &Bound<'_, PyAny>,
    ) -> PyResult<Sent> {
        let py = slf.py();
        let data =
            bytes_like_objects::contiguous(&required(message, intern!(py, "data"))?, "data")?;
        // The head is sent first, because the client needs it to accept datagrams of the response.
        Self::release_head(slf)?;
        let sent = slf
            .get()
            .with_stream(py, |stream| stream.datagram(py, &data));
        slf.get().written(py);
        match sent {
            Some(Ok(true)) => Ok(Sent::Taken),
            // The call waits for one loop iteration, so that the loop can send the queued datagrams.
            Some(Ok(false) | Err(Refused::Gone)) | None => Ok(Sent::ToNobody),
            Some(Err(refused)) => Self::outcome(slf, Some(Err(refused))).map(|()| Sent::Taken),
        }
    }
}

/// The limit of a request's waiting datagrams in bytes. Each counts with an overhead.
const WAITING_BYTES_MAX: usize = 128 << 10;
