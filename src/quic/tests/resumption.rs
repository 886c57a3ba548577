//! TLS sessions are resumed, also with another setup, and 0-RTT data is sent and received.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::support::{
    Link, Pair, Who, authority, client_settings, clock, server_settings,
    sessions::{
        connect_and_send, early_server, newest_server, outcome, send, ticket, tickets, with_ticket,
    },
    stranger,
};
use bytes::Bytes;
use uringcore_quic::{
    ClientSettings, ClientSetup, ConnectionKey, EndpointSettings, Event, Retry, ServerSettings,
    tls::{CipherSuite, ClientAuth, MemorySessions, Roots, SessionStore, SessionTicket},
};

#[test]
fn a_ticket_resumes_the_session_in_another_setup() {
    for suite in [
        CipherSuite::Aes128GcmSha256,
        CipherSuite::Aes256GcmSha384,
        CipherSuite::ChaCha20Poly1305Sha256,
    ] {
        let mut server = server_settings();
        server.cipher_suites = Some(vec![suite]);
        let mut pair = Pair::new(client_settings(), server);
        let ticket = ticket(&mut pair);
        assert_eq!(
            (ticket.server_name.as_str(), ticket.cipher_suite),
            ("localhost", suite)
        );
        assert!(!ticket.early_data && ticket.lifetime == Duration::from_secs(86_400));
        assert!(!format!("{ticket:?}").contains("secret"));

        // The new setup has only the ticket, like another process.
        pair.client_setup = ClientSetup::new(&with_ticket(&ticket)).unwrap();
        let (client, server) = pair.establish();
        assert_eq!(outcome(&pair.client, client), Some((true, false)));
        assert_eq!(outcome(&pair.server, server), Some((true, false)));
        let shown = pair
            .client
            .endpoint
            .peek(client)
            .unwrap()
            .peer_certificates();
        assert_eq!(
            shown.unwrap(),
            [authority().localhost.cert_chain[0].to_vec()]
        );

        // A resumed session issues tickets that are valid as well.
        pair.run_for(Duration::from_secs(1));
        let next = pair
            .client
            .events
            .iter()
            .rev()
            .find_map(|(_, event)| match event {
                Event::SessionTicket(ticket) => Some(SessionTicket::clone(ticket)),
                _ => None,
            });
        pair.client_setup = ClientSetup::new(&with_ticket(&next.unwrap())).unwrap();
        let (client, _) = pair.establish();
        assert_eq!(outcome(&pair.client, client), Some((true, false)));
    }
}

#[test]
fn a_ticket_is_valid_once_for_its_server_until_it_expires() {
    let mut pair = Pair::new(client_settings(), early_server());
    let ticket = ticket(&mut pair);
    pair.client_setup = ClientSetup::new(&with_ticket(&ticket)).unwrap();
    let (client, _) = pair.establish();
    assert_eq!(outcome(&pair.client, client), Some((true, true)));
    let (client, _) = pair.establish();
    assert_eq!(outcome(&pair.client, client), Some((false, false)), "taken");

    let mut others = Vec::new();
    for (name, issued) in [("elsewhere", 0), ("localhost", 86_401), ("localhost", -60)] {
        let mut other = tickets(&mut Pair::new(client_settings(), early_server())).remove(0);
        other.server_name = name.into();
        let by = Duration::from_secs(u64::try_from(i64::abs(issued)).unwrap());
        other.issued = match issued < 0 {
            true => clock().now() + by,
            false => clock().now() - by,
        };
        others.push(other);
    }
    for other in others {
        pair.client_setup = ClientSetup::new(&with_ticket(&other)).unwrap();
        let (client, _) = pair.establish();
        assert_eq!(
            outcome(&pair.client, client),
            Some((false, false)),
            "{other:?}"
        );
    }
}

