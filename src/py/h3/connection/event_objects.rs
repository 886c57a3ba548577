//! Makes the Python objects of HTTP/3 events. Not here: the classes (`events`), and the moment at which an event
//! occurs.

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use uringcore_h3::{Event, Role};

use super::quic_bridge::{OpenConnection, is_unidirectional};
use crate::h3::events::{
    DataReceived, DatagramReceived, GoAwayReceived, HeadersReceived, MessageAborted,
    PushPromiseReceived, WebTransportStreamDataReceived,
};
use crate::h3::field_conversion;

impl OpenConnection {
    /// Makes the Python object of an event. `None` for events that aioquic's programs get from QUIC itself.
    pub(super) fn object<'py>(
        &self,
        py: Python<'py>,
        event: Event,
        whole: Option<&(u64, Bound<'py, PyBytes>)>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let object = match event {
            Event::Headers {
                stream_id,
                fields,
                fin,
                ..
            } => HeadersReceived {
                headers: field_conversion::to_list(py, &fields)?.into_any().unbind(),
                stream_id,
                stream_ended: fin,
                push_id: self.push_id(py, stream_id),
                early_data: self.early.with(py, |early| early.remove(&stream_id)),
            }
            .object(py)?,
            Event::Data {
                stream_id,
                data,
                fin,
            } => DataReceived {
                data: content(py, stream_id, &data, whole),
                stream_id,
                stream_ended: fin,
                push_id: self.push_id(py, stream_id),
            }
            .object(py)?,
            Event::PushPromise {
                stream_id,
                push_id,
                fields,
            } => PushPromiseReceived {
                headers: field_conversion::to_list(py, &fields)?.into_any().unbind(),
                push_id,
                stream_id,
            }
            .object(py)?,
            Event::Datagram { stream_id, data } => DatagramReceived {
                data: PyBytes::new(py, &data).into_any().unbind(),
                stream_id,
            }
            .object(py)?,
            Event::WebTransportData {
                session_id,
                stream_id,
                data,
                fin,
            } => WebTransportStreamDataReceived {
                data: content(py, stream_id, &data, whole),
                stream_id,
                stream_ended: fin,
                session_id,
            }
            .object(py)?,
            Event::Reset {
                stream_id,
                code,
                local: true,
            } if !self.close_on_malformed => MessageAborted {
                stream_id,
                error_code: code,
            }
            .object(py)?,
            Event::GoAway { id } if self.core.with(py, |core| core.role() == Role::Client) => {
                GoAwayReceived { stream_id: id }.object(py)?
            }
            // `set_answers_large_requests` is not used here, and aioquic has no event for priorities.
            Event::HeadersTooLarge { .. } | Event::PriorityUpdate { .. } => return Ok(None),
            Event::SettingsReceived
            | Event::Reset { .. }
            | Event::StopSending { .. }
            | Event::GoAway { .. } => return Ok(None),
        };
        Ok(Some(object))
    }

    /// The ID of the push that a stream carries. Only unidirectional streams of a server carry one.
    fn push_id(&self, py: Python<'_>, stream_id: u64) -> Option<u64> {
        match is_unidirectional(stream_id) {
            true => self.core.with(py, |core| core.push_id(stream_id)),
            false => None,
        }
    }
}

/// The content of a message as `bytes`. If it is all that has arrived, the arrived `bytes` object is used again.
fn content(
    py: Python<'_>,
    stream_id: u64,
    data: &Bytes,
    whole: Option<&(u64, Bound<'_, PyBytes>)>,
) -> Py<PyAny> {
    match whole {
        // The content is a part of the bytes that have just arrived on this stream, so equal lengths mean equal
        // contents.
        Some((arrived_on, arrived))
            if *arrived_on == stream_id && arrived.as_bytes().len() == data.len() =>
        {
            arrived.clone().into_any().unbind()
        }
        _ => PyBytes::new(py, data).into_any().unbind(),
    }
}
