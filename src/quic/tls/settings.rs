//! TLS settings of the application, and the error for an invalid setting.
//!
//! Not here: building rustls configurations (`rustls_config`), and their use (`handshake`).

use std::{fmt, sync::Arc};

use rustls::{
    RootCertStore, SupportedCipherSuite,
    crypto::{
        SupportedKxGroup,
        aws_lc_rs::{cipher_suite, kx_group},
    },
    pki_types::{CertificateDer, PrivateKeyDer},
};

/// The error for an invalid setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The name of the field that is invalid.
    pub field: &'static str,
    /// The reason, as text for people.
    pub message: String,
}

impl ConfigError {
    pub fn new(field: &'static str, message: impl Into<String>) -> Self {
        Self {
            field,
            message: message.into(),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for ConfigError {}

/// The certificate authorities that a client trusts for servers, or a server for clients.
#[derive(Debug, Clone)]
pub enum Roots {
    /// A store that the application has read, such as the operating system's.
    Store(TrustStore),
    /// Exactly these certificates, in PEM. The peer's own certificate may be among them, and is trusted even if it is
    /// not an authority.
    Pem(Vec<u8>),
    /// No certificates: every peer is rejected, unless verification is off.
    None,
}

/// Certificate authorities that were parsed once. A system has hundreds, and an application may create a setup for
/// each connection.
#[derive(Debug, Clone)]
pub struct TrustStore(pub(super) Arc<RootCertStore>);

impl TrustStore {
    /// Parses DER certificates. Certificates that cannot be parsed are skipped, because system stores contain some.
    pub fn of(certificates: Vec<CertificateDer<'static>>) -> Self {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(certificates);
        Self(Arc::new(store))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns bytes that distinguish this certificate store from stores with other authorities.
    pub(super) fn name(&self) -> Vec<u8> {
        let anchors = self.0.roots.iter();
        let parts = anchors.flat_map(|anchor| [&anchor.subject, &anchor.subject_public_key_info]);
        parts.flat_map(|part| part.iter().copied()).collect()
    }
}

/// A certificate chain, leaf first, and the private key of the leaf.
#[derive(Debug)]
pub struct Identity {
    pub cert_chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

impl Identity {
    pub fn new(cert_chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Self {
        Self { cert_chain, key }
    }

    /// Reads a chain and a key from PEM. The key may be PKCS #8, PKCS #1 or SEC 1, unencrypted.
    pub fn from_pem(cert_chain: &[u8], key: &[u8]) -> Result<Self, ConfigError> {
        use rustls::pki_types::pem::PemObject;
        let cert_chain = CertificateDer::pem_slice_iter(cert_chain)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| ConfigError::new("cert_chain", format!("is not valid PEM: {e}")))?;
        if cert_chain.is_empty() {
            return Err(ConfigError::new("cert_chain", "holds no certificate"));
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| {
            let message = format!("holds no usable unencrypted private key: {e}");
            ConfigError::new("key", message)
        })?;
        Ok(Self { cert_chain, key })
    }
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self {
            cert_chain: self.cert_chain.clone(),
            key: self.key.clone_key(),
        }
    }
}

/// A server's certificate for clients that request one of these names (RFC 6066 section 3).
#[derive(Debug, Clone)]
pub struct NamedIdentity {
    pub identity: Identity,
    /// DNS names, wildcards (`*.` and a DNS name) for names with one more label, or `*` for clients without SNI or with
    /// an unknown name. `None`: the names in the certificate's subjectAltName. A name may have one certificate for each
    /// kind of key.
    pub server_names: Option<Vec<String>>,
}

/// The TLS 1.3 cipher suites that QUIC may use (RFC 9001 section 5.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CipherSuite {
    Aes128GcmSha256,
    Aes256GcmSha384,
    ChaCha20Poly1305Sha256,
}

impl CipherSuite {
    /// The suite with this number in the IANA registry. `None` for other suites.
    pub fn from_u16(number: u16) -> Option<Self> {
        match number {
            0x1301 => Some(Self::Aes128GcmSha256),
            0x1302 => Some(Self::Aes256GcmSha384),
            0x1303 => Some(Self::ChaCha20Poly1305Sha256),
            _ => None,
        }
    }

    pub fn as_u16(self) -> u16 {
        match self {
            Self::Aes128GcmSha256 => 0x1301,
            Self::Aes256GcmSha384 => 0x1302,
            Self::ChaCha20Poly1305Sha256 => 0x1303,
        }
    }

    /// The cryptography provider's implementation of this suite.
    pub(super) fn in_provider(self) -> SupportedCipherSuite {
        match self {
            Self::Aes128GcmSha256 => cipher_suite::TLS13_AES_128_GCM_SHA256,
            Self::Aes256GcmSha384 => cipher_suite::TLS13_AES_256_GCM_SHA384,
            Self::ChaCha20Poly1305Sha256 => cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        }
    }
}

/// The groups for the key exchange of TLS 1.3 (RFC 8446 section 4.2.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Group {
    Secp256r1,
    Secp384r1,
    X25519,
    /// X25519 together with ML-KEM-768 (draft-ietf-tls-ecdhe-mlkem).
    X25519MlKem768,
}

impl Group {
    /// The group with this number in the IANA registry. `None` for other groups.
    pub fn from_u16(number: u16) -> Option<Self> {
        match number {
            0x0017 => Some(Self::Secp256r1),
            0x0018 => Some(Self::Secp384r1),
            0x001d => Some(Self::X25519),
            0x11ec => Some(Self::X25519MlKem768),
            _ => None,
        }
    }

    /// The cryptography provider's implementation of this group.
    pub(super) fn in_provider(self) -> &'static dyn SupportedKxGroup {
        match self {
            Self::Secp256r1 => kx_group::SECP256R1,
            Self::Secp384r1 => kx_group::SECP384R1,
            Self::X25519 => kx_group::X25519,
            Self::X25519MlKem768 => kx_group::X25519MLKEM768,
        }
    }
}

/// A server's requirements for client certificates.
#[derive(Debug, Clone)]
pub enum ClientAuth {
    /// Clients are not asked for a certificate.
    Off,
    /// Clients are asked for a certificate. A client without one is accepted; one with an invalid certificate is
    /// rejected.
    Optional(Roots),
    /// A client without a valid certificate is rejected.
    Required(Roots),
}
