//! TLS handshakes that succeed, and those that fail.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::support::{
    ALPN, Closed, Link, Pair, authority, client_settings, clock, issue, key_lines, server_settings,
    stranger,
};
use rustls::pki_types::CertificateDer;
use uringcore_quic::{
    ClientSetup, CloseKind, ConnectError, Endpoint, EndpointSettings, Event, ServerSettings,
    ServerSetup,
    tls::{CipherSuite, ClientAuth, Group, Identity, Roots, TrustStore, WallClock},
};

#[test]
fn the_handshake_reports_the_negotiated_values() {
    let mut pair = Pair::default_pair();
    let (client, server) = pair.establish();
    let alpn = Some(ALPN.to_vec());
    let negotiated = Event::ProtocolNegotiated { alpn: alpn.clone() };
    let completed = Event::HandshakeCompleted {
        alpn,
        early_data_accepted: false,
        session_resumed: false,
    };
    let of = |peer: &crate::support::Peer| {
        peer.events
            .iter()
            .map(|(_, e)| e.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(of(&pair.client), [negotiated.clone(), completed.clone()]);
    assert_eq!(of(&pair.server), [Event::Accepted, negotiated, completed]);
    let conn = pair.client.endpoint.peek(client).unwrap();
    assert!(conn.is_client() && conn.is_established() && !conn.is_closed());
    assert_eq!(
        (conn.alpn(), conn.server_name()),
        (Some(ALPN), Some("localhost"))
    );
    assert_eq!(conn.remote_addr(), pair.server.addr);
    let shown = conn.peer_certificates().unwrap();
    assert_eq!(shown, [authority().localhost.cert_chain[0].to_vec()]);
    let conn = pair.server.endpoint.peek(server).unwrap();
    assert!(!conn.is_client() && conn.is_established());
    assert_eq!(
        (conn.alpn(), conn.server_name()),
        (Some(ALPN), Some("localhost"))
    );
    assert_eq!(conn.peer_certificates(), None);
    assert!(
        pair.elapsed() < Duration::from_millis(50),
        "one round trip: {:?}",
        pair.elapsed()
    );
}

#[test]
fn a_handshake_survives_a_lossy_link() {
    // The link may drop several probes in a row. Probe time-outs double, so their sum soon exceeds the default of 10
    // seconds.
    let handshake_timeout = Duration::from_secs(60);
    let settings = EndpointSettings {
        handshake_timeout,
        ..EndpointSettings::default()
    };
    let mut pair = Pair::with(client_settings(), server_settings(), settings);
    pair.link = Link {
        loss: 30,
        reorder: 20,
        duplicate: 10,
        corrupt: 5,
        ..Link::default()
    };
    for _ in 0..20 {
        pair.establish();
    }
}

#[test]
fn a_second_connection_resumes_the_session() {
    let mut pair = Pair::default_pair();
    pair.establish();
    pair.run_for(Duration::from_secs(1));
    let (client, server) = pair.establish();
    let resumed = |event: &Event| {
        matches!(
            event,
            Event::HandshakeCompleted {
                session_resumed: true,
                ..
            }
        )
    };
    assert!(pair.client.has(client, resumed) && pair.server.has(server, resumed));
}

#[test]
fn every_cipher_suite_works_and_no_common_one_fails() {
    let suites = [
        CipherSuite::Aes128GcmSha256,
        CipherSuite::Aes256GcmSha384,
        CipherSuite::ChaCha20Poly1305Sha256,
    ];
    for suite in suites {
        assert_eq!(CipherSuite::from_u16(suite.as_u16()), Some(suite));
        let mut client = client_settings();
        client.cipher_suites = Some(vec![suite]);
        Pair::new(client, server_settings()).establish();
    }
    let (mut client, mut server) = (client_settings(), server_settings());
    client.cipher_suites = Some(vec![suites[0]]);
    server.cipher_suites = Some(vec![suites[2]]);
    let mut pair = Pair::new(client, server);
    let key = pair.connect();
    pair.run_until("the failure", |pair| pair.client.closed(key).is_some());
    assert_eq!(
        pair.client.closed(key).unwrap().3,
        CloseKind::Tls { alert: 40 }
    );
}

#[test]
fn the_key_log_gets_the_secrets_of_both_sides() {
    let (mut client, mut server) = (client_settings(), server_settings());
    let (client_lines, server_lines) = (key_lines(), key_lines());
    client.key_log = Some(client_lines.clone());
    server.key_log = Some(server_lines.clone());
    Pair::new(client, server).establish();
    for lines in [client_lines, server_lines] {
        let lines = lines.0.lock().unwrap();
        for label in ["CLIENT_HANDSHAKE_TRAFFIC_SECRET", "SERVER_TRAFFIC_SECRET_0"] {
            assert!(
                lines.iter().any(|line| line.starts_with(label)),
                "{label} in {lines:?}"
            );
        }
    }
}

/// Connects, and waits until the client's connection, and the server's if there is one, has ended.
fn fail(pair: &mut Pair, name: &str) -> [Option<Closed>; 2] {
    let key = pair.connect_to(name);
    pair.run_until("the client's end", |pair| pair.client.closed(key).is_some());
    assert!(
        pair.elapsed() < Duration::from_secs(1),
        "the failure is reported at once, not after {:?}",
        pair.elapsed()
    );
    pair.run_until_idle();
    let accepted = pair.server.events.first().map(|(key, _)| *key);
    [
        pair.client.closed(key),
        accepted.and_then(|key| pair.server.closed(key)),
    ]
}

#[test]
fn certificate_of_an_unknown_authority_is_refused_with_the_reason() {
    let mut client = client_settings();
    client.roots = Roots::Pem(stranger().pem.clone().into_bytes());
    let [ours, theirs] = fail(&mut Pair::new(client, server_settings()), "localhost");
    let (code, frame_type, reason, kind) = ours.unwrap();
    assert_eq!(
        (code, frame_type, kind),
        (0x130, Some(6), CloseKind::Tls { alert: 48 })
    );
    assert!(reason.contains("trusted authority"), "{reason}");
    let (code, frame_type, reason, kind) = theirs.unwrap();
    assert_eq!(
        (code, frame_type, kind),
        (0x130, Some(6), CloseKind::Tls { alert: 48 })
    );
    assert!(reason.contains("trusted authority"), "{reason}");
}

#[test]
fn without_trusted_authorities_every_certificate_is_rejected() {
    let mut client = client_settings();
    client.roots = Roots::None;
    let [ours, _] = fail(&mut Pair::new(client, server_settings()), "localhost");
    assert_eq!(ours.unwrap().3, CloseKind::Tls { alert: 48 });
}

#[test]
fn certificate_for_another_name_is_refused_with_both_names() {
    let [ours, theirs] = fail(&mut Pair::default_pair(), "example.org");
    let (code, _, reason, kind) = ours.unwrap();
    assert_eq!((code, kind), (0x12a, CloseKind::Tls { alert: 42 }));
    assert_eq!(reason, "hostname 'example.org' doesn't match 'localhost'");
    assert_eq!(theirs.unwrap().3, CloseKind::Tls { alert: 42 });
}

#[test]
fn verification_can_be_disabled_completely_or_for_the_name() {
    let mut client = client_settings();
    client.roots = Roots::Pem(stranger().pem.clone().into_bytes());
    client.verify = false;
    Pair::new(client, server_settings()).establish();

    let mut client = client_settings();
    client.check_hostname = false;
    let mut pair = Pair::new(client.clone(), server_settings());
    let key = pair.connect_to("example.org");
    let completed = |event: &Event| matches!(event, Event::HandshakeCompleted { .. });
    pair.run_until("the handshake", |pair| pair.client.has(key, completed));

    client.roots = Roots::Pem(stranger().pem.clone().into_bytes());
    let [ours, _] = fail(&mut Pair::new(client, server_settings()), "example.org");
    assert_eq!(
        ours.unwrap().3,
        CloseKind::Tls { alert: 48 },
        "the chain is still verified"
    );
}

#[test]
fn a_self_signed_server_certificate_can_be_trusted() {
    let make = |is_authority: bool, years: std::ops::Range<i32>| {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
        if is_authority {
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        }
        params.not_before = rcgen::date_time_ymd(years.start, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.end, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let identity = Identity::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes()).unwrap();
        let server = ServerSettings {
            alpn: vec![ALPN.to_vec()],
            ..ServerSettings::new(identity, clock())
        };
        let mut client = client_settings();
        client.roots = Roots::Pem(pem.into_bytes());
        (client, server)
    };
    for is_authority in [false, true] {
        let (client, server) = make(is_authority, 2020..2090);
        Pair::new(client.clone(), server.clone()).establish();
        let [ours, _] = fail(&mut Pair::new(client, server), "example.org");
        assert_eq!(
            ours.unwrap().3,
            CloseKind::Tls { alert: 42 },
            "the name is still verified"
        );
        for years in [2010..2020, 2080..2090] {
            let (client, server) = make(is_authority, years);
            let [ours, _] = fail(&mut Pair::new(client, server), "localhost");
            let (_, _, reason, kind) = ours.unwrap();
            assert_eq!(
                kind,
                CloseKind::Tls { alert: 45 },
                "the dates are still verified: {reason}"
            );
        }
    }
}

#[test]
fn without_a_common_alpn_both_sides_fail() {
    let mut client = client_settings();
    client.alpn = vec![b"other".to_vec()];
    let [ours, theirs] = fail(&mut Pair::new(client, server_settings()), "localhost");
    let (code, _, reason, kind) = ours.unwrap();
    assert_eq!((code, kind), (0x178, CloseKind::Tls { alert: 120 }));
    assert!(reason.contains("ALPN"), "{reason}");
    if let Some((_, _, _, kind)) = theirs {
        assert_eq!(kind, CloseKind::Tls { alert: 120 });
    }
}

#[test]
fn client_certificates_are_requested_and_verified() {
    let trusted = || Roots::Pem(authority().pem.clone().into_bytes());
    let with_auth = |client_auth| ServerSettings {
        client_auth,
        ..server_settings()
    };
    let with_cert = |identity: &Identity| {
        let mut client = client_settings();
        client.client_cert = Some((identity.cert_chain.clone(), identity.key.clone_key().into()));
        client
    };

    let mut pair = Pair::new(
        client_settings(),
        with_auth(ClientAuth::Required(trusted())),
    );
    let [ours, theirs] = fail(&mut pair, "localhost");
    for (_, _, reason, kind) in [ours.unwrap(), theirs.unwrap()] {
        assert_eq!(kind, CloseKind::Tls { alert: 116 });
        assert!(reason.contains("certificate"), "{reason}");
    }

    let wrong = with_cert(&stranger().client);
    let mut pair = Pair::new(wrong, with_auth(ClientAuth::Required(trusted())));
    let [ours, theirs] = fail(&mut pair, "localhost");
    for (_, _, _, kind) in [ours.unwrap(), theirs.unwrap()] {
        assert_eq!(kind, CloseKind::Tls { alert: 48 });
    }

    for client_auth in [
        ClientAuth::Required(trusted()),
        ClientAuth::Optional(trusted()),
    ] {
        let right = with_cert(&authority().client);
        let mut pair = Pair::new(right, with_auth(client_auth));
        let (_, server) = pair.establish();
        let shown = pair
            .server
            .endpoint
            .peek(server)
            .unwrap()
            .peer_certificates()
            .unwrap();
        assert_eq!(shown, [authority().client.cert_chain[0].to_vec()]);
    }
    Pair::new(
        client_settings(),
        with_auth(ClientAuth::Optional(trusted())),
    )
    .establish();
}

#[test]
fn a_self_signed_client_certificate_can_be_trusted() {
    let made = |is_ca| {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["client".into()]).unwrap();
        if is_ca {
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        }
        let pem = params.self_signed(&key).unwrap().pem();
        let identity = Identity::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes()).unwrap();
        (pem, identity)
    };
    for is_ca in [true, false] {
        let (pem, identity) = made(is_ca);
        let server = ServerSettings {
            client_auth: ClientAuth::Required(Roots::Pem(pem.into_bytes())),
            ..server_settings()
        };
        let with = |identity: &Identity| {
            let mut client = client_settings();
            let chain = identity.cert_chain.clone();
            client.client_cert = Some((chain, identity.key.clone_key().into()));
            client
        };
        Pair::new(with(&identity), server.clone()).establish();
        // The server does not trust another certificate, although it is for the same name.
        let [ours, _] = fail(&mut Pair::new(with(&made(is_ca).1), server), "localhost");
        assert!(matches!(ours.unwrap().3, CloseKind::Tls { .. }));
    }
}