#[test]
fn a_ticket_with_a_wrong_secret_fails_only_its_handshake() {
    let mut pair = Pair::new(client_settings(), early_server());
    let mut ticket = ticket(&mut pair);
    ticket.secret[0] ^= 1;
    pair.client_setup = ClientSetup::new(&with_ticket(&ticket)).unwrap();
    let key = connect_and_send(&mut pair, b"hello");
    pair.run_until("the end", |pair| pair.client.closed(key).is_some());
    // The TLS alert decrypt_error (RFC 8446 section 4.2.11.2).
    assert_eq!(pair.client.closed(key).unwrap().0, 0x100 + 51);
    pair.client_setup = ClientSetup::new(&client_settings()).unwrap();
    pair.establish();
}

#[test]
fn invalid_tickets_are_rejected_with_the_settings() {
    let mut pair = Pair::new(client_settings(), early_server());
    let good = ticket(&mut pair);
    let spoil: [fn(&mut SessionTicket); 5] = [
        |ticket| ticket.secret.push(0),
        |ticket| ticket.ticket.clear(),
        |ticket| ticket.ticket.resize(1 << 16, 0),
        |ticket| ticket.transport_params = vec![0xff; 3],
        |ticket| ticket.peer_certificates = vec![vec![0; 1 << 21]],
    ];
    for spoil in spoil {
        let mut bad = good.clone();
        spoil(&mut bad);
        let error = ClientSetup::new(&with_ticket(&bad)).expect_err("refused");
        assert_eq!(error.field, "session_ticket");
    }
}

#[test]
fn early_data_is_delivered_before_the_handshake_and_marked() {
    let mut pair = Pair::new(client_settings(), early_server());
    let ticket = ticket(&mut pair);
    assert!(ticket.early_data);
    pair.client_setup = ClientSetup::new(&with_ticket(&ticket)).unwrap();
    let before = pair.now;
    let client = connect_and_send(&mut pair, b"early");
    pair.run_until("the data", |pair| {
        pair.server
            .streams
            .keys()
            .any(|(key, id)| *id == 0 && pair.server.received(*key, 0) == b"early")
    });
    assert_eq!(
        pair.now - before,
        Link::default().latency,
        "with the first flight"
    );
    let server = newest_server(&pair);
    assert_eq!(outcome(&pair.server, server), None, "not yet complete");
    assert!(pair.server.has(server, |event| {
        matches!(event, Event::StreamData { data, .. } if data.is_early())
    }));
    // The server's answer does not wait for the client's last flight.
    send(&mut pair, Who::Server, server, 0, b"answer", true);
    pair.run_until("the answer", |pair| {
        pair.client.received(client, 0) == b"answer"
    });
    assert_eq!(pair.now - before, 2 * Link::default().latency);
    send(&mut pair, Who::Client, client, 4, b"late", true);
    pair.run_until("the rest", |pair| pair.server.finished(server, 4));
    assert_eq!(outcome(&pair.client, client), Some((true, true)));
    assert_eq!(outcome(&pair.server, server), Some((true, true)));
    assert!(pair.server.has(server, |event| {
        matches!(event, Event::StreamData { stream_id: 4, data, .. } if !data.is_early())
    }));
    assert_eq!(pair.server.streams[&(server, 0)].data, b"early", "once");
}

