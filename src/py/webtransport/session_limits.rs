//! The limits of a connection's WebTransport sessions, as Python passes them.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use uringcore_http::webtransport::Limits;
use uringcore_limits::memory_budget::Charge;
use uringcore_quic::read_on_demand::Inbox;

use crate::capi::bounded_arguments;
use crate::streams::stream_manager::overflow;

/// The limits of a connection's WebTransport sessions.
///
/// `sessions` is the number of open sessions. These are for each session: `streams` and `uni_streams`, the number of
/// streams that the peer may open; `window`, the bytes that wait to be read, if sessions have flow control of their
/// own; `datagram_bytes`, the bytes of received datagrams that wait. Above that the oldest datagrams are dropped, or
/// with `drops_newest` the new ones. `patience` is the time-out in seconds for what the peer must still send: the
/// rest of a stream's header, the request of a stream's session, the end of a session that is over.
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
        let patience = bounded_arguments::span(patience).ok_or_else(|| {
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
    /// Makes the inbox of a session. `charge` accounts the data that waits in it to the connection.
    pub fn inbox(&self, charge: Charge) -> Inbox {
        let mut inbox = Inbox::of_session(self.datagram_bytes);
        inbox.set_charge(charge);
        inbox.set_overflow(overflow(self.drops_newest));
        inbox
    }
}
