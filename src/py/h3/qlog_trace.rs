//! Writes HTTP/3 frames and stream types to the qlog trace of a connection, in aioquic's format.
//!
//! Without a logger in the configuration, each call costs one check of a `bool`.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use uringcore_h3::{Logged, LoggedFrame};

use super::field_conversion;

/// True if the configuration of the QUIC connection has a logger.
pub fn is_wanted(configuration: &Bound<'_, PyAny>) -> PyResult<bool> {
    let logger = configuration.getattr_opt(intern!(configuration.py(), "quic_logger"))?;
    Ok(logger.is_some_and(|logger| !logger.is_none()))
}

/// Returns the qlog trace of a QUIC connection. `None` before the connection's start and after its end.
pub fn of<'py>(quic: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let trace = quic.getattr_opt(intern!(quic.py(), "_quic_logger"))?;
    Ok(trace.filter(|trace| !trace.is_none()))
}

/// Writes one entry to the trace.
pub fn write(trace: &Bound<'_, PyAny>, logged: Logged) -> PyResult<()> {
    let py = trace.py();
    let (event, data) = match logged {
        Logged::StreamType {
            stream_id,
            stream_type,
            push_id,
        } => {
            let data = PyDict::new(py);
            data.set_item("new", type_name(stream_type))?;
            data.set_item("stream_id", stream_id)?;
            if let Some(push_id) = push_id {
                data.set_item("associated_push_id", push_id)?;
            }
            ("stream_type_set", data.into_any())
        }
        Logged::Frame {
            is_sent,
            stream_id,
            length,
            frame,
        } => {
            let arguments = PyDict::new(py);
            arguments.set_item("length", length)?;
            arguments.set_item("stream_id", stream_id)?;
            let method = match frame {
                LoggedFrame::Data => "encode_http3_data_frame",
                LoggedFrame::Headers(lines) => {
                    arguments.set_item("headers", field_conversion::to_list(py, &lines)?)?;
                    "encode_http3_headers_frame"
                }
                LoggedFrame::PushPromise {
                    push_id,
                    fields: lines,
                } => {
                    arguments.set_item("headers", field_conversion::to_list(py, &lines)?)?;
                    arguments.set_item("push_id", push_id)?;
                    "encode_http3_push_promise_frame"
                }
            };
            let event = match is_sent {
                true => "frame_created",
                false => "frame_parsed",
            };
            let data = trace.call_method(method, (), Some(&arguments))?;
            // The visualiser qvis reads the length from this key.
            data.set_item("byte_length", length)?;
            (event, data)
        }
    };
    let arguments = PyDict::new(py);
    arguments.set_item("category", "http")?;
    arguments.set_item("event", event)?;
    arguments.set_item("data", data)?;
    trace.call_method(intern!(py, "log_event"), (), Some(&arguments))?;
    Ok(())
}

fn type_name(stream_type: u64) -> &'static str {
    match stream_type {
        0x00 => "control",
        0x01 => "push",
        0x02 => "qpack_encoder",
        0x03 => "qpack_decoder",
        0x54 => "webtransport",
        _ => "unknown",
    }
}

/// The largest number of entries that wait for the start of a trace.
pub const WAITING_MAX: usize = 256;
