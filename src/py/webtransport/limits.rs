//! What one peer may ask of a connection's sessions, as a program gives it.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use uringcore_http::webtransport::Limits;
use uringcore_limits::budget::Charge;
use uringcore_quic::on_demand::Inbox;

use crate::capi::arguments;
use crate::streams::stream_manager::overflow;

/// `sessions` at once; of each, `streams` and `uni_streams` of the peer's, `window` bytes that wait to be read
/// where sessions have credit of their own, and `datagram_bytes` of received datagrams that wait: the oldest are
/// dropped for others, or with `drops_newest` those that come. For `patience` seconds something is waited for that
/// the peer owes: the rest of a stream's header, its session, the end of a session that is over.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct WebTransportLimits {
    pub limits: Limits,
    datagram_bytes: usize,
    drops_newest: bool,
}

#[pymethods]
impl WebTransportLimits {
    #[new]
    #[pyo3(signature = (
        *, sessions = 1024, streams = 256, uni_streams = 256, window = 16 << 20, datagram_bytes = 1 << 20,
        drops_newest = false, patience = 10.0,
    ))]
    fn new(
        sessions: usize,
        streams: u64,
        uni_streams: u64,
        window: u64,
        datagram_bytes: usize,
        drops_newest: bool,
        patience: f64,
    ) -> PyResult<Self> {
        let patience = arguments::span(patience).ok_or_else(|| {
            PyValueError::new_err(format!("patience: not a number of seconds: {patience}"))
        })?;
        Ok(Self {
            limits: Limits {
                sessions,
                streams_bidi: streams,
                streams_uni: uni_streams,
                window,
                patience,
                ..Limits::default()
            },
            datagram_bytes,
            drops_newest,
        })
    }
}

impl WebTransportLimits {
    /// What has come of a session; `charge` is the connection's for what waits.
    pub fn inbox(&self, charge: Charge) -> Inbox {
        let mut inbox = Inbox::of_session(self.datagram_bytes);
        inbox.set_charge(charge);
        inbox.set_overflow(overflow(self.drops_newest));
        inbox
    }
}
