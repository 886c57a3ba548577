//! Tests with two sessions and no packets: handshake bytes are passed from one session to the other, and the keys of
//! each session are tried on what the other has sealed.

use std::time::Duration;

use rcgen::{CertificateParams, KeyPair as CertificateKey};
use rustls::{
    NamedGroup,
    crypto::{CryptoProvider, aws_lc_rs as provider},
    pki_types::PrivateKeyDer,
    version::TLS13,
};
use uringcore_wire::packet_header::{VERSION_2, unshift_type};

use super::*;
use crate::{tls::WallClock, workarounds::hkdf_labels::with_labels};

#[derive(Debug)]
struct StoppedClock;

impl WallClock for StoppedClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000)
    }
}

fn clock() -> ApplicationClock {
    ApplicationClock(Arc::new(StoppedClock))
}

fn provider_of(group: Option<NamedGroup>) -> Arc<CryptoProvider> {
    let mut result = provider::default_provider();
    result.cipher_suites = vec![with_labels(
        provider::cipher_suite::TLS13_AES_128_GCM_SHA256,
    )];
    if let Some(group) = group {
        result.kx_groups.retain(|known| known.name() == group);
    }
    Arc::new(result)
}

/// The configurations of a client and a server. The server accepts only key shares of `group`.
fn configs(group: Option<NamedGroup>) -> (Arc<rustls::ClientConfig>, Arc<rustls::ServerConfig>) {
    let key = CertificateKey::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".into()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    let client = rustls::ClientConfig::builder_with_details(provider_of(None), Arc::new(clock()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let server = rustls::ServerConfig::builder_with_details(provider_of(group), Arc::new(clock()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    (Arc::new(client), Arc::new(server))
}

struct Side {
    session: Box<dyn crypto::Session>,
    keys: Vec<Keys>,
    flights: usize,
}

impl Side {
    fn versions(&self) -> Arc<Versions> {
        let details = self.session.handshake_data().unwrap();
        details.downcast::<SessionDetails>().unwrap().versions
    }

    /// The bytes that this session sends now, by encryption level.
    fn take_bytes(&mut self) -> Vec<Vec<u8>> {
        let mut levels = Vec::new();
        loop {
            let mut bytes = Vec::new();
            let keys = self.session.write_handshake(&mut bytes);
            if keys.is_none() && bytes.is_empty() {
                break;
            }
            self.keys.extend(keys);
            levels.push(bytes);
        }
        self.flights += usize::from(levels.iter().any(|bytes| !bytes.is_empty()));
        levels
    }
}

fn sides(group: Option<NamedGroup>, client: (u32, &[u32]), server: (u32, &[u32])) -> [Side; 2] {
    let (client_config, server_config) = configs(group);
    let params = TransportParameters::read(quinn_proto::Side::Server, &mut &[][..]).unwrap();
    let crypto = Arc::new(ClientCrypto::new(
        client_config,
        clock(),
        client.1.to_vec(),
        None,
    ));
    let client = crypto::ClientConfig::start_session(crypto, client.0, "localhost", &params);
    let crypto = Arc::new(ServerCrypto::new(server_config, clock(), server.1.to_vec()));
    let server = crypto::ServerConfig::start_session(crypto, server.0, &params);
    [client.unwrap(), server].map(|session| Side {
        session,
        keys: Vec::new(),
        flights: 0,
    })
}

/// Exchanges handshake bytes in pieces of `piece` bytes, until neither session has any.
fn shake(sides: &mut [Side; 2], piece: usize) -> Result<(), TransportError> {
    loop {
        let mut is_over = true;
        for from in [0, 1] {
            for bytes in sides[from].take_bytes() {
                is_over = false;
                for piece in bytes.chunks(piece) {
                    sides[1 - from].session.read_handshake(piece)?;
                }
            }
        }
        if is_over {
            return Ok(());
        }
    }
}

