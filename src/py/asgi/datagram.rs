//! HTTP datagrams of a request (RFC 9297): `http.datagram.receive` and `http.datagram.send`, which an application is
//! given with the extension `http.datagram`.
//!
//! Towards the application [`WAITING_BYTES_MAX`] of them wait: of messages that may be lost the newest are worth
//! most. Towards the client they wait with QUIC, which drops the oldest as well. Nobody waits for anybody.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use uringcore_limits::budget::Charge;
use uringcore_quic::on_demand::Datagrams;

use super::message::required;
use super::request::Request;
use super::response::Sent;
use super::wire::Refused;
use crate::capi::buffer;
use crate::capi::cell::GilCell;

/// Those that wait for an application.
pub(super) type Waiting = Box<GilCell<Datagrams>>;

impl Request {
    /// The same with datagrams.
    pub fn with_datagrams(self, charge: Charge) -> Self {
        let mut datagrams = Datagrams::new(WAITING_BYTES_MAX);
        datagrams.set_charge(charge);
        Self {
            datagrams: Some(Box::new(GilCell::new(datagrams))),
            ..self
        }
    }

    /// One has come.
    pub fn datagram(&self, py: Python<'_>, data: bytes::Bytes) -> PyResult<()> {
        let Some(datagrams) = &self.datagrams else {
            return Ok(());
        };
        datagrams.with(py, |datagrams| datagrams.push(data));
        self.wake_readers(py)
    }

    /// The message of the next one.
    pub(super) fn next_datagram(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let next = |datagrams: &Waiting| datagrams.with(py, Datagrams::pop);
        let Some(data) = self.datagrams.as_ref().and_then(next) else {
            return Ok(None);
        };
        let message = PyDict::new(py);
        message.set_item(intern!(py, "type"), intern!(py, "http.datagram.receive"))?;
        message.set_item(intern!(py, "data"), PyBytes::new(py, &data))?;
        Ok(Some(message.into_any().unbind()))
    }

    /// `http.datagram.send`.
    pub(super) fn send_datagram(
        slf: &Bound<'_, Self>,
        message: &Bound<'_, PyAny>,
    ) -> PyResult<Sent> {
        let py = slf.py();
        let data = buffer::contiguous(&required(message, intern!(py, "data"))?, "data")?;
        // What a datagram belongs to is to be known first.
        Self::release_head(slf)?;
        let sent = slf.get().with_wire(py, |wire| wire.datagram(py, &data));
        slf.get().written(py);
        match sent {
            Some(Ok(true)) => Ok(Sent::Taken),
            // So that the loop comes to sending what waits.
            Some(Ok(false) | Err(Refused::Gone)) | None => Ok(Sent::ToNobody),
            Some(Err(refused)) => Self::outcome(slf, Some(Err(refused))).map(|()| Sent::Taken),
        }
    }
}

/// Of one request, an overhead for each of them counted in.
const WAITING_BYTES_MAX: usize = 128 << 10;
