//! `QuicClientSetup` and `QuicServerSetup`: a checked configuration, from which any number of connections can be
//! made.
//!
//! Python's `QuicConfiguration` makes them. Not here: the secrets that connections log (`tls_key_log`).

use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{PyTraverseError, PyVisit};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use uringcore_engine::SystemClock;
use uringcore_quic::tls::{
    CipherSuite, ClientAuth, ConfigError, Group, Identity, NamedIdentity, Roots,
};
use uringcore_quic::{
    AckFrequency, ClientSettings, ClientSetup, Congestion, Retry, ServerSettings, ServerSetup,
    TransportSettings,
};

use super::session_stores::{ForeignStore, MemorySessionStore, session_store};
use super::ticket_and_token_conversion::TicketFields;
use super::tls_key_log::KeyLogFile;
use super::tls_server_setup::TlsServerSetup;
use crate::capi::bounded_arguments::{self, BytesLike, List, OwnedBytes};

/// A certificate chain, its private key, and the server names for which it is used. Without names, the names in the
/// certificate are used.
pub type NamedCertificate = (List<OwnedBytes>, OwnedBytes, Option<List<String>>);

/// The settings of clients and servers, as Python passes them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Common {
    ack_delay_max: Option<f64>,
    ack_packets_max: Option<u64>,
    ack_reordering: u64,
    alpn: List<OwnedBytes>,
    cipher_suites: Option<List<u16>>,
    congestion: String,
    connection_id_length: usize,
    groups: Option<List<u16>>,
    idle_timeout: f64,
    initial_rtt: f64,
    keep_alive: Option<f64>,
    key_log: Option<Py<PyAny>>,
    key_update_packets: Option<u64>,
    max_data: u64,
    max_datagram_frame_size: Option<usize>,
    max_datagram_size: u16,
    max_stream_data: u64,
    max_streams_bidi: u64,
    max_streams_uni: u64,
    mtu_discovery: bool,
    original_version: Option<u32>,
    packet_log: bool,
    preferred_v4: Option<String>,
    preferred_v6: Option<String>,
    reset_stream_at: bool,
    send_buffer_high: usize,
    send_buffer_low: usize,
    supported_versions: List<u32>,
    use_preferred_address: bool,
}

/// The settings that client and server setups have in addition to those of `uringcore_quic`.
pub struct Shared {
    pub connection_id_length: usize,
    /// The high and the low mark of a stream's send queue, in bytes.
    pub watermarks: (usize, usize),
    pub key_log: Option<Py<KeyLogFile>>,
}

impl Shared {
    fn rustls_key_log(&self) -> Option<Arc<dyn rustls::KeyLog>> {
        let file = self.key_log.as_ref()?;
        Some(file.get().log.clone())
    }
}

/// A client's checked configuration.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct QuicClientSetup {
    pub setup: ClientSetup,
    pub shared: Shared,
}

/// A server's checked configuration.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct QuicServerSetup {
    pub setup: ServerSetup,
    pub shared: Shared,
    pub foreign_store: Option<Py<ForeignStore>>,
}