#[test]
fn rejected_early_data_arrives_once() {
    let long: Vec<u8> = crate::support::Random::new(7).bytes(300_000);
    for loss in [0, 20] {
        let mut pair = Pair::new(client_settings(), early_server());
        let ticket = ticket(&mut pair);
        // A server that does not have the session, and that has other limits.
        let mut server = early_server();
        server.transport.max_streams_bidi = 3;
        let fresh = Pair::with(with_ticket(&ticket), server, EndpointSettings::default());
        let mut pair = fresh.link(Link {
            loss,
            ..Link::default()
        });
        let client = pair.connect();
        send(&mut pair, Who::Client, client, 0, &long, true);
        send(&mut pair, Who::Client, client, 4, b"one", false);
        send(&mut pair, Who::Client, client, 8, b"never mind", false);
        send(&mut pair, Who::Client, client, 2, b"uni", true);
        pair.exchange();
        send(&mut pair, Who::Client, client, 4, b" two", true);
        let connection = pair.client.endpoint.connection(client).unwrap();
        connection.reset_stream(8, 77).unwrap();
        connection.stop_stream(8, 78).unwrap();
        pair.exchange();
        assert!(pair.client.sent > 3, "some data was sent before the answer");
        pair.run_until("everything", |pair| {
            let Some((key, _)) = pair.server.events.first() else {
                return false;
            };
            let key = *key;
            [0, 2, 4]
                .into_iter()
                .all(|id| pair.server.finished(key, id))
        });
        let server = newest_server(&pair);
        assert_eq!(outcome(&pair.client, client), Some((false, false)));
        assert!(
            pair.server.received(server, 0) == long,
            "the data is unchanged"
        );
        assert_eq!(pair.server.received(server, 4), b"one two");
        assert_eq!(pair.server.received(server, 2), b"uni");
        pair.run_until("the reset", |pair| {
            pair.server.has(server, |event| {
                matches!(
                    event,
                    Event::StreamReset {
                        stream_id: 8,
                        error_code: 77
                    }
                )
            })
        });
        let stats = pair.client.endpoint.peek(client).unwrap().stats();
        assert_eq!(stats.send_queue_bytes, 0);
        let early =
            |event: &Event| matches!(event, Event::StreamData { data, .. } if data.is_early());
        assert!(!pair.server.has(server, early));
    }
}

#[test]
fn early_data_survives_a_retry_and_losses() {
    for retry in [false, true] {
        let mut server = early_server();
        server.retry = retry.into();
        let mut pair = Pair::new(client_settings(), server);
        let ticket = ticket(&mut pair);
        pair.link = Link {
            loss: 20,
            reorder: 20,
            duplicate: 10,
            ..Link::default()
        };
        pair.client_setup = ClientSetup::new(&with_ticket(&ticket)).unwrap();
        let data = crate::support::Random::new(3).bytes(50_000);
        let client = connect_and_send(&mut pair, &data);
        pair.run_until("the data", |pair| {
            let server = newest_server(pair);
            pair.server.finished(server, 0) && outcome(&pair.client, client).is_some()
        });
        let server = newest_server(&pair);
        assert!(pair.server.received(server, 0) == data);
        assert!(
            outcome(&pair.client, client).unwrap().0,
            "resumed, retry {retry}"
        );
    }
}

#[test]
fn a_replayed_first_flight_yields_no_early_data() {
    let mut pair = Pair::new(client_settings(), early_server());
    let ticket = ticket(&mut pair);
    pair.client_setup = ClientSetup::new(&with_ticket(&ticket)).unwrap();
    pair.record = true;
    let _client = connect_and_send(&mut pair, b"pay 100");
    pair.exchange();
    pair.record = false;
    let flight: Vec<Vec<u8>> = pair
        .recorded
        .drain(..)
        .map(|(_, datagram)| datagram)
        .collect();
    assert!(!flight.is_empty());
    let paid = |pair: &Pair| {
        let paid = |(_, event): &&(ConnectionKey, Event)| matches!(event, Event::StreamData { data, .. } if data.to_vec() == b"pay 100");
        pair.server.events.iter().filter(paid).count()
    };
    pair.run_until("the data", |pair| paid(pair) == 1);
    pair.client.is_mute = true;
    pair.run_for(Duration::from_secs(180));
    // The connection was dropped, so the server takes the replayed flight for a new connection.
    let accepted = pair.server.events.len();
    for datagram in &flight {
        pair.deliver(Who::Server, datagram, None);
    }
    pair.run_for(Duration::from_secs(5));
    assert!(
        pair.server.events[accepted..]
            .iter()
            .any(|(_, e)| *e == Event::Accepted)
    );
    assert_eq!(paid(&pair), 1, "the replayed data is not read again");
}

