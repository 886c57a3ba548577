//! `TlsServerSetup`: the checked settings of a server's TLS over TCP. Certificates and keys come from a configuration
//! of QUIC.

use pyo3::prelude::*;
use uringcore_engine::SystemClock;
use uringcore_quic::tls::{TcpServerSettings, TcpServerSetup};

use super::client_and_server_config::{
    NamedCertificate, client_auth, config_error, identity, named_identities,
};
use crate::capi::bounded_arguments::{List, OwnedBytes};

/// The settings of a server's TLS over TCP. `ticket_keys` are secrets that seal session tickets, the present one first;
/// without them a random one is made.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct TlsServerSetup {
    pub setup: TcpServerSetup,
}

#[pymethods]
impl TlsServerSetup {
    #[new]
    #[pyo3(signature = (
        *, alpn, certificate_chain, client_required, client_roots, named_certificates, private_key, ticket_keys,
    ))]
    #[expect(clippy::too_many_arguments)] // Keyword arguments in Python.
    fn new(
        py: Python<'_>,
        alpn: List<OwnedBytes>,
        certificate_chain: List<OwnedBytes>,
        client_required: bool,
        client_roots: Option<OwnedBytes>,
        named_certificates: List<NamedCertificate>,
        private_key: OwnedBytes,
        ticket_keys: List<OwnedBytes>,
    ) -> PyResult<Self> {
        let settings = TcpServerSettings {
            clock: SystemClock::shared(),
            alpn: alpn.into_vecs(),
            identity: identity(py, certificate_chain, private_key)?,
            named: named_identities(py, named_certificates)?,
            client_auth: client_auth(client_roots, client_required),
            ticket_keys: ticket_keys.into_vecs(),
        };
        let setup = TcpServerSetup::new(&settings).map_err(|error| config_error(py, &error))?;
        Ok(Self { setup })
    }
}
