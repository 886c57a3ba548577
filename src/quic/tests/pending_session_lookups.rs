//! Connections that wait until the application has looked up their sessions: they are bounded in number and in bytes,
//! and count as handshakes of their address.

use std::time::Duration;

use crate::support::{Pair, Who, client_settings, server_settings, sessions::outcome};
use uringcore_quic::{
    ClientSettings, ClientSetup, ConnectionKey, EndpointSettings, Event, Retry, ServerSettings,
    ServerSetup, tls::SessionTicket,
};

fn asking(limits: EndpointSettings, client: ClientSettings) -> Pair {
    let server = ServerSettings {
        asks_for_sessions: true,
        early_data: true,
        ..server_settings()
    };
    Pair::with(client, server, limits)
}

/// Makes the pair's client offer a ticket from now on.
fn show_a_ticket(pair: &mut Pair, client: ClientSettings) {
    let (key, _) = pair.establish();
    pair.run_for(Duration::from_secs(1));
    let ticket = pair
        .client
        .events
        .iter()
        .find_map(|(of, event)| match event {
            Event::SessionTicket(ticket) if *of == key => Some(SessionTicket::clone(ticket)),
            _ => None,
        });
    pair.close(Who::Client, key, 0, None, b"");
    pair.run_until_idle();
    let session_ticket = Some(ticket.expect("servers give tickets"));
    pair.client_setup = ClientSetup::new(&ClientSettings {
        session_ticket,
        ..client
    })
    .unwrap();
}

fn questions(pair: &Pair) -> Vec<u64> {
    let question = |(_, event): &(ConnectionKey, Event)| match event {
        Event::SessionsAsked { question, .. } => Some(*question),
        _ => None,
    };
    pair.server.events.iter().filter_map(question).collect()
}

#[test]
fn a_pending_accept_counts_as_a_handshake_of_its_address() {
    let limits = EndpointSettings {
        max_connections_per_address: Some(4),
        ..EndpointSettings::default()
    };
    let mut pair = asking(limits, client_settings());
    show_a_ticket(&mut pair, client_settings());
    // The first two connections use up the half of the limit that needs no proof of the address. The server answers
    // the other two with a Retry, and accepts them after it.
    let waiting: Vec<_> = (0..4).map(|_| pair.connect()).collect();
    pair.run_until("the questions", |pair| questions(pair).len() == 4);
    assert_eq!(pair.server.endpoint.handshakes(), 4);
    assert_eq!(pair.server.endpoint.stats().incoming_retried, 2);
    let fifth = pair.connect();
    pair.run_until("the refusal", |pair| pair.client.closed(fifth).is_some());
    assert_eq!(pair.server.endpoint.stats().refused_for_address, 1);
    // One connection continues its handshake and the others are dropped. Each is counted once.
    let now = pair.now;
    let completed = |event: &Event| matches!(event, Event::HandshakeCompleted { .. });
    pair.server
        .endpoint
        .sessions_answered(now, questions(&pair)[0]);
    pair.run_until("one handshake", |pair| {
        waiting.iter().any(|key| pair.client.has(*key, completed))
    });
    pair.run_until("its end", |pair| pair.server.endpoint.handshakes() == 3);
    // The application does not answer, so the handshakes continue without a session. The client sends nothing more, so
    // they time out.
    pair.client.is_mute = true;
    pair.run_for(Duration::from_secs(12));
    assert_eq!(pair.server.endpoint.handshakes(), 0);
    pair.client.is_mute = false;
    for key in waiting {
        pair.close(Who::Client, key, 0, None, b"");
    }
    pair.run_until_idle();
    let again: Vec<_> = (0..4).map(|_| pair.connect()).collect();
    pair.run_until("new questions", |pair| questions(pair).len() == 8);
    assert_eq!(pair.server.endpoint.handshakes(), again.len());
}