#[test]
fn the_error_for_a_setting_names_its_field() {
    let field = |change: &dyn Fn(&mut uringcore_quic::ClientSettings)| {
        let mut settings = client_settings();
        change(&mut settings);
        ClientSetup::new(&settings).err().map(|error| error.field)
    };
    assert_eq!(field(&|_| {}), None);
    assert_eq!(field(&|s| s.alpn = vec![vec![]]), Some("alpn"));
    assert_eq!(field(&|s| s.alpn = vec![vec![b'x'; 256]]), Some("alpn"));
    assert_eq!(
        field(&|s| s.roots = Roots::Pem(b"nonsense".to_vec())),
        Some("roots")
    );
    assert_eq!(
        field(&|s| s.cipher_suites = Some(vec![])),
        Some("cipher_suites")
    );
    assert_eq!(field(&|s| s.groups = Some(vec![])), Some("groups"));
    assert_eq!(
        field(&|s| s.supported_versions = vec![7]),
        Some("supported_versions")
    );
    assert_eq!(field(&|s| s.transport.max_data = 1 << 62), Some("max_data"));
    assert_eq!(
        field(&|s| s.transport.max_streams_uni = 1 << 61),
        Some("max_streams_uni")
    );
    assert_eq!(
        field(&|s| s.transport.max_datagram_size = 1_199),
        Some("max_datagram_size")
    );
    assert_eq!(
        field(&|s| s.transport.initial_rtt = Duration::ZERO),
        Some("initial_rtt")
    );
    assert_eq!(field(&|s| s.transport.send_window = 0), Some("send_window"));
    let other = &authority().client;
    assert_eq!(
        field(&|s| {
            let chain = authority().localhost.cert_chain.clone();
            s.client_cert = Some((chain, other.key.clone_key().into()));
        }),
        Some("client_cert")
    );
    let mut mixed = server_settings();
    mixed.key = other.key.clone_key().into();
    let error = ServerSetup::new(&mixed).unwrap_err();
    assert_eq!(error.field, "key");
    assert!(error.message.contains("does not belong"), "{error}");
    assert_eq!(
        Identity::from_pem(b"", b"").unwrap_err().field,
        "cert_chain"
    );
    let pem = authority().pem.as_bytes();
    assert_eq!(Identity::from_pem(pem, pem).unwrap_err().field, "key");
}

