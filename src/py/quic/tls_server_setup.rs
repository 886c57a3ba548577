//! `TlsServerSetup`: the checked settings of a server's TLS over TCP. Certificates and keys come from a configuration
//! of QUIC.

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use uringcore_engine::SystemClock;
use uringcore_quic::tls::{TcpServerSettings, TcpServerSetup};

use super::client_and_server_config::{
    NamedCertificate, client_auth, config_error, identity, named_identities,
};
use super::tls_key_log::KeyLogFile;
use crate::capi::bounded_arguments::{List, OwnedBytes};

/// The settings of a server's TLS over TCP. `ticket_keys` are secrets that seal session tickets, the present one first;
/// without them a random one is made. `key_log` is a text file for the secrets of connections.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct TlsServerSetup {
    pub setup: TcpServerSetup,
    key_log: Option<Py<KeyLogFile>>,
}

#[pymethods]
impl TlsServerSetup {
    #[new]
    #[pyo3(signature = (
        *, alpn, certificate_chain, client_required, client_roots, key_log, named_certificates, private_key, ticket_keys,
    ))]
    #[expect(clippy::too_many_arguments)] // Keyword arguments in Python.
    fn new(
        py: Python<'_>,
        alpn: List<OwnedBytes>,
        certificate_chain: List<OwnedBytes>,
        client_required: bool,
        client_roots: Option<OwnedBytes>,
        key_log: Option<Py<PyAny>>,
        named_certificates: List<NamedCertificate>,
        private_key: OwnedBytes,
        ticket_keys: List<OwnedBytes>,
    ) -> PyResult<Self> {
        let key_log = key_log.map(|file| KeyLogFile::new(py, &file)).transpose()?;
        let settings = TcpServerSettings {
            clock: SystemClock::shared(),
            alpn: alpn.into_vecs(),
            identity: identity(py, certificate_chain, private_key)?,
            named: named_identities(py, named_certificates)?,
            client_auth: client_auth(client_roots, client_required),
            ticket_keys: ticket_keys.into_vecs(),
            key_log: key_log
                .as_ref()
                .map(|file| -> std::sync::Arc<dyn rustls::KeyLog> { file.get().log.clone() }),
        };
        let setup = TcpServerSetup::new(&settings).map_err(|error| config_error(py, &error))?;
        Ok(Self { setup, key_log })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.key_log)
    }
}

impl TlsServerSetup {
    /// Writes the secrets of new connections to the key log.
    pub fn flush_key_log(&self, py: Python<'_>) -> PyResult<()> {
        match &self.key_log {
            Some(file) => file.get().flush(py),
            None => Ok(()),
        }
    }
}