#[test]
fn servers_with_equal_requirements_share_sessions() {
    let store: Arc<dyn SessionStore> = Arc::new(MemorySessions::new(100));
    let shared = |change: &dyn Fn(&mut ServerSettings)| {
        let mut settings = early_server();
        settings.sessions = Some(store.clone());
        change(&mut settings);
        settings
    };
    let demanding = |settings: &mut ServerSettings| {
        let roots = Roots::Pem(authority().pem.clone().into_bytes());
        settings.client_auth = ClientAuth::Required(roots);
    };
    let mut found = tickets(&mut Pair::new(client_settings(), shared(&|_| ())));
    assert_eq!(found.len(), 2);
    let mut other = Pair::new(with_ticket(&found.remove(0)), shared(&|_| ()));
    let (client, _) = other.establish();
    assert_eq!(outcome(&other.client, client), Some((true, true)));
    // A server that requires a certificate does not resume a session of a server that requires none.
    let mut other = Pair::new(with_ticket(&found.remove(0)), shared(&demanding));
    let key = other.connect();
    other.run_until("the end", |pair| pair.client.closed(key).is_some());
    assert_eq!(
        other.client.closed(key).unwrap().0,
        0x100 + 116,
        "certificate_required"
    );
}

#[test]
fn a_server_with_lower_limits_rejects_early_data() {
    let lower: [fn(&mut ServerSettings); 5] = [
        |settings| settings.transport.max_data /= 2,
        |settings| settings.transport.max_stream_data /= 2,
        |settings| settings.transport.max_streams_bidi /= 2,
        // A limit above 12 would be announced as 12 at first.
        |settings| settings.transport.max_streams_uni = 11,
        |settings| settings.transport.datagram_recv_bytes = None,
    ];
    for lower in lower {
        let store: Arc<dyn SessionStore> = Arc::new(MemorySessions::new(100));
        let mut first = early_server();
        first.transport.datagram_recv_bytes = Some(65_536);
        first.sessions = Some(store.clone());
        let ticket = ticket(&mut Pair::new(client_settings(), first.clone()));
        let mut second = first;
        lower(&mut second);
        let mut pair = Pair::new(with_ticket(&ticket), second);
        let key = connect_and_send(&mut pair, b"early");
        pair.run_until("the data", |pair| {
            pair.server
                .events
                .iter()
                .any(|(_, event)| matches!(event, Event::StreamData { fin: true, .. }))
        });
        assert_eq!(outcome(&pair.client, key), Some((false, false)));
        let server = newest_server(&pair);
        assert_eq!(pair.server.received(server, 0), b"early");
    }
}

#[test]
fn rejected_early_data_above_the_servers_limit_still_arrives() {
    for limit in [1, 1_000, 5_000, 60_000] {
        let store: Arc<dyn SessionStore> = Arc::new(MemorySessions::new(100));
        let mut first = early_server();
        first.sessions = Some(store.clone());
        let ticket = ticket(&mut Pair::new(client_settings(), first.clone()));
        let mut second = first;
        second.transport.max_data = limit;
        let mut pair = Pair::new(with_ticket(&ticket), second);
        let length = (limit as u32 * 60).min(150_000);
        let data: Vec<u8> = (0..length).map(|at| at as u8).collect();
        let key = connect_and_send(&mut pair, &data);
        pair.run_until("the data", |pair| {
            let is_end = |event: &Event| matches!(event, Event::StreamData { fin: true, .. });
            let closed = pair.client.closed(key);
            assert_eq!(closed, None, "with a limit of {limit}");
            pair.server.events.iter().any(|(_, event)| is_end(event))
        });
        assert_eq!(outcome(&pair.client, key), Some((false, false)));
        let server = newest_server(&pair);
        assert_eq!(pair.server.received(server, 0), data);
    }
}