#[test]
fn connections_to_invalid_addresses_are_refused() {
    let setup = ClientSetup::new(&client_settings()).unwrap();
    let settings = EndpointSettings {
        max_connections: 1,
        ..EndpointSettings::default()
    };
    let mut endpoint = Endpoint::new(settings, None);
    let now = std::time::Instant::now();
    let addr = "10.0.0.2:443".parse().unwrap();
    let refused = endpoint.connect(now, &setup, "10.0.0.2:0".parse().unwrap(), "localhost");
    assert!(matches!(
        refused,
        Err(ConnectError::InvalidRemoteAddress(_))
    ));
    let refused = endpoint.connect(now, &setup, addr, "not a name");
    assert!(matches!(refused, Err(ConnectError::InvalidServerName(_))));
    endpoint.connect(now, &setup, addr, "").unwrap();
    let refused = endpoint.connect(now, &setup, addr, "localhost");
    assert_eq!(refused, Err(ConnectError::TooManyConnections { limit: 1 }));
}

#[test]
fn an_ip_address_is_verified_as_an_address() {
    let server = ServerSettings {
        alpn: vec![ALPN.to_vec()],
        ..ServerSettings::new(issue(&authority().issuer, "10.0.0.2"), clock())
    };
    let mut pair = Pair::new(client_settings(), server);
    let key = pair.connect_to("");
    let completed = |event: &Event| matches!(event, Event::HandshakeCompleted { .. });
    pair.run_until("the handshake", |pair| pair.client.has(key, completed));
}