#[pymethods]
impl QuicClientSetup {
    #[new]
    #[pyo3(signature = (*, certificate_chain, certificate_hashes, private_key, roots, session_ticket, token, token_version, verify, **common))]
    #[expect(clippy::too_many_arguments)] // Keyword arguments in Python.
    fn new(
        py: Python<'_>,
        certificate_chain: Option<List<OwnedBytes>>,
        certificate_hashes: Option<List<[u8; 32]>>,
        private_key: Option<OwnedBytes>,
        roots: Option<OwnedBytes>,
        session_ticket: Option<TicketFields>,
        token: OwnedBytes,
        token_version: Option<u32>,
        verify: bool,
        common: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let common = extract_common(common)?;
        let client_cert = match (certificate_chain, private_key) {
            (Some(chain), Some(key)) => {
                let identity = identity(py, chain, key)?;
                Some((identity.cert_chain, Arc::new(identity.key)))
            }
            _ => None,
        };
        let shared = common.shared(py)?;
        let session_ticket = session_ticket
            .map(TicketFields::into_ticket)
            .transpose()
            .map_err(|message| config_error(py, &ConfigError::new("session_ticket", message)))?;
        let settings = ClientSettings {
            session_ticket,
            token: token.0.into(),
            token_version,
            transport: common.transport(py)?,
            cipher_suites: common.suites(py)?,
            groups: common.groups(py)?,
            alpn: common.alpn.into_vecs(),
            roots: match roots {
                Some(pem) => Roots::Pem(pem.0),
                None if verify && certificate_hashes.is_none() => system_roots(py)?,
                None => Roots::None,
            },
            verify,
            certificate_hashes: certificate_hashes.map(|hashes| hashes.0),
            client_cert,
            key_log: shared.rustls_key_log(),
            supported_versions: common.supported_versions.0,
            original_version: common.original_version,
            ..ClientSettings::new(SystemClock::shared())
        };
        let setup = ClientSetup::new(&settings).map_err(|error| config_error(py, &error))?;
        Ok(Self { setup, shared })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.shared.key_log)
    }

    /// True if a certificate in DER can be a trust anchor.
    #[staticmethod]
    fn _can_be_trusted(certificate: OwnedBytes) -> bool {
        let certificate = CertificateDer::from(certificate.0);
        rustls::RootCertStore::empty().add(certificate).is_ok()
    }
}

#[pymethods]
impl QuicServerSetup {
    #[new]
    #[pyo3(signature = (*, certificate_chain, client_required, client_roots, early_data, named_certificates, private_key, retry, sessions, token_keys, **common))]
    #[expect(clippy::too_many_arguments)] // Keyword arguments in Python.
    fn new(
        py: Python<'_>,
        certificate_chain: List<OwnedBytes>,
        client_required: bool,
        client_roots: Option<OwnedBytes>,
        early_data: bool,
        named_certificates: List<NamedCertificate>,
        private_key: OwnedBytes,
        retry: &str,
        sessions: &Bound<'_, PyAny>,
        token_keys: List<OwnedBytes>,
        common: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let common = extract_common(common)?;
        let shared = common.shared(py)?;
        let (store, foreign_store) = session_store(sessions)?;
        let client_auth = client_auth(client_roots, client_required);
        let named = named_identities(py, named_certificates)?;
        let settings = ServerSettings {
            named,
            transport: common.transport(py)?,
            cipher_suites: common.suites(py)?,
            groups: common.groups(py)?,
            alpn: common.alpn.into_vecs(),
            client_auth,
            key_log: shared.rustls_key_log(),
            retry: match retry {
                "always" => Retry::Always,
                "never" => Retry::Never,
                _ => Retry::Auto,
            },
            sessions: Some(store),
            asks_for_sessions: foreign_store.is_some(),
            asks_for_tokens: foreign_store
                .as_ref()
                .is_some_and(|store| store.get().keeps_tokens),
            early_data,
            supported_versions: common.supported_versions.0,
            token_keys: token_keys.into_vecs(),
            ..ServerSettings::new(
                identity(py, certificate_chain, private_key)?,
                SystemClock::shared(),
            )
        };
        let setup = ServerSetup::new(&settings).map_err(|error| config_error(py, &error))?;
        Ok(Self {
            setup,
            shared,
            foreign_store,
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.shared.key_log)?;
        visit.call(&self.foreign_store)
    }

    /// Checks a certificate for clients that request one of `names`; `None` means the names in the certificate. Returns
    /// the normalised names, and the type of the key.
    #[staticmethod]
    fn _check_named(
        py: Python<'_>,
        certificate_chain: List<OwnedBytes>,
        private_key: OwnedBytes,
        server_names: Option<List<String>>,
    ) -> PyResult<(Vec<String>, String)> {
        NamedIdentity {
            identity: identity(py, certificate_chain, private_key)?,
            server_names: server_names.map(|names| names.0),
        }
        .check()
        .map_err(|error| config_error(py, &error))
    }
}

fn extract_common(common: Option<&Bound<'_, PyDict>>) -> PyResult<Common> {
    match common {
        Some(common) => common.extract(),
        None => Err(pyo3::exceptions::PyTypeError::new_err(
            "the common settings are missing",
        )),
    }
}

impl Common {
    fn shared(&self, py: Python<'_>) -> PyResult<Shared> {
        Ok(Shared {
            connection_id_length: self.connection_id_length,
            watermarks: (self.send_buffer_high, self.send_buffer_low),
            key_log: self
                .key_log
                .as_ref()
                .map(|file| KeyLogFile::new(py, file))
                .transpose()?,
        })
    }

