//! Servers with several certificates: which one a client gets, and resumption of sessions.

use std::{sync::Arc, time::Duration};

use crate::support::{
    Pair, authority, client_settings, issue, issue_with, server_settings, stranger,
};
use uringcore_quic::{
    ClientSettings, ClientSetup, ConnectionKey, Event, ServerSettings, ServerSetup,
    tls::{Identity, MemorySessions, NamedIdentity, SERVER_NAMES_MAX, SessionTicket},
};

fn named(identity: &Identity, names: Option<&[&str]>) -> NamedIdentity {
    NamedIdentity {
        identity: identity.clone(),
        server_names: names.map(|names| names.iter().map(|name| (*name).into()).collect()),
    }
}

fn without_verification() -> ClientSettings {
    ClientSettings {
        verify: false,
        ..client_settings()
    }
}

/// Connects with this server name. Returns the certificate that the server has sent, and the connection.
fn ask(pair: &mut Pair, name: &str) -> (Vec<u8>, ConnectionKey) {
    let key = pair.connect_to(name);
    let is_completed = |event: &Event| matches!(event, Event::HandshakeCompleted { .. });
    pair.run_until("the handshake", |pair| pair.client.has(key, is_completed));
    pair.run_for(Duration::from_secs(1));
    let shown = pair.client.endpoint.peek(key).unwrap().peer_certificates();
    (shown.unwrap()[0].clone(), key)
}

fn is_resumed(pair: &Pair, key: ConnectionKey) -> bool {
    let resumed = |event: &Event| {
        matches!(
            event,
            Event::HandshakeCompleted {
                session_resumed: true,
                ..
            }
        )
    };
    pair.client.has(key, resumed)
}

fn leaf(identity: &Identity) -> Vec<u8> {
    identity.cert_chain[0].to_vec()
}

#[test]
fn a_client_gets_the_certificate_for_its_sni() {
    let one = issue(&authority().issuer, "one.example");
    let wild = issue(&authority().issuer, "*.one.example");
    let special = issue(&authority().issuer, "special.one.example");
    let settings = ServerSettings {
        named: vec![
            named(&wild, None),
            named(&one, Some(&["ONE.example."])),
            named(&special, None),
        ],
        ..server_settings()
    };
    let mut pair = Pair::new(client_settings(), settings.clone());
    for (name, expected) in [
        ("one.example", &one),
        ("One.EXAMPLE", &one),
        ("any.one.example", &wild),
        ("special.one.example", &special),
        ("localhost", &authority().localhost),
    ] {
        assert_eq!(ask(&mut pair, name).0, leaf(expected), "{name}");
    }
    let mut pair = Pair::new(without_verification(), settings);
    for name in [
        "two.any.one.example",
        "example",
        "two.example",
        "127.0.0.1",
        "::1",
    ] {
        let default = leaf(&authority().localhost);
        assert_eq!(ask(&mut pair, name).0, default, "{name}");
    }
}

#[test]
fn a_name_may_have_a_certificate_for_each_kind_of_key() {
    let [ecdsa, other] = ["one.example"; 2].map(|name| issue(&authority().issuer, name));
    let ed25519 = issue_with(&authority().issuer, "one.example", &rcgen::PKCS_ED25519);
    let for_others = issue_with(&authority().issuer, "any.example", &rcgen::PKCS_ED25519);
    let shown = |named: Vec<NamedIdentity>, name| {
        let settings = ServerSettings {
            named,
            ..server_settings()
        };
        ask(&mut Pair::new(without_verification(), settings), name).0
    };
    // The client verifies both kinds, so the server's order decides.
    let both = vec![named(&ecdsa, None), named(&ed25519, None)];
    assert_eq!(shown(both, "one.example"), leaf(&ecdsa));
    let both = vec![named(&ed25519, None), named(&ecdsa, None)];
    assert_eq!(shown(both, "one.example"), leaf(&ed25519));
    let asterisk = vec![named(&for_others, Some(&["*"]))];
    assert_eq!(shown(asterisk, "two.example"), leaf(&authority().localhost));
    for (first, second) in [(&ecdsa, None), (&ecdsa, Some(&["*"][..]))] {
        let settings = ServerSettings {
            named: vec![named(first, None), named(&other, second)],
            ..server_settings()
        };
        let error = ServerSetup::new(&settings).unwrap_err();
        assert!(error.message.contains("of this kind"), "{error}");
    }
}

