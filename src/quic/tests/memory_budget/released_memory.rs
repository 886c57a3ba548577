//! Memory that is released with a connection's end, or after a time: its data, and the reservation for its credit.

use std::sync::Weak;

use super::*;

/// Bytes of the host, and a weak reference that is dead once all copies are dropped.
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

/// Data of the server, of which the client reads only a part.
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
fn a_connection_that_the_host_closes_holds_only_itself_while_it_lingers() {
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
fn a_connection_that_its_client_closes_holds_only_itself_once_the_host_has_seen_that() {
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
fn each_connection_counts_itself() {
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

/// A connection whose client has used half of its first credit and received the rest of 8 MiB.
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
fn room_for_the_credit_of_a_client_that_goes_quiet_is_kept_for_a_time() {
    let (mut pair, budget) = pair(16 * MIB);
    let (client, _) = grown(&mut pair);
    let mut other = budget.enter(IpAddr::from([192, 0, 2, 1]));
    assert!(!other.promise(12 * MIB));
    for _ in 0..10 {
        // The client keeps its connection alive.
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
fn room_for_credit_is_given_back_when_nothing_at_all_comes() {
    let (mut pair, budget) = pair(16 * MIB);
    grown(&mut pair);
    pair.run_for(Duration::from_secs(40));
    assert_eq!(pair.server.endpoint.len(), 1);
    let mut other = budget.enter(IpAddr::from([192, 0, 2, 1]));
    assert!(other.promise(12 * MIB));
}

#[test]
fn no_room_is_kept_for_the_credit_of_a_connection_that_was_closed() {
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
    // These arrive late.
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
fn as_many_closed_connections_as_may_be_open_linger_without_a_limit_to_others() {
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
fn pings_keep_no_room_for_credit_that_a_client_does_not_use() {
    let (mut pair, budget) = pair(16 * MIB);
    let (client, _) = grown(&mut pair);
    let mut other = budget.enter(IpAddr::from([192, 0, 2, 1]));
    // Datagrams follow each other so closely that the connection is never quiet.
    for (count, is_free) in [(25, false), (20, true)] {
        for _ in 0..count {
            pair.client.endpoint.connection(client).unwrap().ping(1);
            pair.run_for(Duration::from_millis(900));
        }
        assert_eq!(other.promise(12 * MIB), is_free);
    }
}

#[test]
fn room_for_credit_is_kept_while_the_client_uses_it() {
    let (mut pair, budget) = pair(16 * MIB);
    let (client, _) = grown(&mut pair);
    let mut other = budget.enter(IpAddr::from([192, 0, 2, 1]));
    for _ in 0..6 {
        pair.run_for(Duration::from_secs(10));
        open(&mut pair, client, std::iter::once(4), false);
    }
    assert!(!other.promise(12 * MIB));
}