/// Seals and opens a packet with a long header of version `original`, with a PING and PADDING. The wire must show the
/// version `shown`, and only the PING must be left.
fn passes(local: &Keys, remote: &Keys, original: u32, shown: u32) {
    let mut packet = vec![0xe0];
    packet.extend(original.to_be_bytes());
    packet.extend([0, 0, 0x40, 41, 5]);
    let header = packet.len();
    packet.push(1);
    packet.extend([0; 23]);
    packet.extend(vec![0; local.packet.local.tag_len()]);
    local.packet.local.encrypt(5, &mut packet, header);
    assert_eq!(version_of(&packet), Some(shown));
    let mut payload = bytes::BytesMut::from(&packet[header..]);
    if shown == VERSION_2 {
        packet[0] = unshift_type(packet[0]);
    }
    remote
        .packet
        .remote
        .decrypt(5, &packet[..header], &mut payload)
        .unwrap();
    assert_eq!(payload[..], [1]);
}

const BOTH: &[u32] = &[VERSION_1, VERSION_2];
const TURNED: &[u32] = &[VERSION_2, VERSION_1];

#[test]
fn a_hello_retry_request_does_not_change_the_version() {
    for (original, supported, chosen) in [
        (VERSION_1, BOTH, VERSION_1),
        (VERSION_1, TURNED, VERSION_2),
        (VERSION_2, BOTH, VERSION_1),
        (VERSION_2, TURNED, VERSION_2),
    ] {
        for piece in [1, 100, 100_000] {
            let group = Some(NamedGroup::secp384r1);
            let mut sides = sides(group, (original, supported), (original, BOTH));
            // The server's packets have the version that the server has chosen.
            sides[0].versions().received(chosen);
            shake(&mut sides, piece).unwrap();
            let [client, server] = &sides;
            assert_eq!(
                client.flights, 3,
                "the client has sent two ClientHellos and a Finished"
            );
            for side in [client, server] {
                assert_eq!(side.versions().negotiated(), Some(chosen));
                assert_eq!(side.keys.len(), 2);
                assert!(!side.session.is_handshaking());
            }
            passes(&client.keys[0], &server.keys[0], original, chosen);
            passes(&server.keys[0], &client.keys[0], original, chosen);
        }
    }
}

#[test]
fn key_updates_follow_the_negotiated_version() {
    let mut keys = Vec::new();
    for supported in [BOTH, TURNED] {
        let mut sides = sides(None, (VERSION_1, supported), (VERSION_1, BOTH));
        sides[0].versions().received(supported[0]);
        shake(&mut sides, 1_000).unwrap();
        for _ in 0..3 {
            let [client, server] = &mut sides;
            let ours = client.session.next_1rtt_keys().unwrap();
            let theirs = server.session.next_1rtt_keys().unwrap();
            let mut packet = vec![0x40, 7];
            packet.resize(2 + 20 + ours.local.tag_len(), 0);
            ours.local.encrypt(9, &mut packet, 2);
            let mut payload = bytes::BytesMut::from(&packet[2..]);
            theirs
                .remote
                .decrypt(9, &packet[..2], &mut payload)
                .unwrap();
            keys.push(packet);
        }
    }
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 6);
}

#[test]
fn server_refuses_a_chosen_version_that_is_not_on_the_wire() {
    let mut sides = sides(None, (VERSION_1, BOTH), (VERSION_2, BOTH));
    let error = shake(&mut sides, 500).unwrap_err();
    assert_eq!(u64::from(error.code), 0x11);
    assert!(sides[1].session.is_handshaking());
}

#[test]
fn client_refuses_a_chosen_version_that_is_not_on_the_wire() {
    let mut sides = sides(None, (VERSION_1, BOTH), (VERSION_1, BOTH));
    sides[0].versions().received(VERSION_2);
    let error = shake(&mut sides, 500).unwrap_err();
    assert_eq!(u64::from(error.code), 0x11);
    assert_eq!(sides[0].versions().negotiated(), Some(VERSION_2));
}