#[test]
fn only_authorities_in_the_given_store_are_trusted() {
    let mut client = client_settings();
    let authority = authority().issuer.der().clone();
    // The store skips a certificate that cannot be parsed.
    let store = TrustStore::of(vec![CertificateDer::from(vec![1, 2, 3]), authority]);
    client.roots = Roots::Store(store);
    Pair::new(client.clone(), server_settings()).establish();
    let with = ServerSettings {
        alpn: vec![ALPN.to_vec()],
        ..ServerSettings::new(stranger().localhost.clone(), clock())
    };
    let [ours, _] = fail(&mut Pair::new(client, with), "localhost");
    assert_eq!(ours.unwrap().3, CloseKind::Tls { alert: 48 });
}

#[test]
fn certificates_are_verified_at_the_applications_time() {
    #[derive(Debug)]
    struct Late;
    impl WallClock for Late {
        fn now(&self) -> SystemTime {
            // A time in the year 5138, when the test's certificates have expired.
            SystemTime::UNIX_EPOCH + Duration::from_secs(100_000_000_000)
        }
    }
    let mut client = client_settings();
    client.clock = Arc::new(Late);
    let [ours, _] = fail(&mut Pair::new(client, server_settings()), "localhost");
    assert_eq!(ours.unwrap().3, CloseKind::Tls { alert: 45 }, "expired");
}