    fn transport(&self, py: Python<'_>) -> PyResult<TransportSettings> {
        let keep_alive = self
            .keep_alive
            .map(|value| seconds(py, "keep_alive", value))
            .transpose()?;
        let max_delay = self
            .ack_delay_max
            .map(|value| seconds(py, "ack_delay_max", value))
            .transpose()?;
        let ack_frequency = self.ack_packets_max.map(|packets| AckFrequency {
            packets,
            max_delay,
            reordering: self.ack_reordering,
        });
        Ok(TransportSettings {
            idle_timeout: seconds(py, "idle_timeout", self.idle_timeout)?,
            max_data: self.max_data,
            max_stream_data: self.max_stream_data,
            max_streams_bidi: self.max_streams_bidi,
            max_streams_uni: self.max_streams_uni,
            max_datagram_size: self.max_datagram_size,
            mtu_discovery: self.mtu_discovery,
            initial_rtt: seconds(py, "initial_rtt", self.initial_rtt)?,
            congestion: congestion(py, &self.congestion)?,
            // RFC 9221 section 3: the value 0 is equivalent to the absence of the transport parameter.
            datagram_recv_bytes: self
                .max_datagram_frame_size
                .filter(|&size| size > 0)
                .map(|size| size.max(DATAGRAM_RECEIVE_BYTES)),
            datagram_frame_bytes: self
                .max_datagram_frame_size
                .map_or(DATAGRAM_FRAME_BYTES, |size| {
                    (size as u64).min(DATAGRAM_FRAME_BYTES)
                }),
            keep_alive,
            use_preferred_address: self.use_preferred_address,
            preferred_v4: preferred(py, self.preferred_v4.as_deref())?,
            preferred_v6: preferred(py, self.preferred_v6.as_deref())?,
            ack_frequency,
            key_update_packets: self.key_update_packets,
            packet_log: self.packet_log,
            reset_stream_at: self.reset_stream_at,
            ..TransportSettings::default()
        })
    }

    fn suites(&self, py: Python<'_>) -> PyResult<Option<Vec<CipherSuite>>> {
        let suites = self.cipher_suites.as_ref();
        registered(py, suites, CipherSuite::from_u16, |number| {
            let message = format!("{number:#06x} is not a TLS 1.3 cipher suite");
            ConfigError::new("cipher_suites", message)
        })
    }

    fn groups(&self, py: Python<'_>) -> PyResult<Option<Vec<Group>>> {
        registered(py, self.groups.as_ref(), Group::from_u16, |number| {
            let message = format!("{number:#06x} is not a supported group");
            ConfigError::new("groups", message)
        })
    }
}

/// The name of a number in an IANA registry. `unknown` is the error message for an unsupported number.
fn registered<T>(
    py: Python<'_>,
    numbers: Option<&List<u16>>,
    known: fn(u16) -> Option<T>,
    unknown: fn(u16) -> ConfigError,
) -> PyResult<Option<Vec<T>>> {
    let Some(numbers) = numbers else {
        return Ok(None);
    };
    let found = numbers
        .0
        .iter()
        .map(|&number| known(number).ok_or_else(|| config_error(py, &unknown(number))));
    found.collect::<PyResult<Vec<_>>>().map(Some)
}

fn preferred<T: std::str::FromStr>(py: Python<'_>, text: Option<&str>) -> PyResult<Option<T>> {
    text.map(|text| {
        text.parse().map_err(|_| {
            let message = format!("{text:?} is not an address");
            config_error(py, &ConfigError::new("preferred_address", message))
        })
    })
    .transpose()
}

fn congestion(py: Python<'_>, name: &str) -> PyResult<Congestion> {
    match name {
        "reno" => Ok(Congestion::NewReno),
        "cubic" => Ok(Congestion::Cubic),
        "bbr" => Ok(Congestion::Bbr),
        other => {
            let message = format!("must be 'reno', 'cubic' or 'bbr', not {other:?}");
            Err(config_error(
                py,
                &ConfigError::new("congestion_control_algorithm", message),
            ))
        }
    }
}

pub fn seconds(py: Python<'_>, field: &'static str, value: f64) -> PyResult<Duration> {
    bounded_arguments::span(value)
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| {
            let message =
                format!("must be a positive number of seconds up to a century, not {value}");
            config_error(py, &ConfigError::new(field, message))
        })
}

