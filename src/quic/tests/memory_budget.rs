//! The memory that a server holds for its clients: it is charged to their addresses, bounded by a budget, and
//! released.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use uringcore_limits::memory_budget::{AddressBlock, Budget, Charge};
use uringcore_quic::{CloseKind, Connection, ConnectionKey, EndpointSettings, Event};

use crate::support::{Pair, Who, client_settings, server_settings, with_transport};

mod released_memory;
mod shedding;

const MIB: usize = 1 << 20;
/// The bytes that a connection without data is charged for.
const CONNECTION: usize = 32 << 10;

/// A server that reads on demand, with a budget of `limit` bytes. Each connection gets up to 8 MiB of credit.
fn pair(limit: usize) -> (Pair, Arc<Budget>) {
    let (client, server) = with_transport(|t| {
        t.max_stream_data = 8 << 20;
        t.max_data = 8 << 20;
        t.datagram_recv_bytes = Some(1 << 20);
    });
    let budget = Budget::new(limit);
    let settings = EndpointSettings {
        budget: Some(budget.clone()),
        ..EndpointSettings::default()
    };
    (Pair::with(client, server, settings), budget)
}

/// The bytes that are charged besides the fixed charge of this many connections.
fn beside(budget: &Budget, connections: usize) -> usize {
    budget.held() - connections * CONNECTION
}

fn connection(pair: &mut Pair, key: ConnectionKey) -> &mut Connection {
    pair.server.endpoint.connection(key).unwrap()
}

/// A connection whose client sends `size` bytes on a stream, of which the server reads nothing.
fn upload(pair: &mut Pair, size: usize) -> (ConnectionKey, u64) {
    let (client, server) = pair.establish();
    connection(pair, server).read_on_demand();
    let client = pair.client.endpoint.connection(client).unwrap();
    let id = client.next_stream_id(false);
    client
        .send_stream(id, Bytes::from(vec![1; size]), true)
        .unwrap();
    pair.run_for(Duration::from_secs(3));
    (server, id)
}

fn read(pair: &mut Pair, (server, id): (ConnectionKey, u64)) -> usize {
    let data = connection(pair, server).read_stream(id, usize::MAX).data;
    data.len()
}

fn read_to_the_end(pair: &mut Pair, upload: (ConnectionKey, u64), size: usize) {
    let mut count = 0;
    while count < size {
        let read = read(pair, upload);
        count += read;
        pair.run_for(Duration::from_millis(100));
    }
    assert_eq!(count, size);
}

fn is_shed(pair: &Pair, (server, id): (ConnectionKey, u64)) -> bool {
    pair.server.has(
        server,
        |event| matches!(event, Event::StreamReset { stream_id, .. } if *stream_id == id),
    )
}

#[test]
fn unread_data_is_charged_until_it_is_read() {
    let (mut pair, budget) = pair(64 * MIB);
    let upload = upload(&mut pair, 300_000);
    let held = budget.held();
    assert!((300_000..450_000).contains(&held), "{held}");
    assert_eq!(pair.server.endpoint.stats().held_bytes as usize, held);
    assert_eq!(read(&mut pair, upload), 300_000);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(beside(&budget, 1), 0);
}

#[test]
fn a_single_client_gets_its_whole_window() {
    let (mut pair, budget) = pair(64 * MIB);
    let upload = upload(&mut pair, 20 * MIB);
    assert!(budget.held() >= 8 * MIB, "{}", budget.held());
    read_to_the_end(&mut pair, upload, 20 * MIB);
    assert_eq!(pair.server.endpoint.stats().credit_withheld, 0);
}

#[test]
fn an_address_above_its_share_gets_no_credit() {
    let (mut pair, budget) = pair(5 * MIB);
    let uploads = [(); 3].map(|()| upload(&mut pair, 4 * MIB));
    // Half of the budget is held, and credit that was announced before it was withheld.
    let held = budget.held();
    assert!((5 * MIB / 2..4 * MIB).contains(&held), "{held}");
    assert!(pair.server.endpoint.stats().credit_withheld > 0);
    assert_eq!(pair.server.endpoint.stats().streams_shed, 0);
    for upload in uploads {
        read_to_the_end(&mut pair, upload, 4 * MIB);
    }
    pair.run_for(Duration::from_secs(1));
    assert_eq!(beside(&budget, 3), 0);
}

