//! Memory that is released: data at the end of a connection, and the reservation for a client's credit after a time.

use std::sync::Weak;

use super::*;

/// Bytes, and a weak reference that is dead when all copies of the bytes were dropped.
fn tracked(size: usize) -> (Bytes, Weak<Vec<u8>>) {
    struct Owner(Arc<Vec<u8>>);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let data = Arc::new(vec![1; size]);
    let watch = Arc::downgrade(&data);
    (Bytes::from_owner(Owner(data)), watch)
}

/// Sends 20 MiB from the server, of which the client reads only a part.
fn send_much(pair: &mut Pair, server: ConnectionKey) -> Weak<Vec<u8>> {
    let (data, watch) = tracked(20 * MIB);
    let conn = connection(pair, server);
    let id = conn.next_stream_id(true);
    conn.send_stream(id, data, true).unwrap();
    pair.run_for(Duration::from_millis(100));
    assert!(watch.strong_count() > 0);
    watch
}

#[test]
fn a_connection_closed_by_this_side_drops_its_data_at_once() {
    let (mut pair, budget) = pair(64 * MIB);
    let (server, _) = upload(&mut pair, 300_000);
    let sent = send_much(&mut pair, server);
    assert!(beside(&budget, 1) > 10 * MIB);
    // The client does not answer.
    pair.client.is_mute = true;
    let now = pair.now;
    connection(&mut pair, server).close(now, 0, None, b"");
    pair.exchange();
    assert_eq!(pair.server.endpoint.len(), 1);
    assert_eq!((beside(&budget, 1), sent.strong_count()), (0, 0));
    pair.run_for(Duration::from_secs(60));
    assert_eq!((budget.held(), pair.server.endpoint.len()), (0, 0));
}

#[test]
fn a_connection_closed_by_its_client_drops_its_data_after_closed_is_polled() {
    let (mut pair, budget) = pair(64 * MIB);
    let (client, server) = pair.establish();
    connection(&mut pair, server).read_on_demand();
    let conn = pair.client.endpoint.connection(client).unwrap();
    let id = conn.next_stream_id(false);
    conn.send_stream(id, Bytes::from(vec![1; 300_000]), true)
        .unwrap();
    pair.run_for(Duration::from_secs(1));
    let sent = send_much(&mut pair, server);
    let now = pair.now;
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.close(now, 7, None, b"");
    pair.run_until("the end", |pair| pair.server.closed(server).is_some());
    // Data that had arrived was read before the end.
    assert_eq!(pair.server.streams[&(server, id)].data.len(), 300_000);
    pair.exchange();
    assert_eq!(pair.server.endpoint.len(), 1);
    assert_eq!((beside(&budget, 1), sent.strong_count()), (0, 0));
}

#[test]
fn each_connection_has_a_fixed_charge() {
    let (mut pair, budget) = pair(64 * MIB);
    for number in 1..=3 {
        pair.establish();
        pair.run_for(Duration::from_secs(1));
        assert_eq!((budget.held(), budget.data()), (number * CONNECTION, 0));
        assert_eq!(
            pair.server.endpoint.stats().held_bytes as usize,
            budget.held()
        );
    }
}

/// Makes a connection whose client has used half of its first receive window, and so has got the full window of 8 MiB.
fn grown(pair: &mut Pair) -> (ConnectionKey, ConnectionKey) {
    let (client, server) = pair.establish();
    let conn = pair.client.endpoint.connection(client).unwrap();
    let id = conn.next_stream_id(false);
    conn.send_stream(id, Bytes::from(vec![1; 600_000]), true)
        .unwrap();
    pair.run_for(Duration::from_millis(500));
    (client, server)
}

#[test]
fn credit_of_a_quiet_client_stays_reserved_for_a_time() {
    let (mut pair, budget) = pair(16 * MIB);
    let (client, _) = grown(&mut pair);
    let mut other = budget.enter(IpAddr::from([192, 0, 2, 1]));
    assert!(!other.promise(12 * MIB));
    for _ in 0..10 {
        // The client keeps its connection alive with a PING.
        pair.client.endpoint.connection(client).unwrap().ping(1);
        pair.run_for(Duration::from_secs(2));
    }
    assert!(!other.promise(12 * MIB));
    for _ in 0..10 {
        pair.client.endpoint.connection(client).unwrap().ping(1);
        pair.run_for(Duration::from_secs(2));
    }
    assert!(other.promise(12 * MIB));
}

