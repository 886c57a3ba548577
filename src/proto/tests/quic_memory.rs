//! What clients make a server hold: it is charged to their address, bounded by a budget, and given back.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use uringcore_proto::budget::{Budget, Charge};
use uringcore_proto::quic::{CloseKind, Connection, ConnectionKey, EndpointSettings, Event};

use crate::support::{Pair, with_transport};

const MIB: usize = 1 << 20;

/// The server reads on demand, and gives each connection 8 MiB in the end.
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

fn connection(pair: &mut Pair, key: ConnectionKey) -> &mut Connection {
    pair.server.endpoint.connection(key).unwrap()
}

/// A connection on which the client sends so much on a stream, of which the server reads nothing.
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
fn what_is_not_read_is_charged_until_it_is() {
    let (mut pair, budget) = pair(64 * MIB);
    let upload = upload(&mut pair, 300_000);
    let held = budget.held();
    assert!((300_000..450_000).contains(&held), "{held}");
    assert_eq!(pair.server.endpoint.stats().held_bytes as usize, held);
    assert_eq!(read(&mut pair, upload), 300_000);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(budget.held(), 0);
}

#[test]
fn a_client_alone_gets_its_whole_window() {
    let (mut pair, budget) = pair(64 * MIB);
    let upload = upload(&mut pair, 20 * MIB);
    assert!(budget.held() >= 8 * MIB, "{}", budget.held());
    read_to_the_end(&mut pair, upload, 20 * MIB);
    assert_eq!(pair.server.endpoint.stats().credit_withheld, 0);
}

#[test]
fn an_address_above_its_share_gets_no_more_credit_until_it_is_below() {
    let (mut pair, budget) = pair(5 * MIB);
    let uploads = [(); 3].map(|()| upload(&mut pair, 4 * MIB));
    // Half of the budget, and what had been granted before.
    let held = budget.held();
    assert!((5 * MIB / 2..4 * MIB).contains(&held), "{held}");
    assert!(pair.server.endpoint.stats().credit_withheld > 0);
    assert_eq!(pair.server.endpoint.stats().streams_shed, 0);
    for upload in uploads {
        read_to_the_end(&mut pair, upload, 4 * MIB);
    }
    pair.run_for(Duration::from_secs(1));
    assert_eq!(budget.held(), 0);
}

#[test]
fn above_the_budget_the_heaviest_address_loses_its_oldest_streams() {
    let (mut pair, budget) = pair(5 * MIB / 2);
    // Somebody else, who holds less.
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
    // One that was left goes on.
    read_to_the_end(&mut pair, uploads[3], 4 * MIB);
}

#[test]
fn what_the_host_keeps_counts_and_costs_the_connection_if_it_does_not_let_go() {
    let (mut pair, budget) = pair(2 * MIB);
    let (client, server) = pair.establish();
    let mut charge = Charge::new(connection(&mut pair, server).queued());
    charge.set(MIB);
    pair.run_for(Duration::from_millis(10));
    assert_eq!(budget.held(), MIB);
    charge.set(3 * MIB);
    for _ in 0..5 {
        // Something happens on it.
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
fn a_connection_that_is_gone_holds_nothing() {
    let (mut pair, budget) = pair(64 * MIB);
    let (server, _) = upload(&mut pair, 300_000);
    assert!(budget.held() > 0);
    let now = pair.now;
    connection(&mut pair, server).close(now, 0, None, b"");
    pair.run_for(Duration::from_secs(60));
    assert_eq!(budget.held(), 0);
    assert_eq!(pair.server.endpoint.stats().held_bytes, 0);
}