#[test]
fn invalid_client_hellos_are_rejected_by_tls() {
    for bytes in [&[2, 0, 0, 1, 0][..], &[1, 0, 0, 1, 0], &[1, 0, 0, 0]] {
        let [_, mut server] = sides(None, (VERSION_1, BOTH), (VERSION_1, BOTH));
        let error = server.session.read_handshake(bytes).unwrap_err();
        let code = u64::from(error.code);
        assert!((0x100..0x200).contains(&code), "{code:#x}: {error}");
    }
    let [_, mut server] = sides(None, (VERSION_1, BOTH), (VERSION_1, BOTH));
    assert!(
        !server
            .session
            .read_handshake(&[1, 0xff, 0xff, 0xff])
            .unwrap()
    );
    let endless = vec![0; 1 << 16];
    assert!(server.session.read_handshake(&endless).is_err());
}

/// True if a packet that `from` seals with these keys of a later phase opens with the keys of `to`.
fn later(
    from: &KeyPair<Box<dyn crypto::PacketKey>>,
    to: &KeyPair<Box<dyn crypto::PacketKey>>,
) -> bool {
    let mut packet = vec![0x40, 5, 1, 2, 3];
    packet.resize(packet.len() + from.local.tag_len(), 0);
    from.local.encrypt(5, &mut packet, 2);
    let mut payload = bytes::BytesMut::from(&packet[2..]);
    to.remote.decrypt(5, &packet[..2], &mut payload).is_ok()
}

#[test]
fn keys_of_later_phases_match_in_any_order_of_use() {
    for version in BOTH {
        let mut sides = sides(None, (VERSION_1, BOTH), (VERSION_1, &[*version]));
        shake(&mut sides, usize::MAX).unwrap();
        let mut next = |side: usize| sides[side].session.next_1rtt_keys().unwrap();
        let client = [next(0), next(0), next(0)];
        let server = [next(1), next(1), next(1)];
        // The keys of the last phase are used first.
        for phase in [2, 0, 1] {
            assert!(later(&client[phase], &server[phase]));
            assert!(later(&server[phase], &client[phase]));
            assert!(!later(&client[phase], &server[(phase + 1) % 3]));
        }
    }
}

/// True if `server` opens an Initial packet that `client` has sealed with the keys for `id`.
fn opens(server: &dyn crypto::Session, client: &dyn crypto::Session, id: &ConnectionId) -> bool {
    let mut packet = vec![0xc0, 0, 0, 0, 1, 0, 0, 0, 0x40, 0x40, 3];
    let header_len = packet.len();
    packet.extend([6, 0, 4, 1, 2, 3, 4]);
    let local = client
        .initial_keys(id, quinn_proto::Side::Client)
        .packet
        .local;
    packet.resize(packet.len() + local.tag_len(), 0);
    local.encrypt(3, &mut packet, header_len);
    let (header, sealed) = packet.split_at(header_len);
    let remote = server
        .initial_keys(id, quinn_proto::Side::Server)
        .packet
        .remote;
    remote
        .decrypt(3, header, &mut bytes::BytesMut::from(sealed))
        .is_ok()
}

#[test]
fn a_servers_session_has_the_initial_keys_of_its_client_whatever_packet_came_last() {
    let [client, _] = sides(None, (VERSION_1, &[VERSION_1]), (VERSION_1, &[VERSION_1]));
    let ids = [5, 6].map(|byte| ConnectionId::new(&[byte; 8]));
    let params = TransportParameters::read(quinn_proto::Side::Server, &mut &[][..]).unwrap();
    let server = Arc::new(ServerCrypto::new(configs(None).1, clock(), vec![VERSION_1]));
    for last in [Some(ids[0]), Some(ids[1]), None] {
        if let Some(id) = last {
            let first = crypto::ServerConfig::initial_keys(&*server, VERSION_1, &id);
            assert!(first.is_ok());
        }
        let session = crypto::ServerConfig::start_session(server.clone(), VERSION_1, &params);
        for id in &ids {
            assert!(opens(&*session, &*client.session, id), "{last:?}");
        }
    }
}
