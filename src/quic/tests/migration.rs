//! Path changes: a client moves to another socket, a NAT changes its mapping, and a client moves to its server's
//! preferred address.

use std::{net::SocketAddr, time::Duration};

use crate::support::{Link, Pair, Random, Who, client_settings, server_settings, with_transport};
use bytes::Bytes;
use uringcore_quic::{ConnectionKey, EndpointSettings, Event, MigrationError, TransportSettings};

fn pattern(seed: u64, length: usize) -> Bytes {
    Random::new(seed).bytes(length).into()
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

const FINISHED: Event = Event::MigrationFinished { succeeded: true };
const FAILED: Event = Event::MigrationFinished { succeeded: false };
const TIMEOUT: Duration = Duration::from_secs(3);

/// Confirms the handshake. The client has two more sockets.
fn confirmed(mut pair: Pair) -> (Pair, ConnectionKey, ConnectionKey) {
    pair.client.more_addrs = vec![addr("10.0.1.7:1234"), addr("10.0.2.7:1234")];
    let (client, server) = pair.establish();
    pair.run_for(Duration::from_secs(1));
    (pair, client, server)
}

fn migrate(pair: &mut Pair, client: ConnectionKey, socket: u32) -> Result<(), MigrationError> {
    let now = pair.now;
    pair.client.endpoint.migrate(now, client, socket, TIMEOUT)
}

/// Transfers 3 MiB in each direction, and calls `change` in the middle.
fn transfer(
    pair: &mut Pair,
    client: ConnectionKey,
    server: ConnectionKey,
    id: u64,
    middle: impl FnOnce(&mut Pair),
) {
    let data = pattern(id, 3 << 20);
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(id, data.clone(), true).unwrap();
    pair.run_until("the beginning", |pair| {
        pair.server.received(server, id).len() > 500_000
    });
    let conn = pair.server.endpoint.connection(server).unwrap();
    conn.send_stream(id, data.clone(), true).unwrap();
    middle(pair);
    pair.run_until("all", |pair| {
        pair.server.finished(server, id) && pair.client.finished(client, id)
    });
    assert!(pair.server.received(server, id) == data && pair.client.received(client, id) == data);
}

fn ids_of_client(pair: &Pair) -> Vec<Vec<u8>> {
    let short = |(who, data): &&(Who, Vec<u8>)| *who == Who::Client && data[0] & 0x80 == 0;
    let mut ids: Vec<_> = pair
        .recorded
        .iter()
        .filter(short)
        .map(|(_, data)| data[1..9].to_vec())
        .collect();
    ids.dedup();
    ids
}

#[test]
fn a_client_moves_to_another_socket_in_the_middle_of_a_transfer() {
    let (mut pair, client, server) = confirmed(Pair::default_pair());
    for (socket, id) in [(1, 0), (2, 4)] {
        pair.recorded.clear();
        pair.record = true;
        transfer(&mut pair, client, server, id, |pair| {
            migrate(pair, client, socket).unwrap();
            assert_eq!(migrate(pair, client, 0), Err(MigrationError::UnderWay));
        });
        pair.record = false;
        assert!(pair.client.has(client, |event| *event == FINISHED));
        let ids = ids_of_client(&pair);
        assert_eq!(ids.len(), 2, "each path has its own connection ID: {ids:?}");
        let seen = pair.server.endpoint.peek(server).unwrap().remote_addr();
        assert_eq!(seen, pair.client.more_addrs[socket as usize - 1]);
        assert_eq!(pair.client.endpoint.peek(client).unwrap().socket(), socket);
        pair.client.events.clear();
    }
    pair.close(Who::Client, client, 0, None, b"");
    pair.run_until_idle();
}

#[test]
fn a_migration_to_a_dead_path_is_undone() {
    let (mut pair, client, server) = confirmed(Pair::default_pair());
    pair.dead = vec![addr("10.0.1.7:1234")];
    let begin = pair.now;
    transfer(&mut pair, client, server, 0, |pair| {
        migrate(pair, client, 1).unwrap();
        pair.run_until("giving up", |pair| {
            pair.client.has(client, |event| *event == FAILED)
        });
        let took = pair.now - begin;
        assert!((TIMEOUT..TIMEOUT * 2).contains(&took), "{took:?}");
    });
    assert_eq!(pair.client.endpoint.peek(client).unwrap().socket(), 0);
    // The failed migration has left no state, so another one can begin.
    migrate(&mut pair, client, 2).unwrap();
    pair.run_until("the next one", |pair| {
        pair.client.has(client, |event| *event == FINISHED)
    });
}

#[test]
fn a_client_leaves_a_path_that_died() {
    let (mut pair, client, server) = confirmed(Pair::default_pair());
    transfer(&mut pair, client, server, 0, |pair| {
        pair.dead = vec![addr("10.0.0.1:50000")];
        pair.run_for(Duration::from_millis(700));
        migrate(pair, client, 1).unwrap();
    });
    assert!(pair.client.has(client, |event| *event == FINISHED));
}

#[test]
fn only_a_confirmed_client_with_spare_connection_ids_migrates() {
    let mut pair = Pair::default_pair();
    let client = pair.connect();
    assert_eq!(
        migrate(&mut pair, client, 1),
        Err(MigrationError::NotConfirmed)
    );
    let (mut pair, client, server) = confirmed(Pair::default_pair());
    let now = pair.now;
    let refused = pair.server.endpoint.migrate(now, server, 1, TIMEOUT);
    assert_eq!(refused, Err(MigrationError::Server));
    pair.close(Who::Client, client, 0, None, b"");
    assert_eq!(migrate(&mut pair, client, 1), Err(MigrationError::Closed));
    // A server whose connection IDs have length 0 can issue only that one, so a client that migrates has no other.
    let settings = EndpointSettings {
        connection_id_length: 0,
        ..EndpointSettings::default()
    };
    let pair = Pair::with(client_settings(), server_settings(), settings);
    let (mut pair, client, server) = confirmed(pair);
    assert_eq!(
        migrate(&mut pair, client, 1),
        Err(MigrationError::NoConnectionId)
    );
    transfer(&mut pair, client, server, 0, |_| {});
}

#[test]
fn a_connection_closed_during_a_migration_emits_nothing_more() {
    let (mut pair, client, server) = confirmed(Pair::default_pair());
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.send_stream(0, pattern(0, 3000), true).unwrap();
    migrate(&mut pair, client, 1).unwrap();
    pair.close(Who::Client, client, 0, None, b"");
    pair.run_until_idle();
    assert!(pair.server.closed(server).is_some());
    let events = pair.client.events.iter().filter(|(of, _)| *of == client);
    assert!(matches!(events.last(), Some((_, Event::Closed { .. }))));
}

#[test]
fn a_client_on_a_connected_socket_ignores_preferred_addresses() {
    let mut server = server_settings();
    server.transport.preferred_v4 = Some("10.0.0.3:4433".parse().unwrap());
    let mut pair = Pair::new(client_settings(), server);
    pair.client.endpoint.keep_to_peer();
    let (client, server) = pair.establish();
    let begin = pair.now;
    transfer(&mut pair, client, server, 0, |_| {});
    assert!(pair.now - begin < Duration::from_millis(500));
}

#[test]
fn a_nat_that_changes_port_or_address_is_followed() {
    let mut pair = Pair::default_pair();
    pair.nat = Some(addr("192.0.2.1:1000"));
    let (mut pair, client, server) = confirmed(pair);
    for (id, seen) in [
        (0, "192.0.2.1:1001"),
        (4, "192.0.2.9:7"),
        (8, "192.0.2.1:1000"),
    ] {
        transfer(&mut pair, client, server, id, |pair| {
            pair.nat = Some(addr(seen))
        });
        let found = pair.server.endpoint.peek(server).unwrap().remote_addr();
        assert_eq!(found, addr(seen));
    }
}

#[test]
fn the_servers_preferred_address_is_used_once_the_handshake_is_confirmed() {
    let mut server = server_settings();
    let preferred = addr("10.0.0.3:4433");
    server.transport.preferred_v4 = Some("10.0.0.3:4433".parse().unwrap());
    let mut pair = Pair::new(client_settings(), server);
    pair.server.more_addrs = vec![preferred];
    let (mut pair, client, server) = confirmed(pair);
    let peer = pair.client.endpoint.peek(client).unwrap();
    assert_eq!(peer.remote_addr(), preferred);
    // The server's first address is not needed any more, in either direction.
    pair.dead = vec![pair.server.addr];
    transfer(&mut pair, client, server, 0, |_| {});
    // The client, which uses the preferred address, may migrate to another socket.
    transfer(&mut pair, client, server, 4, |pair| {
        migrate(pair, client, 1).unwrap()
    });
    assert!(pair.client.has(client, |event| *event == FINISHED));
    assert_eq!(pair.server.endpoint.peek(server).unwrap().socket(), 1);
    // A new connection to the preferred address is not confused with the first one.
    pair.dead.clear();
    pair.server.addr = preferred;
    pair.server.more_addrs = vec![addr("10.0.0.2:443")];
    pair.close(Who::Client, client, 0, None, b"");
    pair.run_until_idle();
}

/// A client, and a server that prefers the address `10.0.0.3:4433`. Packets to it are lost unless `is_there`.
fn preferring(is_there: bool, change: impl Fn(&mut TransportSettings)) -> Pair {
    let (mut client, mut server) = with_transport(change);
    client.transport.packet_log = true;
    server.transport.preferred_v4 = Some("10.0.0.3:4433".parse().unwrap());
    let mut pair = Pair::new(client, server);
    if is_there {
        pair.server.more_addrs = vec![addr("10.0.0.3:4433")];
    }
    pair
}

/// The client's logged packets with a PATH_CHALLENGE.
fn challenges(pair: &Pair, client: ConnectionKey) -> Vec<String> {
    let connection = pair.client.endpoint.peek(client).unwrap();
    let events = connection.packet_log().unwrap().take();
    let is_challenge = |text: &String| text.contains("path_challenge");
    events
        .into_iter()
        .filter(|event| event.name == "transport:packet_sent")
        .map(|event| event.data)
        .filter(is_challenge)
        .collect()
}

#[test]
fn a_silent_preferred_address_gets_only_challenges() {
    let mut times = Vec::new();
    for is_wanted in [true, false] {
        let mut pair = preferring(false, |transport| {
            transport.use_preferred_address = is_wanted;
        });
        let (client, server) = pair.establish();
        let first = pair.server.addr;
        let begin = pair.now;
        transfer(&mut pair, client, server, 0, |_| {});
        times.push(pair.now - begin);
        // The client stays at the first address for a long time.
        pair.run_for(Duration::from_secs(10));
        transfer(&mut pair, client, server, 4, |_| {});
        let peer = pair.client.endpoint.peek(client).unwrap();
        assert_eq!(peer.remote_addr(), first);
        let sent = pair.sent_to.remove(&addr("10.0.0.3:4433"));
        let expected = if is_wanted { vec![1200; 3] } else { vec![] };
        assert_eq!(sent.unwrap_or_default(), expected);
        let challenges = challenges(&pair, client);
        assert_eq!(challenges.len(), expected.len(), "{challenges:#?}");
        for packet in challenges {
            assert!(packet.contains("\"frame_type\":\"path_challenge\""));
            let frames = packet.matches("\"frame_type\":").count();
            let paddings = packet.matches("\"frame_type\":\"padding\"").count();
            assert_eq!(frames - paddings, 1, "{packet}");
        }
        let is_reported = |event: &Event| matches!(event, Event::MigrationFinished { .. });
        assert!(!pair.client.has(client, is_reported));
        // The failed probe has left no state, so the client may migrate.
        pair.client.more_addrs = vec![addr("10.0.1.7:1234")];
        migrate(&mut pair, client, 1).unwrap();
        pair.run_until("a move", |pair| {
            pair.client.has(client, |event| *event == FINISHED)
        });
        pair.close(Who::Client, client, 0, None, b"");
        pair.run_until_idle();
    }
    // Data does not wait for an address that does not answer.
    assert!(
        times[0] <= times[1] + Duration::from_millis(30),
        "{times:?}"
    );
}

#[test]
fn no_data_goes_to_the_preferred_address_before_it_has_answered() {
    for seed in 0..4 {
        let mut pair = preferring(true, |_| {}).link(Link {
            loss: 10,
            ..Link::default()
        });
        pair.random = Random::new(seed);
        let preferred = addr("10.0.0.3:4433");
        let (client, server) = pair.establish();
        // During this transfer there is always data to send.
        let data = pattern(0, 2 << 20);
        let conn = pair.client.endpoint.connection(client).unwrap();
        conn.send_stream(0, data.clone(), true).unwrap();
        pair.run_until("the move", |pair| {
            let peer = pair.client.endpoint.peek(client).unwrap();
            let is_there = peer.remote_addr() == preferred;
            let asked = pair.sent_to.get(&preferred).map_or(0, Vec::len);
            assert!(is_there || asked <= 3, "{asked} packets");
            is_there || pair.server.finished(server, 0)
        });
        let challenges = challenges(&pair, client);
        assert!((1..=3).contains(&challenges.len()), "{challenges:#?}");
        pair.run_until("all", |pair| pair.server.finished(server, 0));
        assert!(pair.server.received(server, 0) == data);
        pair.run_for(Duration::from_secs(10));
        let peer = pair.client.endpoint.peek(client).unwrap();
        assert_eq!(peer.remote_addr(), preferred);
    }
}

#[test]
fn the_preferred_address_is_used_with_its_connection_id() {
    let mut pair = preferring(true, |_| {});
    pair.record = true;
    let (client, _) = pair.establish();
    pair.run_for(Duration::from_secs(1));
    let ids = ids_of_client(&pair);
    // The packet with the challenge and all packets after it are sent to the same connection ID.
    assert_eq!(ids.len(), 2, "{ids:?}");
    let peer = pair.client.endpoint.peek(client).unwrap();
    assert_eq!(peer.remote_addr(), addr("10.0.0.3:4433"));
}

#[test]
fn a_migration_ends_the_probing_of_the_preferred_address() {
    let mut pair = preferring(false, |_| {});
    pair.client.more_addrs = vec![addr("10.0.1.7:1234")];
    pair.record = true;
    let (client, server) = pair.establish();
    pair.run_until("the first challenge", |pair| {
        pair.sent_to.contains_key(&addr("10.0.0.3:4433"))
    });
    migrate(&mut pair, client, 1).unwrap();
    transfer(&mut pair, client, server, 0, |_| {});
    pair.run_for(Duration::from_secs(10));
    assert!(pair.client.has(client, |event| *event == FINISHED));
    assert_eq!(pair.sent_to[&addr("10.0.0.3:4433")].len(), 1);
    // The IDs of the first path, of the challenge, and of the path after the migration.
    assert_eq!(ids_of_client(&pair).len(), 3);
}

#[test]
fn connections_may_share_a_preferred_address() {
    let mut server = server_settings();
    let preferred = addr("10.0.0.3:4433");
    server.transport.preferred_v4 = Some("10.0.0.3:4433".parse().unwrap());
    let mut pair = Pair::new(client_settings(), server);
    pair.server.more_addrs = vec![preferred];
    let (mut pair, first, first_server) = confirmed(pair);
    let (second, second_server) = pair.establish();
    pair.run_for(Duration::from_secs(1));
    let remote = |pair: &Pair, key| pair.client.endpoint.peek(key).unwrap().remote_addr();
    assert_eq!(
        (remote(&pair, first), remote(&pair, second)),
        (preferred, preferred)
    );
    // The third connection uses the address itself. The other two, for which it is an alias, return to the address that
    // quinn-proto has.
    let known = std::mem::replace(&mut pair.server.addr, preferred);
    pair.server.more_addrs = vec![known];
    let (third, third_server) = pair.establish();
    for (id, (client, server)) in [
        (first, first_server),
        (second, second_server),
        (third, third_server),
    ]
    .into_iter()
    .enumerate()
    {
        transfer(&mut pair, client, server, id as u64 * 4, |_| {});
    }
    assert_eq!(
        (remote(&pair, first), remote(&pair, third)),
        (known, preferred)
    );
}
