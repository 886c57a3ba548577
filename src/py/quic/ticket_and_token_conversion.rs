//! Session tickets and address validation tokens as Python objects, and tickets back.
//!
//! `endpoint/event_delivery` delivers tickets and tokens. `uringcore.tls` has their Python classes. Not here: a server's
//! session stores (`session_stores`).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use uringcore_quic::tls::{CipherSuite, SessionTicket};

use crate::capi::bounded_arguments::{self, List, OwnedBytes};

/// The fields of a `SessionTicket` of `uringcore.tls`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct TicketFields {
    age_add: u32,
    cipher_suite: u16,
    early_data: bool,
    issued: f64,
    lifetime: f64,
    peer_certificates: List<OwnedBytes>,
    resumption_secret: OwnedBytes,
    server_name: String,
    ticket: OwnedBytes,
    transport_parameters: OwnedBytes,
    version: Option<u32>,
}

impl TicketFields {
    /// Converts the fields. The error is a sentence about the setting `session_ticket`.
    pub fn into_ticket(self) -> Result<SessionTicket, String> {
        let issued = Duration::try_from_secs_f64(self.issued)
            .ok()
            .filter(|since| *since < 10 * bounded_arguments::SPAN_MAX)
            .and_then(|since| UNIX_EPOCH.checked_add(since));
        Ok(SessionTicket {
            server_name: self.server_name,
            cipher_suite: CipherSuite::from_u16(self.cipher_suite)
                .ok_or("its cipher suite is not one of TLS 1.3")?,
            ticket: self.ticket.0,
            secret: self.resumption_secret.0,
            age_add: self.age_add,
            issued: issued.ok_or("not_valid_before is out of range")?,
            // A negative or absurd lifetime counts as expired.
            lifetime: bounded_arguments::span(self.lifetime).unwrap_or_default(),
            early_data: self.early_data,
            transport_params: self.transport_parameters.0,
            peer_certificates: self.peer_certificates.into_vecs(),
            version: self.version,
        })
    }
}

/// Makes Python's `SessionTicket` for a ticket that a client has received.
pub fn ticket_to_python<'py>(
    py: Python<'py>,
    ticket: &SessionTicket,
) -> PyResult<Bound<'py, PyAny>> {
    let since = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let certificates: Vec<_> = ticket
        .peer_certificates
        .iter()
        .map(|der| PyBytes::new(py, der))
        .collect();
    let fields = (
        ticket.age_add,
        ticket.cipher_suite.as_u16(),
        ticket.early_data,
        since(ticket.issued).as_secs_f64(),
        ticket.lifetime.as_secs_f64(),
        certificates,
        PyBytes::new(py, &ticket.secret),
        &ticket.server_name,
        PyBytes::new(py, &ticket.ticket),
        PyBytes::new(py, &ticket.transport_params),
        ticket.version,
    );
    py.import(intern!(py, "uringcore.tls"))?
        .getattr(intern!(py, "_session_ticket"))?
        .call1(fields)
}

/// Makes Python's `AddressToken` for a token that a client has received.
pub fn token_to_python<'py>(
    py: Python<'py>,
    token: &[u8],
    version: u32,
) -> PyResult<Bound<'py, PyAny>> {
    py.import(intern!(py, "uringcore.tls"))?
        .getattr(intern!(py, "AddressToken"))?
        .call1((PyBytes::new(py, token), version))
}
