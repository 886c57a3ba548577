//! Converts the limits of a server's connections from Python.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pyo3::prelude::*;
use uringcore_http::{http1, http2};
use uringcore_limits::connection_limits::{self, Connections};
use uringcore_limits::token_bucket::Rate;

use crate::capi::bounded_arguments::positive_span;
use crate::process_memory_budgets::budget_of;

/// The limits of all clients together: the fields of `uringcore.quic.ServerLimits` that apply to TCP.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct ClientOptions {
    accept_burst: u32,
    accept_rate: Option<f64>,
    handshake_timeout: f64,
    max_connections: usize,
    max_connections_per_address: Option<usize>,
    max_handshakes: usize,
    memory: usize,
}

/// Checked limits. Times are in seconds. `clients` has the options of `ServerLimits`. `websockets` is true if requests
/// may open a WebSocket, `is_secure` if the connections use TLS, and `uses_openssl` if that is CPython's.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct TcpLimits {
    pub http1: Arc<http1::Limits>,
    pub http2: Arc<http2::Limits>,
    pub open_files: usize,
    pub process_files: Option<usize>,
    pub large_messages: usize,
    /// True if the connections use TLS.
    pub is_secure: bool,
    /// True if OpenSSL does TLS.
    uses_openssl: bool,
    pub handshake_timeout: Duration,
    clients: ClientOptions,
}

#[pymethods]
impl TcpLimits {
    #[new]
    #[pyo3(signature = (
        *, max_requests, max_requests_per_connection, max_header_bytes, max_header_fields,
        max_early_resets, early_reset_rate, header_timeout, body_timeout, body_rate, send_timeout, send_rate, send_rate_grace,
        keep_alive, max_open_files, max_process_files, max_large_messages, websockets, clients, is_secure, uses_openssl,
    ))]
    #[expect(clippy::too_many_arguments)] // Keyword arguments in Python.
    fn new(
        max_requests: usize,
        max_requests_per_connection: Option<u64>,
        max_header_bytes: usize,
        max_header_fields: usize,
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
        websockets: bool,
        clients: ClientOptions,
        is_secure: bool,
        uses_openssl: bool,
    ) -> PyResult<Self> {
        let http1 = http1::Limits {
            header_bytes: max_header_bytes,
            header_fields: max_header_fields,
            requests: max_requests_per_connection,
            running_applications: max_requests.saturating_mul(RUNNING_APPLICATIONS_FACTOR),
            header_timeout: positive_span("header_timeout", header_timeout)?,
            body_timeout: positive_span("body_timeout", body_timeout)?,
            body_rate,
            send_timeout: positive_span("send_timeout", send_timeout)?,
            send_rate,
            send_rate_grace: positive_span("send_rate_grace", send_rate_grace)?,
            keep_alive: seconds_or_none("keep_alive", keep_alive)?,
            websockets,
            // With TLS the version is negotiated by ALPN.
            http2: !is_secure,
        };
        let protocols = websockets.then(|| Bytes::from_static(b"websocket"));
        let requests = http2::RequestLimits {
            open_requests: max_requests,
            requests: max_requests_per_connection,
            early_resets: max_early_resets,
            early_resets_per_second: early_reset_rate,
            header_timeout: http1.header_timeout,
            body_timeout: http1.body_timeout,
            body_rate,
            send_timeout: http1.send_timeout,
            send_rate,
            send_rate_grace: http1.send_rate_grace,
            protocols: protocols.into_iter().collect(),
            keep_alive: http1.keep_alive,
            ..http2::RequestLimits::default()
        };
        let sections = http2::SectionLimits {
            bytes: max_header_bytes,
            fields: max_header_fields,
        };
        Ok(Self {
            http1: Arc::new(http1),
            http2: Arc::new(http2::Limits { requests, sections }),
            open_files: max_open_files,
            process_files: max_process_files,
            large_messages: max_large_messages,
            is_secure,
            uses_openssl,
            handshake_timeout: positive_span("handshake_timeout", clients.handshake_timeout)?,
            clients,
        })
    }
}

impl TcpLimits {
    /// Makes the counts of a server's open connections, of which there are none yet.
    pub fn connections(&self) -> Arc<Connections> {
        let clients = &self.clients;
        let limits = connection_limits::Limits {
            connections: clients.max_connections,
            per_address: clients.max_connections_per_address,
            handshakes: clients.max_handshakes,
            rate: clients.accept_rate.map(|per_second| Rate {
                per_second,
                burst: clients.accept_burst,
            }),
            bytes: match (self.is_secure, self.uses_openssl) {
                (false, _) => CONNECTION_BYTES,
                (true, false) => SECURE_CONNECTION_BYTES,
                (true, true) => OPENSSL_CONNECTION_BYTES,
            },
        };
        Connections::new(limits, budget_of(clients.memory))
    }
}

/// Converts seconds, and accepts 0 as uvicorn does.
fn seconds_or_none(name: &str, value: f64) -> PyResult<Duration> {
    match value {
        0.0 => Ok(Duration::ZERO),
        value => positive_span(name, value),
    }
}

/// The number of applications that may run for each request that may be open, as over HTTP/3.
const RUNNING_APPLICATIONS_FACTOR: usize = 8;
/// The memory of an idle connection without TLS, rounded up.
const CONNECTION_BYTES: usize = 8 << 10;
/// The memory of an idle connection with TLS by rustls, rounded up, and of one in a handshake.
const SECURE_CONNECTION_BYTES: usize = 24 << 10;
/// The memory of an idle connection with TLS by OpenSSL, rounded up. OpenSSL uses most of it.
const OPENSSL_CONNECTION_BYTES: usize = 40 << 10;