#[test]
fn the_heaviest_address_loses_its_oldest_streams() {
    let (mut pair, budget) = pair(5 * MIB / 2);
    // Another client has an account, and holds less memory than the first.
    let mut other = budget.enter(IpAddr::from([192, 0, 2, 1]));
    other.set(MIB / 2);
    let uploads = [(); 4].map(|()| upload(&mut pair, 4 * MIB));
    assert!(budget.held() <= budget.limit(), "{}", budget.held());
    let stats = pair.server.endpoint.stats();
    assert!(stats.streams_shed > 0);
    assert_eq!(stats.connections_shed, 0);
    let shed = uploads.map(|upload| is_shed(&pair, upload));
    assert_eq!((shed[0], shed[3]), (true, false), "{shed:?}");
    assert_eq!(other.held(), MIB / 2);
    // A stream that was not shed continues.
    read_to_the_end(&mut pair, uploads[3], 4 * MIB);
}

#[test]
fn data_kept_by_the_application_is_charged_and_may_close_the_connection() {
    let (mut pair, budget) = pair(2 * MIB);
    let (client, server) = pair.establish();
    let mut charge = Charge::new(connection(&mut pair, server).queued());
    charge.set(MIB);
    pair.run_for(Duration::from_millis(10));
    assert_eq!(beside(&budget, 1), MIB);
    charge.set(3 * MIB);
    for _ in 0..5 {
        // The PING causes an event on the connection.
        if let Some(client) = pair.client.endpoint.connection(client) {
            client.ping(1);
        }
        pair.run_for(Duration::from_millis(100));
    }
    let closed = pair.server.closed(server).expect("it was shed");
    assert_eq!(
        (closed.0, closed.1, closed.3),
        (0x1, Some(0), CloseKind::Local)
    );
    assert_eq!(pair.server.endpoint.stats().connections_shed, 1);
    drop(charge);
}

#[test]
fn a_removed_connection_holds_no_memory() {
    let (mut pair, budget) = pair(64 * MIB);
    let (server, _) = upload(&mut pair, 300_000);
    assert!(budget.held() > 0);
    let now = pair.now;
    connection(&mut pair, server).close(now, 0, None, b"");
    pair.run_for(Duration::from_secs(60));
    assert_eq!(budget.held(), 0);
    assert_eq!(pair.server.endpoint.stats().held_bytes, 0);
}

/// The application stores `size` bytes for a connection, and the endpoint counts them. Nothing is shed before the
/// next loop iteration.
fn keep(pair: &mut Pair, charge: &mut Charge, size: usize) {
    charge.set(size);
    for (key, _) in pair.server.events.clone() {
        pair.server.endpoint.connection(key);
    }
    pair.exchange();
}

fn open(pair: &mut Pair, client: ConnectionKey, ids: impl Iterator<Item = u64>, fin: bool) {
    let conn = pair.client.endpoint.connection(client).unwrap();
    for id in ids {
        conn.send_stream(id, Bytes::from_static(b"x"), fin).unwrap();
    }
    pair.run_for(Duration::from_millis(100));
}

/// How many streams of this kind (the two lowest bits of the ID) the server has received from the client.
fn seen(pair: &Pair, server: ConnectionKey, kind: u64) -> usize {
    let streams = pair.server.streams.keys();
    let is_its = |(key, id): &&(ConnectionKey, u64)| *key == server && id % 4 == kind;
    streams.filter(is_its).count()
}

/// The IDs of a client's unidirectional streams with these numbers.
fn one_way(numbers: std::ops::Range<u64>) -> impl Iterator<Item = u64> {
    numbers.map(|number| 4 * number + 2)
}