#[test]
fn every_group_works_and_no_common_one_fails() {
    let numbers = [0x0017, 0x0018, 0x001d, 0x11ec];
    let groups = numbers.map(|number| Group::from_u16(number).unwrap());
    assert_eq!(Group::from_u16(0x0019), None);
    for group in groups {
        let mut client = client_settings();
        client.groups = Some(vec![group]);
        let mut pair = Pair::new(client, server_settings());
        let (key, _) = pair.establish();
        let stats = pair.client.endpoint.peek(key).unwrap().stats();
        assert_eq!(stats.group.and_then(Group::from_u16), Some(group));
        // The server does not support the client's first group, so it requests another key share.
        let (mut client, mut server) = (client_settings(), server_settings());
        client.groups = Some(groups.iter().rev().copied().collect());
        server.groups = Some(vec![group]);
        Pair::new(client, server).establish();
    }
    let (mut client, mut server) = (client_settings(), server_settings());
    client.groups = Some(vec![Group::X25519]);
    server.groups = Some(vec![Group::Secp384r1]);
    let [ours, _] = fail(&mut Pair::new(client, server), "localhost");
    assert_eq!(ours.unwrap().3, CloseKind::Tls { alert: 40 });
}

#[test]
fn a_server_prefers_its_own_first_cipher_suite() {
    let (mut client, lines) = (client_settings(), key_lines());
    client.cipher_suites = Some(vec![
        CipherSuite::Aes256GcmSha384,
        CipherSuite::Aes128GcmSha256,
    ]);
    client.key_log = Some(lines.clone());
    Pair::new(client, server_settings()).establish();
    // A secret has 32 bytes with SHA-256, and 48 with SHA-384.
    let wanted = "CLIENT_TRAFFIC_SECRET_0 32";
    assert!(lines.0.lock().unwrap().iter().any(|line| line == wanted));
}
