//! The limits of a server's HTTP/3 connections, as Python passes them.

use bytes::Bytes;
use pyo3::prelude::*;
use uringcore_h3::Settings;
use uringcore_http::http3::{Limits, Unsafe};

use crate::capi::bounded_arguments::{List, positive_span};

/// Checked limits of a server's HTTP/3 connections. Times are in seconds.
///
/// With `refuses_early`, requests in 0-RTT data that must not be repeated are answered with 425 instead of waiting
/// for the handshake. `protocols` are the protocols of extended CONNECT, besides WebSocket, that applications
/// support; with any of them, support for HTTP datagrams is announced.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct Http3Limits {
    pub limits: Limits,
    pub settings: Settings,
    pub open_files: usize,
    pub process_files: Option<usize>,
    pub large_messages: usize,
}

#[pymethods]
impl Http3Limits {
    #[new]
    #[pyo3(signature = (
        *, max_requests, max_requests_per_connection, max_header_bytes, max_header_fields,
        max_early_resets, early_reset_rate, header_timeout, body_timeout, body_rate, send_timeout,
        send_rate, send_rate_grace, keep_alive, max_open_files, max_process_files, max_large_messages,
        refuses_early = false, protocols = List(Vec::new()),
    ))]
    #[expect(clippy::too_many_arguments)] // Keyword arguments in Python.
    fn new(
        max_requests: usize,
        max_requests_per_connection: Option<u64>,
        max_header_bytes: u64,
        max_header_fields: u64,
        max_early_resets: u32,
        early_reset_rate: f64,
        header_timeout: f64,
        body_timeout: f64,
        body_rate: u64,
        send_timeout: f64,
        send_rate: u64,
        send_rate_grace: f64,
        keep_alive: f64,
        max_open_files: usize,
        max_process_files: Option<usize>,
        max_large_messages: usize,
        refuses_early: bool,
        protocols: List<String>,
    ) -> PyResult<Self> {
        let has_datagrams = !protocols.0.is_empty();
        let protocols = protocols.0.into_iter().map(Bytes::from);
        let websocket = Bytes::from_static(b"websocket");
        Ok(Self {
            limits: Limits {
                open_requests: max_requests,
                requests: max_requests_per_connection,
                early_resets: max_early_resets,
                early_resets_per_second: early_reset_rate,
                header_timeout: positive_span("header_timeout", header_timeout)?,
                body_timeout: positive_span("body_timeout", body_timeout)?,
                body_rate,
                send_timeout: positive_span("send_timeout", send_timeout)?,
                send_rate,
                send_rate_grace: positive_span("send_rate_grace", send_rate_grace)?,
                protocols: std::iter::once(websocket).chain(protocols).collect(),
                keep_alive: positive_span("keep_alive", keep_alive)?,
                unsafe_early: match refuses_early {
                    true => Unsafe::Refused,
                    false => Unsafe::Waits,
                },
            },
            settings: Settings {
                max_field_section_size: max_header_bytes,
                max_fields: max_header_fields,
                max_requests: Some(max_requests as u64),
                h3_datagram: has_datagrams,
                ..Settings::default()
            },
            open_files: max_open_files,
            process_files: max_process_files,
            large_messages: max_large_messages,
        })
    }
}