fn both_ways(numbers: std::ops::Range<u64>) -> impl Iterator<Item = u64> {
    numbers.map(|number| 4 * number)
}

#[test]
fn a_receiving_client_gets_streams_again_below_its_share() {
    let (mut pair, budget) = pair(8 * MIB);
    let (client, server) = pair.establish();
    let mut charge = Charge::new(connection(&mut pair, server).queued());
    // The application stores more than half of the budget.
    keep(&mut pair, &mut charge, 5 * MIB);
    assert!(connection(&mut pair, server).is_over_share());
    // The streams have far less data than the withheld credit.
    open(&mut pair, client, one_way(0..100), true);
    pair.run_for(Duration::from_secs(2));
    assert_eq!(seen(&pair, server, 2), 100);
    open(&mut pair, client, one_way(100..200), false);
    let withheld = seen(&pair, server, 2);
    assert!((101..=112).contains(&withheld), "{withheld}");
    keep(&mut pair, &mut charge, 0);
    pair.run_for(Duration::from_millis(100));
    assert_eq!(beside(&budget, 1), 0);
    assert!(!connection(&mut pair, server).is_over_share());
    assert_eq!(seen(&pair, server, 2), 200);
}

/// The application stores `size` bytes for a connection, more than the budget, and releases all of them when it polls
/// the events of shedding.
fn keep_too_much(pair: &mut Pair, server: ConnectionKey, size: usize) {
    let mut charge = Charge::new(connection(pair, server).queued());
    keep(pair, &mut charge, size);
    let now = pair.now;
    // The server's datagram is lost.
    pair.server.endpoint.poll_transmit(now, &mut Vec::new());
    pair.server.take_events();
    keep(pair, &mut charge, 0);
}

/// The IDs of the client's streams that were shed.
fn shed(pair: &Pair, server: ConnectionKey) -> Vec<u64> {
    let events = pair.server.events.iter();
    let ids = events.filter_map(|(key, event)| match event {
        Event::StreamReset { stream_id, .. } if *key == server => Some(*stream_id),
        _ => None,
    });
    ids.collect()
}

#[test]
fn only_as_many_bidirectional_streams_as_needed_are_shed() {
    let (mut pair, budget) = pair(2 * MIB);
    let (client, server) = pair.establish();
    // These streams of a client were opened first, and have also made no progress since.
    open(&mut pair, client, one_way(0..3), false);
    open(&mut pair, client, both_ways(0..8), false);
    assert_eq!((seen(&pair, server, 2), seen(&pair, server, 0)), (3, 8));
    keep_too_much(&mut pair, server, 2 * MIB + MIB / 4);
    // Half a MiB must be released, which two streams are charged for.
    assert_eq!(shed(&pair, server), [0, 4]);
    let stats = pair.server.endpoint.stats();
    assert_eq!((stats.streams_shed, stats.connections_shed), (2, 0));
    assert_eq!(beside(&budget, 1), 0);
}

#[test]
fn streams_without_data_are_not_shed() {
    let (mut pair, _) = pair(2 * MIB);
    let [(idle_client, idle), (client, heavy)] = [(); 2].map(|()| pair.establish());
    // The streams of the older connection would be shed first, but they hold no data.
    open(&mut pair, idle_client, both_ways(0..4), false);
    open(&mut pair, idle_client, one_way(0..4), false);
    open(&mut pair, client, both_ways(0..4), false);
    // A stream of the idle client holds some data.
    connection(&mut pair, idle).read_on_demand();
    let conn = pair.client.endpoint.connection(idle_client).unwrap();
    conn.send_stream(16, Bytes::from(vec![1; 20_000]), false)
        .unwrap();
    pair.run_for(Duration::from_millis(100));
    assert!(connection(&mut pair, idle).held_bytes() >= 20_000);
    keep_too_much(&mut pair, heavy, 3 * MIB);
    assert_eq!(shed(&pair, heavy), [0, 4]);
    assert_eq!(shed(&pair, idle), [16]);
    assert!(pair.client.closed(idle_client).is_none());
}

