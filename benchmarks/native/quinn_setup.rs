//! quinn as the benchmarks configure it: every peer gets equal certificates, windows and suites.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, ServerConfig, TokioRuntime,
    TransportConfig, VarInt,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::Failure;
use crate::args::Args;

/// The flow-control window of a receiver; the Python peers use an equal one.
pub const WINDOW: u32 = 16 << 20;
/// quic-go, msquic and this project request this size from the kernel. With the kernel's default of
/// 208 KiB, which quinn does not change, a large response mostly measures packet loss.
const RECEIVE_BUFFER: usize = 4 << 20;
/// The name in the test certificate.
pub const SERVER_NAME: &str = "localhost";

/// A client on a free port that trusts only the certificate of `--ca`.
pub fn client(args: &Args, alpn: &[u8]) -> Result<Endpoint, Failure> {
    client_with(args, alpn, transport())
}

/// [`client`] with another transport configuration.
pub fn client_with(
    args: &Args,
    alpn: &[u8],
    transport: TransportConfig,
) -> Result<Endpoint, Failure> {
    let mut tls = client_tls(args)?;
    tls.alpn_protocols = vec![alpn.to_vec()];
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    config.transport_config(Arc::new(transport));
    let mut endpoint = endpoint(None)?;
    endpoint.set_default_client_config(config);
    Ok(endpoint)
}

/// A TLS 1.3 configuration that trusts only the certificate of `--ca`.
pub fn client_tls(args: &Args) -> Result<rustls::ClientConfig, Failure> {
    client_tls_with(args, provider())
}

/// [`client_tls`] with other cryptography.
pub fn client_tls_with(
    args: &Args,
    provider: impl Into<Arc<CryptoProvider>>,
) -> Result<rustls::ClientConfig, Failure> {
    let path: String = args.required("ca")?;
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(&path)? {
        roots.add(certificate?)?;
    }
    let mut tls = rustls::ClientConfig::builder_with_provider(provider.into())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // Handshakes are counted: a resumed one would omit the signatures.
    tls.resumption = rustls::client::Resumption::disabled();
    Ok(tls)
}

pub async fn connect(endpoint: &Endpoint, address: SocketAddr) -> Result<Connection, Failure> {
    Ok(endpoint.connect(address, SERVER_NAME)?.await?)
}

/// A server with `--cert` and `--key` on a free port, which it prints on stdout.
pub fn server(args: &Args, alpn: &[u8]) -> Result<Endpoint, Failure> {
    let certificate: String = args.required("cert")?;
    let key: String = args.required("key")?;
    let chain = CertificateDer::pem_file_iter(&certificate)?.collect::<Result<Vec<_>, _>>()?;
    let mut tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(&key)?)?;
    tls.alpn_protocols = vec![alpn.to_vec()];
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    config.transport_config(Arc::new(transport()));
    let endpoint = endpoint(Some(config))?;
    println!("READY {}", endpoint.local_addr()?.port());
    Ok(endpoint)
}

fn endpoint(server: Option<ServerConfig>) -> Result<Endpoint, Failure> {
    let socket = std::net::UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    socket2::SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER)?;
    let runtime = Arc::new(TokioRuntime);
    Ok(Endpoint::new(
        EndpointConfig::default(),
        server,
        socket,
        runtime,
    )?)
}

/// The runtime has one thread, because every process of a benchmark has one core.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?)
}

/// The windows of both ends.
#[must_use]
pub fn transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(2 * WINDOW))
        .send_window(u64::from(WINDOW))
        .max_concurrent_bidi_streams(VarInt::from_u32(1024));
    transport
}

/// AES-128-GCM comes first, as in uringcore, so that no peer uses a cheaper or a more expensive
/// cipher.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider
        .cipher_suites
        .sort_by_key(|suite| suite.suite() != rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}