#[test]
fn the_reservation_for_credit_ends_without_any_traffic() {
    let (mut pair, budget) = pair(16 * MIB);
    grown(&mut pair);
    pair.run_for(Duration::from_secs(40));
    assert_eq!(pair.server.endpoint.len(), 1);
    let mut other = budget.enter(IpAddr::from([192, 0, 2, 1]));
    assert!(other.promise(12 * MIB));
}

#[test]
fn a_closed_connection_has_no_reservation_for_credit() {
    let (mut pair, budget) = pair(16 * MIB);
    let (_, server) = grown(&mut pair);
    pair.client.is_mute = true;
    let now = pair.now;
    connection(&mut pair, server).close(now, 0, None, b"");
    pair.exchange();
    assert_eq!(pair.server.endpoint.len(), 1);
    let mut other = budget.enter(IpAddr::from([192, 0, 2, 1]));
    assert!(other.promise(12 * MIB));
}

#[test]
fn data_behind_a_close_is_not_charged() {
    let (mut pair, budget) = pair(64 * MIB);
    let (client, server) = pair.establish();
    connection(&mut pair, server).read_on_demand();
    let send = |pair: &mut Pair, size| {
        let conn = pair.client.endpoint.connection(client).unwrap();
        conn.send_stream(0, Bytes::from(vec![1; size]), false)
            .unwrap();
        pair.exchange();
    };
    send(&mut pair, 1_000);
    pair.run_for(Duration::from_millis(100));
    // The client's datagrams are recorded and delivered later.
    (pair.record, pair.client.is_mute) = (true, true);
    send(&mut pair, 10_000);
    (pair.record, pair.client.is_mute) = (false, false);
    let late = std::mem::take(&mut pair.recorded);
    let now = pair.now;
    let conn = pair.client.endpoint.connection(client).unwrap();
    conn.close(now, 7, None, b"");
    pair.run_until("the end", |pair| pair.server.closed(server).is_some());
    let before = pair.server.endpoint.stats().datagrams_received;
    for (_, datagram) in late {
        pair.deliver(Who::Server, &datagram, None);
    }
    let after = pair.server.endpoint.stats().datagrams_received;
    assert!(after - before >= 8, "{}", after - before);
    connection(&mut pair, server);
    pair.exchange();
    assert_eq!((beside(&budget, 1), pair.server.endpoint.len()), (0, 1));
}

#[test]
fn closed_connections_are_counted_against_a_limit_of_their_own() {
    let settings = EndpointSettings {
        max_connections_per_address: Some(1),
        ..EndpointSettings::default()
    };
    let mut pair = Pair::with(client_settings(), server_settings(), settings);
    for number in 1..=2 {
        let (client, server) = pair.establish();
        pair.close(Who::Client, client, 0, None, b"");
        pair.run_until("the end", |pair| pair.server.closed(server).is_some());
        assert_eq!(pair.server.endpoint.len(), number);
    }
    let second = pair.connect();
    pair.run_until("a refusal", |pair| pair.client.closed(second).is_some());
    assert_eq!(pair.server.endpoint.stats().refused_for_address, 1);
    pair.run_for(Duration::from_secs(10));
    pair.establish();
}

#[test]
fn pings_do_not_prolong_the_reservation_for_credit() {
    let (mut pair, budget) = pair(16 * MIB);
    let (client, _) = grown(&mut pair);
    let mut other = budget.enter(IpAddr::from([192, 0, 2, 1]));
    // PINGs follow each other so closely that the connection is never idle.
    for (count, is_free) in [(25, false), (20, true)] {
        for _ in 0..count {
            pair.client.endpoint.connection(client).unwrap().ping(1);
            pair.run_for(Duration::from_millis(900));
        }
        assert_eq!(other.promise(12 * MIB), is_free);
    }
}

#[test]
fn credit_stays_reserved_while_the_client_uses_it() {
    let (mut pair, budget) = pair(16 * MIB);
    let (client, _) = grown(&mut pair);
    let mut other = budget.enter(IpAddr::from([192, 0, 2, 1]));
    for _ in 0..6 {
        pair.run_for(Duration::from_secs(10));
        open(&mut pair, client, std::iter::once(4), false);
    }
    assert!(!other.promise(12 * MIB));
}
