//! Invariant: no bytes of a client make a session of TLS over TCP panic, in any pieces. What the session
//! stores is bounded. After a failure, which it reports once, it stores nothing, and delivers and sends
//! nothing. Data of a client whose records were not changed is delivered as it was sent.

#![no_main]

use std::io::{Read, Write};
use std::sync::{Arc, OnceLock};

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use uringcore_quic::tls::{ClientAuth, Roots, ServerSession, TcpServerSettings, TcpServerSetup};

use support::{authority, clock};

#[path = "../../src/quic/tests/support/mod.rs"]
#[allow(dead_code)]
mod support;

fuzz_target!(|data: &[u8]| {
    let [options, size, script @ ..] = data else {
        return;
    };
    let mut server = Server::new(options & 2 != 0);
    let size = usize::from(*size) + 1;
    match options & 1 {
        0 => {
            server.receive(script, size);
            let mut cut = Server::new(options & 2 != 0);
            cut.receive(script, 1);
            assert_eq!(server.has_failed, cut.has_failed);
            assert_eq!(server.plain, cut.plain);
        }
        _ => {
            let config = client_config(*options);
            if options & 0x10 != 0 {
                // The handshake that follows resumes this session.
                exchange(Server::new(options & 2 != 0), &config, size, &[]);
            }
            exchange(server, &config, size, script);
        }
    }
});

struct Server {
    session: ServerSession,
    plain: BytesMut,
    records: Vec<u8>,
    has_failed: bool,
}

impl Server {
    fn new(has_client_auth: bool) -> Self {
        static SETUPS: OnceLock<[TcpServerSetup; 2]> = OnceLock::new();
        let setups = SETUPS.get_or_init(|| {
            let roots = Roots::Pem(authority().pem.clone().into_bytes());
            [ClientAuth::Off, ClientAuth::Optional(roots)].map(|client_auth| {
                let settings = TcpServerSettings {
                    clock: clock(),
                    alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
                    identity: authority().localhost.clone(),
                    named: vec![],
                    client_auth,
                    ticket_keys: vec![vec![7; 64]],
                };
                TcpServerSetup::new(&settings).expect("the settings are good")
            })
        });
        let session = ServerSession::new(&setups[usize::from(has_client_auth)]);
        Self {
            session: session.expect("the setup is good"),
            plain: BytesMut::new(),
            records: Vec::new(),
            has_failed: false,
        }
    }

    /// Passes bytes to the session in pieces of `size`.
    fn receive(&mut self, data: &[u8], size: usize) {
        for piece in data.chunks(size) {
            let before = (self.plain.len(), self.records.len());
            let mut buffer = BytesMut::with_capacity(RECEIVE_BYTES);
            buffer.extend_from_slice(piece);
            let session = &mut self.session;
            let outcome = session.handle_input(buffer, &mut self.plain, &mut self.records);
            if self.has_failed {
                assert!(outcome.is_ok());
                assert_eq!(before, (self.plain.len(), self.records.len()));
            }
            self.has_failed |= outcome.is_err();
            let stored = session.incoming_bytes();
            assert!(stored <= STORED_MAX);
            assert!(!self.has_failed || stored == 0);
        }
    }
}

/// A handshake and data of a real client. Each four bytes of `script` change its records: at this place of the bytes
/// that it has not sent, a byte gets this value, or the rest is lost.
fn exchange(mut server: Server, config: &Arc<ClientConfig>, size: usize, script: &[u8]) {
    let name = "localhost".try_into().expect("it is a name");
    let client = ClientConnection::new(config.clone(), name);
    let mut client = client.expect("the configuration is good");
    let mut script = script.chunks_exact(4);
    let (mut sent, mut is_changed) = (0, false);
    // Beside the handshake, the client sends data twice.
    for _ in 0..ROUNDS {
        let mut flight = Vec::new();
        while client.wants_write() && client.write_tls(&mut flight).is_ok() {}
        if let Some(&[high, low, kind, value]) = script.next().filter(|_| !flight.is_empty()) {
            let at = usize::from(u16::from_be_bytes([high, low])) % flight.len();
            match kind % 4 {
                // Without a change.
                0 => {}
                1 => flight.truncate(at),
                2 => flight.insert(at, value),
                _ => flight[at] = value,
            }
            is_changed |= kind % 4 != 0;
        }
        server.receive(&flight, size);
        if !server.session.is_handshaking() && !server.has_failed {
            let piece = &b"an answer"[..];
            let encrypted = server
                .session
                .encrypt(std::iter::once(piece), &mut server.records);
            assert!(encrypted.is_ok());
        }
        let records = std::mem::take(&mut server.records);
        let mut unread = &records[..];
        while !unread.is_empty() && client.read_tls(&mut unread).is_ok() {
            if client.process_new_packets().is_err() {
                break;
            }
            let _ = client.reader().read(&mut [0; 1024]);
        }
        if !client.is_handshaking() && sent < 2 * DATA.len() {
            sent += client.writer().write(DATA).unwrap_or(0);
        }
    }
    if !is_changed {
        assert!(!server.has_failed);
        assert_eq!(server.plain, [DATA, DATA].concat());
    }
    server.session.close(&mut server.records);
    assert!(server.has_failed || server.session.is_handshaking() || !server.records.is_empty());
}

fn client_config(options: u8) -> Arc<ClientConfig> {
    static CONFIGS: OnceLock<[ClientConfig; 4]> = OnceLock::new();
    let configs = CONFIGS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        let authority_der = CertificateDer::from_pem_slice(authority().pem.as_bytes());
        roots
            .add(authority_der.expect("it is PEM"))
            .expect("it is an authority");
        [
            (&TLS12, false),
            (&TLS12, true),
            (&TLS13, false),
            (&TLS13, true),
        ]
        .map(|(version, has_certificate)| {
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let builder = ClientConfig::builder_with_provider(provider);
            let builder = builder
                .with_protocol_versions(&[version])
                .expect("the provider has this version")
                .with_root_certificates(roots.clone());
            match has_certificate {
                true => {
                    let own = authority().client.clone();
                    builder
                        .with_client_auth_cert(own.cert_chain, own.key)
                        .expect("they belong together")
                }
                false => builder.with_no_client_auth(),
            }
        })
    });
    let mut config = configs[usize::from(options >> 2 & 3)].clone();
    // No sessions of other inputs.
    config.resumption = Resumption::in_memory_sessions(4);
    Arc::new(config)
}

const DATA: &[u8] = &[b'x'; 3000];
const ROUNDS: usize = 8;
/// The buffer of one receive, which the session must not keep for a few bytes.
const RECEIVE_BYTES: usize = 120 << 10;
/// 128 KiB may wait, in a buffer that grows in steps of its size. Inputs of libFuzzer are shorter.
const STORED_MAX: usize = 2 * (128 << 10);