/// A session store for tests that stores nothing. With `nonsense` it returns garbage.
#[derive(Debug, Default)]
struct Unwilling {
    nonsense: bool,
    asked: Mutex<usize>,
}

impl SessionStore for Unwilling {
    fn put(&self, _: Vec<u8>, _: Vec<u8>) -> bool {
        self.nonsense
    }

    fn take(&self, _: &[u8]) -> Option<Vec<u8>> {
        *self.asked.lock().unwrap() += 1;
        Some(vec![7; 400])
    }
}

#[test]
fn a_failing_session_store_causes_a_full_handshake() {
    let store = Arc::new(Unwilling::default());
    let mut settings = server_settings();
    settings.sessions = Some(store);
    assert!(tickets(&mut Pair::new(client_settings(), settings.clone())).is_empty());
    let store = Arc::new(Unwilling {
        nonsense: true,
        ..Unwilling::default()
    });
    settings.sessions = Some(store.clone());
    let mut pair = Pair::new(client_settings(), settings.clone());
    let ticket = ticket(&mut pair);
    pair.client_setup = ClientSetup::new(&with_ticket(&ticket)).unwrap();
    let (client, _) = pair.establish();
    assert_eq!(outcome(&pair.client, client), Some((false, false)));
    assert_eq!(*store.asked.lock().unwrap(), 1);
    settings.sessions = None;
    assert!(tickets(&mut Pair::new(client_settings(), settings)).is_empty());
}

#[test]
fn a_ticket_does_not_replace_a_trusted_certificate() {
    let mut pair = Pair::new(client_settings(), early_server());
    let ticket = ticket(&mut pair);
    // The server would resume the session. But its certificate is not trusted any more, so the client does not offer
    // the ticket and the server must send its certificate.
    let mut settings = with_ticket(&ticket);
    settings.roots = Roots::Pem(stranger().pem.clone().into_bytes());
    pair.client_setup = ClientSetup::new(&settings).unwrap();
    let key = connect_and_send(&mut pair, b"secret");
    pair.run_until("the end", |pair| pair.client.closed(key).is_some());
    assert_eq!(pair.client.closed(key).unwrap().0, 0x100 + 48, "unknown_ca");
    let is_data = |(_, event): &(ConnectionKey, Event)| matches!(event, Event::StreamData { .. });
    assert!(!pair.server.events.iter().any(is_data));
    // A ticket that has no certificates resumes the session, although none can be checked.
    settings.roots = Roots::Pem(authority().pem.clone().into_bytes());
    settings.session_ticket = Some(SessionTicket {
        peer_certificates: Vec::new(),
        ..ticket
    });
    pair.client_setup = ClientSetup::new(&settings).unwrap();
    let (key, _) = pair.establish();
    assert_eq!(outcome(&pair.client, key), Some((true, true)));
    let connection = pair.client.endpoint.peek(key).unwrap();
    assert_eq!(connection.peer_certificates(), None);
}

