//! `ClientHelloReader`: reads the ClientHello in a client's first datagrams, for programs that route connections by
//! it.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use uringcore_quic as quic;

use crate::capi::bounded_arguments::BytesLike;
use crate::capi::gil_cell::GilCell;

/// Reads the ClientHello of one connection.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct ClientHelloReader(GilCell<quic::ClientHelloReader>);

#[pymethods]
impl ClientHelloReader {
    #[new]
    fn new() -> Self {
        Self(GilCell::new(quic::ClientHelloReader::default()))
    }

    /// Reads a datagram. Returns None, or a term of qlog with the reason for which nothing in the datagram could be
    /// read.
    #[expect(clippy::needless_pass_by_value)] // PyO3 passes the argument by value.
    fn feed(&self, py: Python<'_>, data: BytesLike<'_>) -> Option<&'static str> {
        match self.0.with(py, |reader| reader.push(&data)) {
            quic::Reading::Opened => None,
            quic::Reading::NoInitial => Some("header_parse_error"),
            quic::Reading::TooShort => Some("initial_packet_datagram_too_small"),
            quic::Reading::Unauthentic => Some("payload_decrypt_error"),
        }
    }

    /// True if packets have different data for the same range of the ClientHello, so that it cannot be assembled.
    #[getter]
    fn is_contradictory(&self, py: Python<'_>) -> bool {
        self.0.with(py, |reader| reader.is_contradictory())
    }

    /// The whole ClientHello message with its type and length (RFC 8446 section 4). None while parts of it are missing.
    fn client_hello<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        let hello = self.0.with(py, |reader| reader.client_hello());
        hello.map(|hello| PyBytes::new(py, &hello))
    }
}