#[test]
fn incomplete_client_hellos_are_bounded_in_bytes() {
    let mut client = client_settings();
    // The protocol names make a ClientHello of about 12 KiB.
    client
        .alpn
        .extend((0..60).map(|number| format!("{number:0200}").into_bytes()));
    let mut pair = asking(EndpointSettings::default(), client.clone());
    show_a_ticket(&mut pair, client);
    let accepted = pair.server.endpoint.stats().connections_accepted;
    let mut bytes = 0;
    let mut held = 0;
    while pair.server.endpoint.stats().connections_accepted == accepted {
        pair.record = true;
        pair.connect();
        pair.client.is_mute = true;
        pair.exchange();
        pair.record = false;
        // The last packet of each ClientHello is lost.
        let mut flight = std::mem::take(&mut pair.recorded);
        flight.pop();
        assert!(flight.len() > 6, "{}", flight.len());
        bytes += flight.iter().map(|(_, data)| data.len()).sum::<usize>();
        for (_, datagram) in flight {
            pair.deliver(Who::Server, &datagram, None);
        }
        held += 1;
        assert!(held < 1000, "{bytes} bytes of {held} connections are kept");
        assert_eq!(pair.server.endpoint.handshakes(), held);
    }
    assert!(bytes < (2 << 20) * 5 / 4, "{bytes}");
    // The handshakes begin after the time-out. When they have failed, no state is left.
    assert_eq!(questions(&pair), []);
    pair.run_for(Duration::from_secs(30));
    assert_eq!(pair.server.endpoint.handshakes(), 0);
    assert!(pair.server.endpoint.is_idle());
}

#[test]
fn pending_accepts_time_out_without_an_answer() {
    let mut pair = asking(EndpointSettings::default(), client_settings());
    show_a_ticket(&mut pair, client_settings());
    let (begun, patience) = (pair.now, Duration::from_secs(1));
    let key = pair.connect();
    pair.run_until("the handshake", |pair| outcome(&pair.client, key).is_some());
    assert_eq!(questions(&pair).len(), 1);
    let deadline = |(_, event): &(ConnectionKey, Event)| match event {
        Event::SessionsAsked { deadline, .. } => Some(*deadline),
        _ => None,
    };
    let reported = pair.server.events.iter().find_map(deadline).unwrap();
    assert!(reported <= pair.now && reported >= begun + patience);
    let waited = pair.now - begun;
    assert!(waited >= patience, "{waited:?}");
    assert!(waited < 2 * patience, "{waited:?}");
    // A late answer of the application is ignored.
    let now = pair.now;
    pair.server
        .endpoint
        .sessions_answered(now, questions(&pair)[0]);
    pair.server.endpoint.token_refused(questions(&pair)[0]);
    pair.run_for(Duration::from_secs(1));
    assert!(pair.client.closed(key).is_none());
}

#[test]
fn a_closing_server_still_serves_pending_accepts() {
    let mut pair = asking(EndpointSettings::default(), client_settings());
    show_a_ticket(&mut pair, client_settings());
    let waiting = [pair.connect(), pair.connect()];
    pair.run_until("the questions", |pair| questions(pair).len() == 2);
    pair.server.endpoint.refuse_incoming();
    assert!(!pair.server.endpoint.may_end(), "a connection was accepted");
    let now = pair.now;
    let asked = questions(&pair);
    pair.server.endpoint.sessions_answered(now, asked[0]);
    pair.run_until("the handshake", |pair| {
        waiting
            .iter()
            .any(|key| outcome(&pair.client, *key).is_some())
    });
    let accepted = pair.server.endpoint.stats().connections_accepted;
    pair.server.endpoint.close_all(pair.now, 7, b"enough");
    pair.run_until("both ends", |pair| {
        waiting.iter().all(|key| pair.client.closed(*key).is_some())
    });
    let stats = pair.server.endpoint.stats();
    assert_eq!(
        stats.refused_for_closing, 1,
        "a refused client gets no error code of the application"
    );
    // A later answer of the application begins no connection.
    let now = pair.now;
    pair.server.endpoint.sessions_answered(now, asked[1]);
    assert_eq!(pair.server.endpoint.stats().connections_accepted, accepted);
    assert_eq!(pair.server.endpoint.handshakes(), 0);
    pair.run_until("the end", |pair| pair.server.endpoint.may_end());
}

#[test]
fn a_token_that_was_not_checked_proves_nothing() {
    let server = ServerSettings {
        asks_for_tokens: true,
        ..server_settings()
    };
    let mut pair = Pair::with(client_settings(), server, EndpointSettings::default());
    pair.establish();
    pair.run_for(Duration::from_secs(1));
    let token = pair
        .client
        .events
        .iter()
        .find_map(|(_, event)| match event {
            Event::NewToken { token, .. } => Some(token.clone()),
            _ => None,
        });
    pair.client_setup = ClientSetup::new(&ClientSettings {
        token: token.expect("servers give tokens"),
        ..client_settings()
    })
    .unwrap();
    let key = pair.connect();
    pair.run_until("the handshake", |pair| outcome(&pair.client, key).is_some());
    assert_eq!(pair.server.endpoint.stats().incoming_retried, 1);
}

