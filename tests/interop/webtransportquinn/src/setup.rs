//! Options, and quinn configured with the certificates of the tests.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Endpoint, ServerConfig};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

pub struct Options {
    pub role: String,
    pub case: String,
    pub requests: String,
    certs: PathBuf,
    host: String,
    port: u16,
}

impl Options {
    pub fn from_env() -> Result<Self, Failure> {
        let variable = |name| std::env::var(name).unwrap_or_default();
        let mut words = std::env::args().skip(1);
        let mut options = Self {
            role: words.next().ok_or("server or client?")?,
            case: variable("TESTCASE"),
            requests: variable("REQUESTS"),
            certs: "/certs".into(),
            host: "::".into(),
            port: 443,
        };
        while let Some(name) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--certs" => options.certs = value.into(),
                "--host" => options.host = value,
                "--port" => options.port = value.parse()?,
                "--www" | "--downloads" => {}
                _ => return Err(format!("no such option: {name}").into()),
            }
        }
        Ok(options)
    }

    pub fn server(&self) -> Result<Endpoint, Failure> {
        let chain = CertificateDer::pem_file_iter(self.certs.join("cert.pem"))?
            .collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_file(self.certs.join("priv.key"))?;
        let provider = Arc::new(ring::default_provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        tls.alpn_protocols = vec![web_transport_quinn::ALPN.as_bytes().to_vec()];
        let crypto = QuicServerConfig::try_from(tls)?;
        let address = SocketAddr::new(self.host.parse()?, self.port);
        let config = ServerConfig::with_crypto(Arc::new(crypto));
        Ok(Endpoint::server(config, address)?)
    }

    pub fn client(&self) -> Result<web_transport_quinn::Client, Failure> {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(self.certs.join("ca.pem"))? {
            roots.add(certificate?)?;
        }
        let provider = Arc::new(ring::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![web_transport_quinn::ALPN.as_bytes().to_vec()];
        let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
        let endpoint = Endpoint::client(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
        Ok(web_transport_quinn::Client::new(endpoint, config))
    }
}