/// True if the account of this address is the one that holds most.
fn heaviest_is(budget: &Arc<Budget>, block: AddressBlock) -> bool {
    let heaviest = budget.heaviest(1);
    budget.enter(block).is_of(&heaviest[0])
}

#[test]
fn a_connection_is_charged_to_its_address_once_that_is_proved() {
    let (mut pair, budget) = pair(8 * MIB);
    pair.connect();
    pair.run_until("the server's first flight", |pair| pair.server.sent > 0);
    let server = pair.server.events[0].0;
    assert_eq!(connection(&mut pair, server).validated_addr(), None);
    let mut charge = Charge::new(connection(&mut pair, server).queued());
    charge.set(MIB);
    connection(&mut pair, server);
    // No further datagram of the client is delivered to this server.
    let now = pair.now;
    assert!(
        pair.server
            .endpoint
            .poll_transmit(now, &mut Vec::new())
            .is_none()
    );
    assert_eq!(beside(&budget, 1), MIB);
    let (client, nobody) = (pair.client.addr.ip().into(), AddressBlock::Unproved);
    assert!(heaviest_is(&budget, nobody) && !heaviest_is(&budget, client));
    let completed = |event: &Event| matches!(event, Event::HandshakeCompleted { .. });
    pair.run_until("the handshake", |pair| pair.server.has(server, completed));
    assert!(heaviest_is(&budget, client) && !heaviest_is(&budget, nobody));
    assert_eq!(beside(&budget, 1), MIB);
}

#[test]
fn an_unproved_address_is_not_charged() {
    let (mut pair, budget) = pair(8 * MIB);
    pair.connect();
    pair.exchange();
    pair.client.is_mute = true;
    pair.run_until("the server's first flight", |pair| pair.server.sent > 0);
    let server = pair.server.events[0].0;
    let mut charge = Charge::new(connection(&mut pair, server).queued());
    keep(&mut pair, &mut charge, MIB);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(beside(&budget, 1), MIB);
    assert!(!heaviest_is(&budget, pair.client.addr.ip().into()));
}

#[test]
fn connections_of_one_address_may_fill_a_quarter_of_the_budget() {
    let (mut pair, budget) = pair(MIB);
    let connected = connect_often(&mut pair, 12);
    assert_eq!(connected.len(), 8);
    assert_eq!(budget.held(), 8 * CONNECTION);
    let stats = pair.server.endpoint.stats();
    assert_eq!((stats.incoming_refused, stats.refused_for_address), (4, 4));
    // Half of the budget is held for all connections.
    let mut others = budget.enter(IpAddr::from([192, 0, 2, 1]));
    others.set_fixed(8 * CONNECTION);
    assert_eq!(connect_often(&mut pair, 1), []);
    assert_eq!(pair.server.endpoint.stats().refused_for_connections, 1);
    // A connection that ends makes room for another one.
    drop(others);
    let now = pair.now;
    pair.client
        .endpoint
        .connection(connected[0])
        .unwrap()
        .close(now, 0, None, b"");
    pair.run_for(Duration::from_secs(10));
    assert_eq!(connect_often(&mut pair, 2).len(), 1);
}

/// The client tries to connect `attempts` times, one after the other. Returns the connections that were accepted.
fn connect_often(pair: &mut Pair, attempts: usize) -> Vec<ConnectionKey> {
    let completed = |event: &Event| matches!(event, Event::HandshakeCompleted { .. });
    let mut connected = Vec::new();
    for _ in 0..attempts {
        let key = pair.connect();
        pair.run_until("an answer", |pair| {
            pair.client.has(key, completed) || pair.client.closed(key).is_some()
        });
        pair.run_for(Duration::from_millis(200));
        match pair.client.closed(key) {
            Some(closed) => assert_eq!(closed.0, 0x2),
            None => connected.push(key),
        }
    }
    connected
}
