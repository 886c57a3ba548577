//! The interface through which the typed streams (`py::streams`) use a WebTransport session. For a QUIC connection,
//! `quic::read_on_demand` implements the interface.

use std::time::Instant;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use uringcore_http::webtransport::SessionCommands;
use uringcore_quic::read_on_demand::StreamTransport;
use uringcore_quic::{self as quic, DatagramError, Priority, Received, StreamError};

use super::session::SessionConnection;
use crate::streams::transport_access::TransportAccess;

/// Opens, reads and writes the streams of one session. It is made for each call, because it borrows the session's QUIC
/// connection from the endpoint that owns it.
struct SessionTransport<'a> {
    handle: SessionCommands<'a>,
    quic: &'a mut quic::Connection,
    session_id: u64,
    now: Instant,
}

impl StreamTransport for SessionTransport<'_> {
    fn open_stream(&mut self, unidirectional: bool) -> Option<u64> {
        let Self {
            quic,
            session_id,
            now,
            ..
        } = self;
        // An error means that the session has ended. An event of the connection reports that.
        let opened = self
            .handle
            .open_stream(quic, *session_id, unidirectional, *now);
        opened.ok().flatten()
    }

    fn send_stream(&mut self, stream_id: u64, data: Bytes, fin: bool) -> Result<(), StreamError> {
        self.handle
            .send_stream(self.quic, stream_id, data, fin, self.now)
    }

    fn is_stream_full(&self, stream_id: u64) -> bool {
        self.handle.is_stream_full(self.quic, stream_id)
    }

    fn read_stream(&mut self, stream_id: u64, max: usize) -> Received {
        self.handle.read_stream(self.quic, stream_id, max, self.now)
    }

    fn reset_stream(&mut self, stream_id: u64, error_code: u64) -> Result<(), StreamError> {
        let code = u32::try_from(error_code).map_err(|_| StreamError::OutOfRange)?;
        self.handle
            .reset_stream(self.quic, stream_id, code, self.now)
    }

    fn stop_stream(&mut self, stream_id: u64, error_code: u64) -> Result<(), StreamError> {
        let code = u32::try_from(error_code).map_err(|_| StreamError::OutOfRange)?;
        self.handle
            .stop_stream(self.quic, stream_id, code, self.now)
    }

    fn set_priority(&mut self, stream_id: u64, priority: Priority) -> Result<(), StreamError> {
        self.handle.set_priority(self.quic, stream_id, priority)
    }

    fn is_sending(&self, stream_id: u64) -> bool {
        self.handle.is_sending(self.quic, stream_id)
    }

    fn is_finishing(&self) -> bool {
        self.handle.is_finishing(self.session_id)
    }

    fn send_datagram(&mut self, data: Bytes) -> Result<(), DatagramError> {
        self.handle.send_datagram(self.quic, self.session_id, &data)
    }

    fn max_datagram_size(&mut self) -> Option<usize> {
        self.handle.max_datagram_size(self.quic, self.session_id)
    }

    fn forget_stream(&mut self, stream_id: u64) {
        self.handle.forget_stream(self.quic, stream_id, self.now);
    }

    /// Error codes of a session's streams have 32 bits (draft-ietf-webtrans-http3 section 4.4).
    fn code_bits(&self) -> u32 {
        32
    }
}

/// Makes a [`SessionTransport`] for a call. Unlike that one, it is stored: it has a reference to the connection and the
/// identifier of the session.
pub struct SessionTransportAccess {
    pub connection: Box<dyn SessionConnection>,
    pub session_id: u64,
}

impl TransportAccess for SessionTransportAccess {
    fn with_transport(
        &self,
        py: Python<'_>,
        run: &mut dyn FnMut(&mut dyn StreamTransport),
    ) -> PyResult<()> {
        let session_id = self.session_id;
        self.connection.with_session(py, &mut |handle, quic, now| {
            if handle.stats(session_id).is_some() {
                run(&mut SessionTransport {
                    handle,
                    quic,
                    session_id,
                    now,
                });
            }
        })
    }

    fn written(&self, py: Python<'_>) {
        self.connection.written(py);
    }

    fn read_transport(
        &self,
        py: Python<'_>,
        run: &mut dyn FnMut(&dyn StreamTransport),
    ) -> PyResult<()> {
        self.with_transport(py, &mut |stream_transport| run(stream_transport))
    }

    /// True: the state of a stream is kept until the program has dropped the stream.
    fn keeps_streams(&self) -> bool {
        true
    }

    /// Does nothing, because the connection stays attached for its other sessions.
    fn detach(&self, _py: Python<'_>) {}

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.connection.traverse(visit)
    }
}
