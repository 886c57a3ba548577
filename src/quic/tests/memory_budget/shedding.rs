//! Shedding (ending streams or connections to free memory): which connections are chosen, and when a search is
//! repeated.

use super::*;

fn charges<const N: usize>(pair: &mut Pair) -> [(ConnectionKey, ConnectionKey, Charge); N] {
    [(); N].map(|()| {
        let (client, server) = pair.establish();
        let charge = Charge::new(connection(pair, server).queued());
        (client, server, charge)
    })
}

/// Runs one loop iteration of the endpoint in which its application polls no events.
fn run_iteration(pair: &mut Pair, servers: &[ConnectionKey]) {
    let now = pair.now;
    for &server in servers {
        pair.server.endpoint.connection(server);
    }
    let mut room = Vec::new();
    while pair.server.endpoint.poll_transmit(now, &mut room).is_some() {}
}

#[test]
fn a_fruitless_search_is_repeated_when_more_is_held() {
    let (mut pair, budget) = pair(2 * MIB);
    let [(client, server, mut charge)] = charges(&mut pair);
    open(&mut pair, client, both_ways(0..4), false);
    // Another endpoint has the connections that hold most.
    let mut other = budget.enter(IpAddr::from([192, 0, 2, 1]));
    other.set(3 * MIB);
    run_iteration(&mut pair, &[server]);
    assert_eq!(pair.server.endpoint.stats().streams_shed, 0);
    // The charge grows in this loop iteration, before the application has polled an event.
    charge.set(4 * MIB);
    run_iteration(&mut pair, &[server]);
    run_iteration(&mut pair, &[server]);
    assert!(pair.server.endpoint.stats().streams_shed > 0);
}

#[test]
fn other_endpoints_are_asked_to_shed_once_until_more_is_held() {
    let (mut pair, budget) = pair(2 * MIB);
    let [(_, server, _charge)] = charges(&mut pair);
    let mut other = budget.enter(IpAddr::from([192, 0, 2, 1]));
    other.set(3 * MIB);
    for expected in [true, false, false] {
        run_iteration(&mut pair, &[server]);
        assert_eq!(pair.server.endpoint.take_asks_others(), expected);
        pair.server.take_events();
    }
    other.set(4 * MIB);
    run_iteration(&mut pair, &[server]);
    assert!(pair.server.endpoint.take_asks_others());
}

#[test]
fn connections_with_little_data_are_not_shed_for_others_of_their_address() {
    let (mut pair, _) = pair(2 * MIB);
    let [(light_client, light, _none), heavies @ ..] = charges::<4>(&mut pair);
    for (_, server, mut charge) in heavies {
        // The application does not release its data.
        charge.set(3 * MIB);
        for _ in 0..5 {
            run_iteration(&mut pair, &[server]);
            pair.server.take_events();
        }
        assert!(pair.server.closed(server).is_some());
        charge.set(0);
        pair.run_for(Duration::from_secs(2));
    }
    assert_eq!(pair.server.endpoint.stats().connections_shed, 3);
    assert!(pair.server.closed(light).is_none());
    assert!(pair.client.closed(light_client).is_none());
}

#[test]
fn idle_connections_are_not_shed_for_other_addresses() {
    let (mut pair, budget) = pair(2 * MIB);
    // These sixteen connections hold most bytes in sum, but each of them has little data.
    let many: [_; 16] = charges(&mut pair);
    let (client, server, _) = &many[0];
    connection(&mut pair, *server).read_on_demand();
    open(&mut pair, *client, both_ways(0..4), false);
    let conn = pair.client.endpoint.connection(*client).unwrap();
    conn.send_stream(16, Bytes::from(vec![1; 20_000]), false)
        .unwrap();
    pair.run_for(Duration::from_millis(100));
    assert!(connection(&mut pair, *server).held_bytes() >= 20_000);
    let mut flooders = [1, 2, 3, 4].map(|last| budget.enter(IpAddr::from([192, 0, 2, last])));
    for flooder in &mut flooders {
        flooder.set(MIB / 2);
    }
    for _ in 0..5 {
        run_iteration(&mut pair, &many.each_ref().map(|(_, server, _)| *server));
        pair.server.take_events();
    }
    assert!(budget.held() > budget.limit());
    let stats = pair.server.endpoint.stats();
    assert_eq!((stats.streams_shed, stats.connections_shed), (0, 0));
    assert!(!connection(&mut pair, *server).is_short_of_memory());
    assert!(pair.server.endpoint.take_asks_others());
}

#[test]
fn closed_connections_are_removed_at_once_above_the_budget() {
    let (mut pair, budget) = pair(2 * MIB);
    let [(_, server, _charge)] = charges(&mut pair);
    pair.client.is_mute = true;
    let now = pair.now;
    connection(&mut pair, server).close(now, 0, None, b"");
    pair.exchange();
    run_iteration(&mut pair, &[]);
    assert_eq!(pair.server.endpoint.len(), 1);
    let mut other = budget.enter(IpAddr::from([192, 0, 2, 1]));
    other.set(3 * MIB);
    run_iteration(&mut pair, &[]);
    assert_eq!(
        (pair.server.endpoint.len(), beside(&budget, 0)),
        (0, 3 * MIB)
    );
    assert_eq!(pair.server.endpoint.stats().held_bytes, 0);
    assert_eq!(pair.server.endpoint.stats().connections_shed, 0);
}
