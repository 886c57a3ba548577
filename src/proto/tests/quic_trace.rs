//! What a connection tells about its packets: the log under qlog, and its connection IDs.

mod support;

use std::collections::BTreeSet;

use support::{Pair, Who, client_settings, server_settings};
use uringcore_proto::quic::Event;

#[test]
fn both_sides_log_the_same_packets() {
    let (mut client, mut server) = (client_settings(), server_settings());
    client.transport.packet_log = true;
    server.transport.packet_log = true;
    let mut net = Pair::new(client, server);
    let (client, server) = net.establish();
    net.peer(Who::Client)
        .endpoint
        .connection(client)
        .unwrap()
        .send_stream(0, vec![7; 3000].into(), true)
        .unwrap();
    net.run_until("the stream is there", |net| {
        net.peer(Who::Server).finished(server, 0)
    });
    let mut logs = Vec::new();
    for (who, key) in [(Who::Client, client), (Who::Server, server)] {
        let connection = net.peer(who).endpoint.peek(key).unwrap();
        let events = connection.packet_log().unwrap().take();
        assert!(connection.packet_log().unwrap().take().is_empty());
        // Times only grow.
        let times: Vec<_> = events.iter().filter_map(|event| event.at).collect();
        assert!(times.is_sorted());
        logs.push(events);
    }
    let of = |side: usize, name: &str| -> Vec<&str> {
        logs[side]
            .iter()
            .filter(|event| event.name == name)
            .map(|event| event.data.as_str())
            .collect()
    };
    // A packet's entry is the same on both sides, up to the source that short headers lack.
    let sent: BTreeSet<_> = of(0, "transport:packet_sent").into_iter().collect();
    let received = of(1, "transport:packet_received");
    assert!(received.len() > 4);
    for packet in &received {
        assert!(sent.contains(packet), "{packet}");
    }
    assert!(received[0].contains("\"packet_type\":\"initial\""));
    assert!(received[0].contains("\"frame_type\":\"crypto\""));
    let fin = "\"fin\":true,\"frame_type\":\"stream\"";
    assert!(received.iter().any(|packet| packet.contains(fin)));
    for side in 0..2 {
        let parameters = of(side, "transport:parameters_set");
        assert_eq!(parameters.len(), 2);
        assert!(parameters[0].starts_with("{\"owner\":\"local\""));
        assert!(parameters[1].starts_with("{\"owner\":\"remote\""));
        assert!(!of(side, "recovery:metrics_updated").is_empty());
    }
}

#[test]
fn without_being_asked_nothing_is_logged() {
    let mut net = Pair::default_pair();
    let (client, server) = net.establish();
    assert!(
        net.peer(Who::Client)
            .endpoint
            .peek(client)
            .unwrap()
            .packet_log()
            .is_none()
    );
    assert!(
        net.peer(Who::Server)
            .endpoint
            .peek(server)
            .unwrap()
            .packet_log()
            .is_none()
    );
}

#[test]
fn ids_are_told_when_given_out_and_taken_back() {
    let mut net = Pair::default_pair();
    let key = net.connect();
    let client = net.peer(Who::Client).endpoint.connection(key).unwrap();
    client.watch_connection_ids();
    let first = client.host_connection_id().unwrap().to_vec();
    net.run_for(std::time::Duration::from_secs(1));
    let issued = |net: &mut Pair| -> Vec<Vec<u8>> {
        let peer = net.peer(Who::Client);
        peer.events
            .iter()
            .filter_map(|(_, event)| match event {
                Event::ConnectionIdIssued { id } => Some(id.clone()),
                _ => None,
            })
            .collect()
    };
    let ids = issued(&mut net);
    assert!(!ids.is_empty());
    let distinct: BTreeSet<_> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len());
    assert!(!distinct.contains(&first));
}