/// The certificates are read without the interpreter lock, because the store may be on a disk.
fn system_roots(py: Python<'_>) -> PyResult<Roots> {
    py.detach(uringcore_engine::system_roots)
        .map(Roots::Store)
        .map_err(|message| config_error(py, &ConfigError::new("roots", message)))
}

/// The requirements for client certificates. Without authorities clients are not asked for one.
pub fn client_auth(client_roots: Option<OwnedBytes>, is_required: bool) -> ClientAuth {
    match client_roots {
        Some(pem) if is_required => ClientAuth::Required(Roots::Pem(pem.0)),
        Some(pem) => ClientAuth::Optional(Roots::Pem(pem.0)),
        None => ClientAuth::Off,
    }
}

pub fn named_identities(
    py: Python<'_>,
    certificates: List<NamedCertificate>,
) -> PyResult<Vec<NamedIdentity>> {
    let certificates = certificates.0.into_iter();
    certificates
        .map(|(chain, key, server_names)| {
            let identity = identity(py, chain, key)?;
            Ok(NamedIdentity {
                identity,
                server_names: server_names.map(|names| names.0),
            })
        })
        .collect()
}

pub fn identity(py: Python<'_>, chain: List<OwnedBytes>, key: OwnedBytes) -> PyResult<Identity> {
    let key = PrivateKeyDer::try_from(key.0).map_err(|_| {
        let message = "is not a PKCS #8, SEC 1 or PKCS #1 private key";
        config_error(py, &ConfigError::new("key", message))
    })?;
    Ok(Identity::new(
        chain
            .into_vecs()
            .into_iter()
            .map(CertificateDer::from)
            .collect(),
        key,
    ))
}

/// Makes a `QuicConfigurationError` with the field's name in Python.
pub fn config_error(py: Python<'_>, error: &ConfigError) -> PyErr {
    let field = match error.field {
        "cert_chain" | "client_cert" => "certificate",
        "key" => "private_key",
        "roots" | "client_auth" => "cafile",
        "alpn" => "alpn_protocols",
        "congestion" => "congestion_control_algorithm",
        other => other,
    };
    let made = py
        .import(intern!(py, "uringcore.quic._errors"))
        .and_then(|module| module.getattr(intern!(py, "QuicConfigurationError")))
        .and_then(|class| class.call1((field, error.message.as_str())));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// The period of validity of a certificate in DER, as two times in seconds since 1970. Raises ValueError if it is not
/// a certificate.
#[pyfunction]
#[expect(clippy::needless_pass_by_value)] // PyO3 passes the argument by value.
fn certificate_validity(certificate: BytesLike<'_>) -> PyResult<(u64, u64)> {
    uringcore_quic::tls::validity(&certificate)
        .ok_or_else(|| PyValueError::new_err("the certificate's dates cannot be read"))
}

/// True if a certificate in DER is for this DNS name or IP address.
#[pyfunction]
#[expect(clippy::needless_pass_by_value)] // PyO3 passes it by value.
fn certificate_is_for(certificate: BytesLike<'_>, host: &str) -> bool {
    uringcore_quic::tls::is_for_host(&certificate, host)
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(certificate_is_for, m)?)?;
    m.add_function(wrap_pyfunction!(certificate_validity, m)?)?;
    m.add_class::<MemorySessionStore>()?;
    m.add_class::<QuicClientSetup>()?;
    m.add_class::<QuicServerSetup>()?;
    m.add_class::<TlsServerSetup>()
}

/// The largest number of bytes of received DATAGRAM frames that wait for the end of the loop iteration.
const DATAGRAM_RECEIVE_BYTES: usize = 1 << 20;
/// The value of max_datagram_frame_size that allows frames of any size: no UDP datagram is longer.
const DATAGRAM_FRAME_BYTES: u64 = 65_535;