#[test]
fn unproved_clients_may_use_only_a_part_of_the_waiting_room() {
    // After a Retry the client returns with a proof of its address, and then waits.
    for (retry, retried, asked) in [(Retry::Auto, 44, 300), (Retry::Never, 0, 256)] {
        let server = ServerSettings {
            asks_for_sessions: true,
            retry,
            ..server_settings()
        };
        let limits = EndpointSettings::default();
        let mut pair = Pair::with(client_settings(), server, limits);
        show_a_ticket(&mut pair, client_settings());
        let accepted = pair.server.endpoint.stats().connections_accepted;
        for _ in 0..300 {
            pair.connect();
        }
        pair.run_for(Duration::from_millis(50));
        let stats = pair.server.endpoint.stats();
        assert_eq!(questions(&pair).len(), asked, "{retry:?}");
        assert_eq!(stats.incoming_retried, retried, "{retry:?}");
        let begun = stats.connections_accepted - accepted;
        assert_eq!(begun as usize, 300 - asked, "{retry:?}");
    }
}

#[test]
fn a_late_answer_matches_no_later_connection() {
    let mut pair = asking(EndpointSettings::default(), client_settings());
    show_a_ticket(&mut pair, client_settings());
    pair.connect();
    pair.run_until("the question", |pair| questions(pair).len() == 1);
    pair.server.endpoint.set_server(None);
    let server = ServerSettings {
        asks_for_sessions: true,
        ..server_settings()
    };
    let setup = ServerSetup::new(&server).unwrap();
    pair.server.endpoint.set_server(Some(setup));
    pair.connect();
    pair.run_until("the next question", |pair| questions(pair).len() == 2);
    assert_ne!(questions(&pair)[0], questions(&pair)[1]);
}

/// A client that offers a ticket in a ClientHello of several packets.
fn with_a_long_hello() -> Pair {
    let mut client = client_settings();
    client
        .alpn
        .extend((0..40).map(|number| format!("{number:0200}").into_bytes()));
    let mut pair = asking(EndpointSettings::default(), client.clone());
    show_a_ticket(&mut pair, client);
    pair
}

/// The datagrams of a new client's ClientHello. None of them arrives.
fn hello(pair: &mut Pair) -> Vec<Vec<u8>> {
    pair.record = true;
    pair.connect();
    pair.client.is_mute = true;
    pair.exchange();
    pair.record = false;
    let flight = std::mem::take(&mut pair.recorded);
    assert!(flight.len() > 6, "{}", flight.len());
    flight.into_iter().map(|(_, datagram)| datagram).collect()
}

/// RFC 9000 section 8.1. The link checks for each datagram that no unvalidated address gets more than three times the
/// bytes that came from it.
#[test]
fn only_datagrams_from_the_waiting_address_are_counted() {
    let mut pair = with_a_long_hello();
    let (victim, other) = (addr("203.0.113.1:1"), addr("203.0.113.2:2"));
    let flight = hello(&mut pair);
    pair.deliver_from(victim, &flight[0]);
    assert_eq!(pair.server.endpoint.handshakes(), 1);
    for datagram in &flight[1..] {
        pair.deliver_from(other, datagram);
    }
    pair.run_for(Duration::from_millis(50));
    assert_eq!(
        questions(&pair),
        [],
        "the rest of the ClientHello came from another address"
    );
    pair.run_for(Duration::from_secs(60));
    assert_eq!(pair.server.endpoint.handshakes(), 0);
    assert_eq!(pair.sent_to.get(&other), None);
}

#[test]
fn client_hellos_of_one_address_leave_room_for_others() {
    let mut pair = with_a_long_hello();
    let accepted = pair.server.endpoint.stats().connections_accepted;
    let (mut held, mut port) = (0, 1);
    while pair.server.endpoint.stats().connections_accepted == accepted {
        let flight = hello(&mut pair);
        for datagram in &flight[..flight.len() - 1] {
            pair.deliver_from(([203, 0, 113, 1], port).into(), datagram);
        }
        (held, port) = (held + 1, port + 1);
        assert!(held < 100, "{held} ClientHellos of one address");
    }
    assert!(held > 8, "{held}");
    let flight = hello(&mut pair);
    for datagram in &flight {
        pair.deliver_from(addr("203.0.113.2:2"), datagram);
    }
    pair.exchange();
    assert_eq!(questions(&pair).len(), 1, "there was room for it");
    pair.run_for(Duration::from_secs(60));
    assert_eq!(pair.server.endpoint.handshakes(), 0);
}

fn addr(text: &str) -> std::net::SocketAddr {
    text.parse().unwrap()
}