#[test]
fn a_session_is_resumed_only_under_its_own_name() {
    let one = issue(&authority().issuer, "one.example");
    let wild = issue(&authority().issuer, "*.w.example");
    let sessions = Arc::new(MemorySessions::new(1000));
    let settings = ServerSettings {
        named: vec![named(&one, None), named(&wild, None)],
        sessions: Some(sessions.clone()),
        early_data: true,
        ..server_settings()
    };
    let mut pair = Pair::new(without_verification(), settings);
    let kept = || sessions.len();
    let ticket_of = |pair: &mut Pair, name: &str| {
        pair.client_setup = ClientSetup::new(&without_verification()).unwrap();
        let (_, key) = ask(pair, name);
        let found = pair
            .client
            .events
            .iter()
            .find_map(|(of, event)| match event {
                Event::SessionTicket(ticket) if *of == key => Some(SessionTicket::clone(ticket)),
                _ => None,
            });
        found.expect("a ticket")
    };
    // A session is bound to its name, even if another name has the same certificate (RFC 6066 section 3).
    let cases = [
        ("one.example", "one.example", &one, true),
        ("one.example", "two.w.example", &wild, false),
        ("two.w.example", "one.example", &one, false),
        ("two.w.example", "three.w.example", &wild, false),
        ("two.w.example", "localhost", &authority().localhost, false),
        ("127.0.0.1", "one.example", &one, false),
    ];
    for (first, second, expected, resumes) in cases {
        let before = kept();
        let mut ticket = ticket_of(&mut pair, first);
        let given = kept() - before;
        // A misbehaving client offers the ticket under another name.
        ticket.server_name = second.into();
        pair.client_setup = ClientSetup::new(&ClientSettings {
            session_ticket: Some(ticket),
            ..without_verification()
        })
        .unwrap();
        let (shown, key) = ask(&mut pair, second);
        assert_eq!(is_resumed(&pair, key), resumes, "{first}, then {second}");
        assert_eq!(
            kept(),
            before + 2 * given - 1,
            "the client has offered the ticket"
        );
        assert_eq!(shown, leaf(expected), "{first}, then {second}");
    }
}

#[test]
fn invalid_certificates_are_rejected_when_settings_are_checked() {
    let one = issue(&authority().issuer, "one.example");
    let wild = issue(&authority().issuer, "*.w.example");
    let address = issue(&authority().issuer, "127.0.0.1");
    let mixed = Identity::new(one.cert_chain.clone(), stranger().localhost.key.clone_key());
    let empty = Identity::new(Vec::new(), one.key.clone_key());
    let garbage = Identity::new(vec![vec![0x30, 0x03, 1].into()], one.key.clone_key());
    let cases = [
        (named(&mixed, None), "key", "does not belong"),
        (named(&empty, None), "cert_chain", "no certificate"),
        (named(&garbage, None), "cert_chain", "cannot be used"),
        (named(&address, None), "server_names", "no DNS name"),
        (named(&one, Some(&[])), "server_names", "empty"),
        (
            named(&one, Some(&["two.example"])),
            "server_names",
            "not for",
        ),
        (
            named(&one, Some(&["*.one.example"])),
            "server_names",
            "not for",
        ),
        (
            named(&wild, Some(&["*.a.w.example"])),
            "server_names",
            "not for",
        ),
        (
            named(&wild, Some(&["a.b.w.example"])),
            "server_names",
            "not for",
        ),
        (
            named(&wild, Some(&["a.*.w.example"])),
            "server_names",
            "not a DNS name",
        ),
        (named(&wild, Some(&["*", "*"])), "server_names", "twice"),
        (
            named(&wild, Some(&["*."])),
            "server_names",
            "not a DNS name",
        ),
        (
            named(&wild, Some(&["ä.example"])),
            "server_names",
            "not a DNS name",
        ),
        (
            named(&address, Some(&["127.0.0.1"])),
            "server_names",
            "not a DNS name",
        ),
        (
            named(&wild, Some(&["a.w.example", "A.w.example"])),
            "server_names",
            "twice",
        ),
    ];
    for (bad, field, part) in cases {
        let error = bad.check().unwrap_err();
        assert_eq!(error.field, field, "{error}");
        assert!(error.message.contains(part), "{error}");
        let named = vec![named(&wild, None), bad];
        let settings = ServerSettings {
            named,
            ..server_settings()
        };
        let error = ServerSetup::new(&settings).unwrap_err();
        assert_eq!(error.field, "named_certificates");
        assert!(error.message.contains("certificate 2") && error.message.contains(part));
    }
    let twice = ServerSettings {
        named: vec![
            named(&wild, Some(&["a.w.example"])),
            named(&wild, Some(&["A.w.example"])),
        ],
        ..server_settings()
    };
    let error = ServerSetup::new(&twice).unwrap_err();
    let message = "\"a.w.example\" has a certificate with a key of this kind";
    assert!(error.message.contains(message), "{error}");

    let names = |count| {
        (0..count)
            .map(|i| format!("n{i}.w.example"))
            .collect::<Vec<_>>()
    };
    let many = |count| NamedIdentity {
        identity: wild.clone(),
        server_names: Some(names(count)),
    };
    assert_eq!(
        many(SERVER_NAMES_MAX).check().unwrap().0.len(),
        SERVER_NAMES_MAX
    );
    assert_eq!(
        many(SERVER_NAMES_MAX + 1).check().unwrap_err().field,
        "server_names"
    );
    let full = ServerSettings {
        named: vec![many(SERVER_NAMES_MAX), named(&one, None)],
        ..server_settings()
    };
    let error = ServerSetup::new(&full).unwrap_err();
    assert!(error.message.contains("at most 4096 names"), "{error}");
    let (names, kind) = named(&wild, None).check().unwrap();
    assert_eq!(
        (names, kind.as_str()),
        (vec!["*.w.example".into()], "ecdsa")
    );
}
