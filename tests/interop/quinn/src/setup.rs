//! Options, and the configuration of quinn for a case.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, ServerConfig};
use rustls::CipherSuite;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A feature for which quinn has no API.
#[derive(Debug)]
pub struct Unsupported(pub &'static str);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Unsupported {}

pub struct Options {
    pub role: String,
    pub case: String,
    pub requests: Vec<String>,
    pub certs: PathBuf,
    pub www: PathBuf,
    pub downloads: PathBuf,
    pub host: String,
    pub port: u16,
}

impl Options {
    pub fn from_env() -> Result<Self, Failure> {
        let variable = |name| std::env::var(name).unwrap_or_default();
        let mut words = std::env::args().skip(1);
        let mut options = Self {
            role: words.next().ok_or("server or client?")?,
            case: variable("TESTCASE"),
            requests: variable("REQUESTS")
                .split_whitespace()
                .map(str::to_owned)
                .collect(),
            certs: "/certs".into(),
            www: "/www".into(),
            downloads: "/downloads".into(),
            host: "::".into(),
            port: 443,
        };
        while let Some(name) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--certs" => options.certs = value.into(),
                "--www" => options.www = value.into(),
                "--downloads" => options.downloads = value.into(),
                "--host" => options.host = value,
                "--port" => options.port = value.parse()?,
                _ => return Err(format!("no such option: {name}").into()),
            }
        }
        match options.case.as_str() {
            "v2" | "v2first" => Err(Unsupported("quinn speaks QUIC version 1 only").into()),
            "connectionmigration" => {
                Err(Unsupported("quinn does not serve preferred_address by its API").into())
            }
            _ => Ok(options),
        }
    }

    pub fn alpn(&self) -> &'static [u8] {
        match self.case.as_str() {
            "http3" => b"h3",
            session if session.starts_with("wt-") => b"h3",
            "datagram" | "closecodes" => b"probe",
            _ => b"hq-interop",
        }
    }

    pub fn server_config(&self) -> Result<ServerConfig, Failure> {
        let chain = CertificateDer::pem_file_iter(self.certs.join("cert.pem"))?
            .collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_file(self.certs.join("priv.key"))?;
        let mut tls = rustls::ServerConfig::builder_with_provider(self.provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        tls.alpn_protocols = vec![self.alpn().to_vec()];
        tls.key_log = Arc::new(rustls::KeyLogFile::new());
        if self.case == "zerortt" {
            tls.max_early_data_size = u32::MAX;
        }
        let crypto = QuicServerConfig::try_from(tls)?;
        Ok(ServerConfig::with_crypto(Arc::new(crypto)))
    }

    pub fn client_config(&self) -> Result<ClientConfig, Failure> {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(self.certs.join("ca.pem"))? {
            roots.add(certificate?)?;
        }
        let mut tls = rustls::ClientConfig::builder_with_provider(self.provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![self.alpn().to_vec()];
        tls.key_log = Arc::new(rustls::KeyLogFile::new());
        tls.enable_early_data = self.case == "zerortt";
        Ok(ClientConfig::new(Arc::new(QuicClientConfig::try_from(
            tls,
        )?)))
    }

    fn provider(&self) -> Arc<CryptoProvider> {
        let mut provider = ring::default_provider();
        if self.case == "chacha20" {
            // The initial packets still need AES-128; quinn requires it by itself.
            provider
                .cipher_suites
                .sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_CHACHA20_POLY1305_SHA256);
        }
        Arc::new(provider)
    }
}