#[test]
fn tokens_of_new_token_frames_validate_the_address_once() {
    let mut pair = Pair::default_pair();
    let (key, _) = pair.establish();
    pair.run_for(Duration::from_secs(1));
    let token = pair
        .client
        .events
        .iter()
        .find_map(|(of, event)| match event {
            Event::NewToken { token, .. } if *of == key => Some(token.clone()),
            _ => None,
        });
    let token = token.expect("the server sends tokens");

    // The client has another setup, as if it were another process. The server validates every address by a Retry.
    let mut retrying = server_settings();
    retrying.retry = Retry::Always;
    let mut pair = Pair::new(client_settings(), retrying);
    pair.establish();
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.server.endpoint.stats().incoming_retried, 1);
    let own = pair
        .client
        .events
        .iter()
        .find_map(|(_, event)| match event {
            Event::NewToken { token, .. } => Some(token.clone()),
            _ => None,
        });
    let with = |token: Bytes| ClientSettings {
        token,
        ..client_settings()
    };
    pair.client_setup = ClientSetup::new(&with(own.unwrap())).unwrap();
    pair.establish();
    assert_eq!(
        pair.server.endpoint.stats().incoming_retried,
        1,
        "no Retry needed"
    );
    pair.establish();
    assert_eq!(
        pair.server.endpoint.stats().incoming_retried,
        2,
        "a token is valid once"
    );
    pair.client_setup = ClientSetup::new(&with(token)).unwrap();
    pair.establish();
    assert_eq!(
        pair.server.endpoint.stats().incoming_retried,
        3,
        "another server's token is invalid"
    );
    let error = ClientSetup::new(&with(vec![0; 601].into())).unwrap_err();
    assert_eq!(error.field, "token");
}

/// The look-ups that the application was asked for and has not answered.
fn questions(pair: &Pair) -> Vec<(u64, Vec<Vec<u8>>)> {
    let question = |(_, event): &(ConnectionKey, Event)| match event {
        Event::SessionsAsked {
            question, tickets, ..
        } => Some((*question, tickets.clone())),
        _ => None,
    };
    pair.server.events.iter().filter_map(question).collect()
}

fn asking_server() -> ServerSettings {
    ServerSettings {
        asks_for_sessions: true,
        ..early_server()
    }
}

#[test]
fn an_application_may_answer_a_lookup_later() {
    for names in [0, 20] {
        let mut client = client_settings();
        // The protocol names make a ClientHello of several datagrams.
        client
            .alpn
            .extend((0..names).map(|number| format!("{number:0200}").into_bytes()));
        let mut pair = Pair::new(client.clone(), asking_server());
        let ticket = ticket(&mut pair);
        assert_eq!(questions(&pair), [], "no lookup without tickets");
        client.session_ticket = Some(ticket.clone());
        pair.client_setup = ClientSetup::new(&client).unwrap();
        let accepted = pair.server.endpoint.stats().connections_accepted;
        let key = connect_and_send(&mut pair, b"early");
        pair.run_until("the question", |pair| !questions(pair).is_empty());
        let (question, tickets) = questions(&pair).remove(0);
        assert_eq!(tickets, [ticket.ticket]);
        pair.run_for(Duration::from_millis(200));
        assert_eq!(pair.server.endpoint.stats().connections_accepted, accepted);
        let now = pair.now;
        pair.server.endpoint.sessions_answered(now, question);
        pair.server.endpoint.sessions_answered(now, question);
        pair.run_until("the handshake", |pair| outcome(&pair.client, key).is_some());
        assert_eq!(outcome(&pair.client, key), Some((true, true)));
        let server = newest_server(&pair);
        pair.run_until("the data", |pair| {
            pair.server.received(server, 0) == b"early"
        });
        assert_eq!(
            pair.server.endpoint.stats().connections_accepted,
            accepted + 1
        );
    }
}

#[test]
fn a_connection_that_waits_for_a_lookup_times_out() {
    let mut pair = Pair::new(client_settings(), asking_server());
    let ticket = ticket(&mut pair);
    pair.client_setup = ClientSetup::new(&with_ticket(&ticket)).unwrap();
    let key = pair.connect();
    pair.run_until("the question", |pair| !questions(pair).is_empty());
    pair.client.is_mute = true;
    pair.run_until("the client's end", |pair| pair.client.closed(key).is_some());
    let now = pair.now;
    pair.server.endpoint.close_all(now, 0, b"");
    pair.run_until_idle();
    pair.server.endpoint.sessions_answered(now, 0);
    pair.run_until_idle();
}

