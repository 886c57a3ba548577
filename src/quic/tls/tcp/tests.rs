//! Sessions with a client of rustls.

use std::{
    io::{Cursor, Read, Write},
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

use bytes::BytesMut;
use rustls::{
    CipherSuiteCommon, ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion,
    Tls12CipherSuite,
};

use super::*;
use crate::tls::random::random_bytes;

/// A client and a server whose handshake is complete.
struct Pair {
    client: ClientConnection,
    server: ServerSession,
}

impl Pair {
    fn with(version: &'static SupportedProtocolVersion, setup: &TcpServerSetup) -> Self {
        let mut pair = Self {
            client: client(version),
            server: ServerSession::new(setup).unwrap(),
        };
        while pair.client.is_handshaking() || pair.server.is_handshaking() {
            let records = pair.client_records();
            let (_, answer) = pair.receive(BytesMut::from(&records[..]));
            pair.deliver(&answer);
        }
        pair
    }

    fn client_records(&mut self) -> Vec<u8> {
        let mut records = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut records).unwrap();
        }
        records
    }

    /// Returns the data that the server reads, and its records.
    fn receive(&mut self, data: BytesMut) -> (BytesMut, Vec<u8>) {
        let (mut plain, mut records) = (BytesMut::new(), Vec::new());
        let server = &mut self.server;
        server.handle_input(data, &mut plain, &mut records).unwrap();
        (plain, records)
    }

    /// Passes the server's records to the client. Returns the data that it reads.
    fn deliver(&mut self, records: &[u8]) -> Vec<u8> {
        let mut records = Cursor::new(records);
        let mut data = Vec::new();
        while self.client.read_tls(&mut records).unwrap() > 0 {
            self.client.process_new_packets().unwrap();
            let _ = self.client.reader().read_to_end(&mut data);
        }
        data
    }
}

fn client(version: &'static SupportedProtocolVersion) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(identity().cert_chain[0].clone()).unwrap();
    let provider = Arc::new(provider_with_ed448());
    let builder = ClientConfig::builder_with_details(provider, Arc::new(ApplicationClock(clock())));
    let builder = builder.with_protocol_versions(&[version]).unwrap();
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap()
}

fn identity() -> &'static Identity {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    IDENTITY.get_or_init(|| {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Identity::from_pem(certificate.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap()
    })
}

#[derive(Debug)]
struct StoppedClock;

impl WallClock for StoppedClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000)
    }
}

fn clock() -> Arc<dyn WallClock> {
    Arc::new(StoppedClock)
}

fn settings() -> TcpServerSettings {
    TcpServerSettings {
        clock: clock(),
        alpn: vec![],
        identity: identity().clone(),
        named: vec![],
        client_auth: ClientAuth::Off,
        ticket_keys: vec![random_bytes::<64>().to_vec()],
    }
}

/// A received piece in a buffer of the size that a receive may have.
fn in_large_buffer(data: &[u8]) -> BytesMut {
    let mut buffer = BytesMut::with_capacity(LARGE_BYTES);
    buffer.extend_from_slice(data);
    buffer
}

#[test]
fn bytes_of_an_incomplete_record_keep_no_large_buffer() {
    let setup = TcpServerSetup::new(&settings()).unwrap();
    for version in [&TLS13, &TLS12] {
        let mut pair = Pair::with(version, &setup);
        assert_eq!(pair.server.incoming_bytes(), 0);
        pair.client.writer().write_all(&[7; 60 << 10]).unwrap();
        let mut records = pair.client_records();
        pair.client.writer().write_all(b"more").unwrap();
        let more = pair.client_records();
        // One byte of the next record follows the complete ones.
        records.push(more[0]);
        let (plain, _) = pair.receive(in_large_buffer(&records));
        assert_eq!(plain.len(), 60 << 10);
        assert_eq!(pair.server.incoming_bytes(), 1);
        // One byte alone.
        pair.receive(in_large_buffer(&more[1..2]));
        assert!(pair.server.incoming_bytes() < 256);
        let (plain, _) = pair.receive(in_large_buffer(&more[2..]));
        assert_eq!(plain, b"more"[..]);
        assert_eq!(pair.server.incoming_bytes(), 0);
    }
    let mut server = ServerSession::new(&setup).unwrap();
    let mut plain = BytesMut::new();
    let first = in_large_buffer(&[0x16]);
    server
        .handle_input(first, &mut plain, &mut Vec::new())
        .unwrap();
    assert_eq!(server.incoming_bytes(), 1);
}

/// A provider whose keys of TLS 1.2 may encrypt only a few records.
fn provider_of_short_keys() -> CryptoProvider {
    let mut provider = provider_with_ed448();
    for suite in &mut provider.cipher_suites {
        if let SupportedCipherSuite::Tls12(kept) = suite {
            let common = CipherSuiteCommon {
                suite: kept.common.suite,
                hash_provider: kept.common.hash_provider,
                confidentiality_limit: RECORDS_MAX,
            };
            // rustls requires static suites.
            *suite = SupportedCipherSuite::Tls12(Box::leak(Box::new(Tls12CipherSuite {
                common,
                ..**kept
            })));
        }
    }
    provider
}

#[test]
fn nothing_is_encrypted_after_the_limit_of_records() {
    let setup = TcpServerSetup::with_provider(&settings(), provider_of_short_keys()).unwrap();
    let mut pair = Pair::with(&TLS12, &setup);
    let encrypt = |server: &mut ServerSession| {
        let mut records = Vec::new();
        let piece = &b"data"[..];
        let outcome = server.encrypt(std::iter::once(piece), &mut records);
        outcome.map(|()| records)
    };
    let mut count = 0;
    while let Ok(records) = encrypt(&mut pair.server) {
        assert_eq!(pair.deliver(&records), b"data");
        count += 1;
        assert!(count < RECORDS_MAX);
    }
    assert!(count > 0);
    // No later data may follow the data that is lost, and no close_notify.
    assert!(encrypt(&mut pair.server).is_err());
    let mut records = Vec::new();
    pair.server.close(&mut records);
    assert_eq!(records, b"");
}

const RECORDS_MAX: u64 = 8;
const LARGE_BYTES: usize = 120 << 10;