#[test]
fn a_token_used_elsewhere_is_answered_with_a_retry() {
    let server = ServerSettings {
        asks_for_tokens: true,
        retry: Retry::Never,
        ..early_server()
    };
    for (names, version) in [(0, 1), (20, 1), (0, 0x6b33_43cf), (20, 0x6b33_43cf)] {
        let mut client = client_settings();
        client.supported_versions = vec![version];
        client
            .alpn
            .extend((0..names).map(|number| format!("{number:0200}").into_bytes()));
        let mut pair = Pair::new(client.clone(), server.clone());
        let ticket = ticket(&mut pair);
        let tokens: Vec<Bytes> = pair
            .client
            .events
            .iter()
            .filter_map(|(_, event)| match event {
                Event::NewToken { token, .. } => Some(token.clone()),
                _ => None,
            })
            .collect();
        assert_eq!(tokens.len(), 2);
        client.session_ticket = Some(ticket);
        // A new token; one that was used elsewhere; and one that was used here, for which the application is not asked.
        for (token, is_new, retried) in [
            (&tokens[0], true, 0),
            (&tokens[1], false, 1),
            (&tokens[1], true, 1),
        ] {
            client.token = token.clone();
            pair.client_setup = ClientSetup::new(&client).unwrap();
            pair.server.events.clear();
            let key = connect_and_send(&mut pair, b"early");
            pair.run_until("the handshake", |pair| {
                let asked = pair
                    .server
                    .events
                    .iter()
                    .find_map(|(_, event)| match event {
                        Event::SessionsAsked {
                            question, token, ..
                        } => Some((*question, token.is_some())),
                        _ => None,
                    });
                let now = pair.now;
                match asked {
                    Some((question, true)) if !is_new => {
                        pair.server.endpoint.token_refused(question);
                        pair.server.events.clear();
                    }
                    Some((question, _)) => pair.server.endpoint.sessions_answered(now, question),
                    None => {}
                }
                outcome(&pair.client, key).is_some()
            });
            let server = newest_server(&pair);
            pair.run_until("the data", |pair| {
                pair.server.received(server, 0) == b"early"
            });
            assert_eq!(pair.server.endpoint.stats().incoming_retried, retried);
            pair.run_for(Duration::from_millis(100));
            assert_eq!(pair.server.endpoint.handshakes(), 0);
        }
    }
}

#[test]
fn lookups_work_with_version_2() {
    let mut client = client_settings();
    client.supported_versions = vec![0x6b33_43cf];
    let mut pair = Pair::new(client.clone(), asking_server());
    let ticket = ticket(&mut pair);
    client.session_ticket = Some(ticket.clone());
    pair.client_setup = ClientSetup::new(&client).unwrap();
    let key = connect_and_send(&mut pair, b"early");
    pair.run_until("the question", |pair| !questions(pair).is_empty());
    let now = pair.now;
    pair.server.endpoint.sessions_answered(now, 0);
    pair.run_until("the handshake", |pair| outcome(&pair.client, key).is_some());
    assert_eq!(outcome(&pair.client, key), Some((true, true)));
}

#[test]
fn an_incomplete_client_hello_is_not_waited_for() {
    let mut client = client_settings();
    client
        .alpn
        .extend((0..20).map(|number| format!("{number:0200}").into_bytes()));
    let mut pair = Pair::new(client.clone(), asking_server());
    client.session_ticket = Some(ticket(&mut pair));
    pair.client_setup = ClientSetup::new(&client).unwrap();
    pair.record = true;
    let key = pair.connect();
    pair.client.is_mute = true;
    pair.exchange();
    pair.record = false;
    let first = pair.recorded[0].1.clone();
    assert!(pair.recorded.len() > 2);
    pair.deliver(Who::Server, &first, None);
    pair.client.is_mute = false;
    let before = pair.now;
    pair.run_until("the handshake", |pair| outcome(&pair.client, key).is_some());
    assert_eq!(questions(&pair), []);
    assert!(
        pair.now - before < Duration::from_secs(2),
        "the client repeats the lost part soon"
    );
}
