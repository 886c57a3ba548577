//! A connection's packet log (for qlog), and events about its connection IDs.

use std::collections::BTreeSet;

use crate::support::{Link, Pair, Who, client_settings, server_settings};
use uringcore_quic::{
    ClientSettings, ConnectionKey, EndpointSettings, Event, ServerSettings, VERSION_1,
    qlog::Recorded,
};

/// Settings of a client and a server that log their packets.
fn logging() -> (ClientSettings, ServerSettings) {
    let (mut client, mut server) = (client_settings(), server_settings());
    client.transport.packet_log = true;
    server.transport.packet_log = true;
    (client, server)
}

#[test]
fn both_sides_log_the_same_packets() {
    let (client, server) = logging();
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
        // The times of the events never decrease.
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
    // Sender and receiver log a packet with equal entries. The receiver's entry lacks only the source connection ID, if
    // the packet had a short header.
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
fn without_the_setting_nothing_is_logged() {
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
fn connection_ids_are_reported_before_a_packet_issues_them() {
    let settings = EndpointSettings {
        reports_connection_ids: true,
        ..EndpointSettings::default()
    };
    let (client, mut server) = (client_settings(), server_settings());
    server.transport.packet_log = true;
    let mut net = Pair::with(client, server, settings);
    net.connect();
    let issued = |net: &mut Pair| -> Vec<Vec<u8>> {
        let events = net.peer(Who::Server).events.iter();
        let ids = events.filter_map(|(_, event)| match event {
            Event::ConnectionIdIssued { id } => Some(id.clone()),
            _ => None,
        });
        ids.collect()
    };
    net.exchange();
    net.now += std::time::Duration::from_secs(1);
    net.arrive();
    // An application that routes packets itself handles the events before it sends the packets.
    net.peer(Who::Server).take_events();
    assert_eq!(net.peer(Who::Server).endpoint.stats().datagrams_sent, 0);
    let ids = issued(&mut net);
    assert!(!ids.is_empty());
    net.run_for(std::time::Duration::from_secs(1));
    assert_eq!(
        issued(&mut net),
        ids,
        "no ID was reported after a packet had issued it"
    );
    let endpoint = &net.peer(Who::Server).endpoint;
    let key = endpoint.keys().next().unwrap();
    let connection = endpoint.peek(key).unwrap();
    let given = connection.packet_log().unwrap().take();
    let given = given
        .iter()
        .filter(|event| event.name == "transport:packet_sent");
    let given: String = given.map(|event| event.data.as_str()).collect();
    for id in ids {
        assert_ne!(Some(&id[..]), connection.host_connection_id());
        let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(given.contains(&hex), "{hex} was issued to the peer");
    }
}

/// The packets in events with this name, by type and number.
fn numbered(log: &[Recorded], name: &str) -> BTreeSet<(String, u64)> {
    let each = log.iter().filter(|event| event.name == name);
    each.map(|event| {
        let kind = word(&event.data, "\"packet_type\":\"");
        let number = word(&event.data, "\"packet_number\":");
        (kind.to_owned(), number.parse().unwrap())
    })
    .collect()
}

/// The value after `before` in JSON text.
fn word<'a>(data: &'a str, before: &str) -> &'a str {
    let at = data.find(before).expect(before) + before.len();
    let rest = &data[at..];
    &rest[..rest.find([',', '}', '"']).unwrap()]
}

#[test]
fn logged_lost_packets_are_those_that_never_arrived() {
    let (client, server) = logging();
    let mut net = Pair::new(client, server);
    let (client, server) = net.establish();
    net.link.loss = 8;
    net.peer(Who::Client)
        .endpoint
        .connection(client)
        .unwrap()
        .send_stream(0, vec![7; 400_000].into(), true)
        .unwrap();
    net.run_until("the stream is there", |net| {
        net.peer(Who::Server).finished(server, 0)
    });
    net.link.loss = 0;
    net.peer(Who::Client)
        .endpoint
        .connection(client)
        .unwrap()
        .ping(1);
    net.run_for(std::time::Duration::from_secs(1));
    let connection = net.peer(Who::Client).endpoint.peek(client).unwrap();
    let (log, stats) = (connection.packet_log().unwrap().take(), connection.stats());
    let connection = net.peer(Who::Server).endpoint.peek(server).unwrap();
    let servers_log = connection.packet_log().unwrap().take();
    let sent = numbered(&log, "transport:packet_sent");
    let lost = numbered(&log, "recovery:packet_lost");
    let arrived = numbered(&servers_log, "transport:packet_received");
    assert!(lost.len() > 10, "{lost:?}");
    assert_eq!(
        lost.len() as u64,
        stats.packets_lost + stats.mtu_probes_lost
    );
    // The link keeps the order, so a packet that arrives is not declared lost.
    assert_eq!(lost.intersection(&arrived).count(), 0);
    // Later packets were acknowledged, so every missing packet was declared lost.
    let missing: BTreeSet<_> = sent.difference(&arrived).cloned().collect();
    assert_eq!(missing, lost);
    for trigger in ["reordering_threshold", "\"raw\":{\"length\":"] {
        assert!(
            log.iter().any(|event| {
                event.name == "recovery:packet_lost" && event.data.contains(trigger)
            })
        );
    }
    let last = |name: &str, field: &str| {
        let mut events = log.iter().rev().filter(|event| event.name == name);
        let event = events.find(|event| event.data.contains(field)).unwrap();
        word(&event.data, field).to_owned()
    };
    let metrics = |field: &str| last("recovery:metrics_updated", field);
    assert_eq!(metrics("\"bytes_in_flight\":"), "0");
    assert_eq!(metrics("\"cwnd\":"), stats.congestion_window.to_string());
    assert_eq!(
        metrics("\"ssthresh\":"),
        stats.ssthresh.unwrap().to_string()
    );
    // The link takes exactly 5 ms, and the peer delays its ACKs at most as long as allowed.
    for field in ["latest_rtt", "min_rtt", "smoothed_rtt"] {
        let milliseconds: f64 = metrics(&format!("\"{field}\":")).parse().unwrap();
        assert!(
            (9.9..40.0).contains(&milliseconds),
            "{field}: {milliseconds}"
        );
    }
    let variance: f64 = metrics("\"rtt_variance\":").parse().unwrap();
    assert!((0.0..20.0).contains(&variance), "{variance}");
    let states: BTreeSet<_> = log
        .iter()
        .filter(|event| event.name == "recovery:congestion_state_updated")
        .map(|event| word(&event.data, "\"new\":\"").to_owned())
        .collect();
    let expected = ["congestion_avoidance", "recovery", "slow_start"];
    assert_eq!(states.iter().collect::<Vec<_>>(), expected);
    let in_flight = log
        .iter()
        .filter(|event| event.name == "recovery:metrics_updated")
        .map(|event| word(&event.data, "\"bytes_in_flight\":").parse::<u64>());
    assert!(in_flight.map(Result::unwrap).max().unwrap() > 10_000);
}

#[test]
fn dropped_packets_and_key_updates_are_logged() {
    let (client, server) = logging();
    let mut net = Pair::new(client, server).link(Link {
        duplicate: 100,
        ..Link::default()
    });
    let (client, server) = net.establish();
    net.link.duplicate = 0;
    net.run_for(std::time::Duration::from_secs(1));
    // The destination connection ID of the last packet that the client has received.
    let log = net.peer(Who::Client).endpoint.peek(client).unwrap();
    let mut log = log.packet_log().unwrap().take();
    let mut received = log.iter().rev();
    let received = received.find(|event| event.name == "transport:packet_received");
    let id = word(&received.unwrap().data, "\"dcid\":\"");
    let bytes = id.as_bytes().chunks(2);
    let id: Vec<u8> = bytes
        .map(|hex| u8::from_str_radix(std::str::from_utf8(hex).unwrap(), 16).unwrap())
        .collect();
    let mut tampered = vec![0x45; 60];
    tampered[1..=id.len()].copy_from_slice(&id);
    net.deliver(Who::Client, &tampered, None);
    // A late Handshake packet, whose keys were dropped, and a packet of an unknown version.
    let mut late = vec![0xe0, 0, 0, 0, 1, id.len() as u8];
    late.extend(&id);
    late.extend([0, 0x40, 50]);
    late.extend([9; 50]);
    net.deliver(Who::Client, &late, None);
    late[1..5].copy_from_slice(&[0x1a, 0x2a, 0x3a, 0x4a]);
    net.deliver(Who::Client, &late, None);
    // The second copy has another destination connection ID.
    tampered[1..=id.len()].copy_from_slice(&vec![1; id.len()]);
    net.deliver(Who::Client, &tampered, None);
    let update = |net: &mut Pair, who: Who, key| {
        let endpoint = &mut net.peer(who).endpoint;
        endpoint.connection(key).unwrap().request_key_update();
        // The first PING proves that the peer has the current keys. The second PING is sealed with the next ones.
        for uid in 1..3 {
            let endpoint = &mut net.peer(who).endpoint;
            endpoint.connection(key).unwrap().ping(uid);
            net.run_for(std::time::Duration::from_secs(1));
        }
    };
    update(&mut net, Who::Client, client);
    update(&mut net, Who::Server, server);
    let later = net.peer(Who::Client).endpoint.peek(client).unwrap();
    log.extend(later.packet_log().unwrap().take());
    let of = |name: &str| -> Vec<&str> {
        let each = log.iter().filter(|event| event.name == name);
        each.map(|event| event.data.as_str()).collect()
    };
    let dropped = of("transport:packet_dropped");
    for (kind, trigger) in [
        ("1RTT", "payload_decrypt_error"),
        ("handshake", "key_unavailable"),
        ("handshake", "unsupported_version"),
        ("1RTT", "unknown_connection_id"),
        ("", "duplicate"),
    ] {
        assert!(
            dropped
                .iter()
                .any(|data| data.contains(kind) && data.contains(trigger)),
            "{kind} {trigger}: {dropped:?}"
        );
    }
    let names = |name: &str| -> Vec<String> {
        let each = of(name).into_iter();
        each.map(|data| {
            let generation = match data.contains("generation") {
                true => word(data, "\"generation\":"),
                false => "",
            };
            let words = ["\"key_type\":\"", "\"trigger\":\""].map(|before| word(data, before));
            format!("{} {generation} {}", words[0], words[1])
        })
        .collect()
    };
    assert_eq!(
        names("security:key_updated"),
        [
            "server_initial_secret  tls",
            "client_initial_secret  tls",
            "server_handshake_secret  tls",
            "client_handshake_secret  tls",
            "server_1rtt_secret 0 tls",
            "client_1rtt_secret 0 tls",
            "client_1rtt_secret 1 local_update",
            "server_1rtt_secret 1 local_update",
            "client_1rtt_secret 2 remote_update",
            "server_1rtt_secret 2 remote_update",
        ]
    );
    let retired: BTreeSet<String> = names("security:key_retired").into_iter().collect();
    for name in [
        "client_initial_secret  tls",
        "server_handshake_secret  tls",
        "client_1rtt_secret 0 local_update",
    ] {
        assert!(retired.contains(name), "{name}: {retired:?}");
    }
    let started = of("connectivity:connection_started");
    assert!(
        started[0].contains("\"dst_ip\":\"10.0.0.2\""),
        "{started:?}"
    );
    assert!(!of("connectivity:connection_id_updated").is_empty());
}

const RESERVED: u32 = 0x1a2a_3a4a;

/// The data of the events with this name in the log of a connection, so far.
fn logged(net: &mut Pair, who: Who, key: ConnectionKey, name: &str) -> Vec<String> {
    let connection = net.peer(who).endpoint.peek(key).unwrap();
    let events = connection.packet_log().unwrap().take();
    let such = events.into_iter().filter(|event| event.name == name);
    such.map(|event| event.data).collect()
}

#[test]
fn a_migration_of_the_peer_is_logged() {
    let (client, server) = logging();
    let mut net = Pair::new(client, server);
    let (client, server) = net.establish();
    net.nat = Some("192.0.2.9:7".parse().unwrap());
    net.peer(Who::Client)
        .endpoint
        .connection(client)
        .unwrap()
        .ping(1);
    net.run_for(std::time::Duration::from_secs(1));
    let name = "connectivity:migration_state_updated";
    assert_eq!(
        logged(&mut net, Who::Server, server, name),
        [
            "{\"new\":\"migration_started\",\"path_remote\":{\"ip_v4\":\"192.0.2.9\",\
          \"port_v4\":7}}",
            "{\"new\":\"migration_complete\",\"path_remote\":{\"ip_v4\":\"192.0.2.9\",\
          \"port_v4\":7}}"
        ]
    );
    // The client's address changes on the way (NAT), so the client logs nothing.
    assert!(logged(&mut net, Who::Client, client, name).is_empty());
}

#[test]
fn a_version_negotiation_packet_and_the_restart_are_logged() {
    let (mut client, mut server) = logging();
    client.supported_versions = vec![RESERVED, VERSION_1];
    server.supported_versions = vec![VERSION_1];
    let mut net = Pair::new(client, server);
    let (client, server) = net.establish();
    let connection = net.peer(Who::Client).endpoint.peek(client).unwrap();
    let events = connection.packet_log().unwrap().take();
    let packet = events
        .iter()
        .find(|event| event.data.contains("\"version_negotiation\""))
        .unwrap();
    assert_eq!(packet.name, "transport:packet_received");
    // A list of frames is missing, because qvis fails on an empty one.
    assert!(!packet.data.contains("frames"));
    let names: Vec<&str> = events.iter().map(|event| &*event.name).collect();
    let at = names
        .iter()
        .position(|name| *name == "transport:version_information")
        .unwrap();
    let versions = format!("\"client_versions\":[{RESERVED},1]");
    assert!(events[at].data.contains(&versions), "{}", events[at].data);
    assert!(events[at].data.contains("\"chosen_version\":1"));
    // The connection restarts with another version and keeps its log. Its packet numbers begin at zero again.
    let received = numbered(&events[at..], "transport:packet_received");
    assert!(received.contains(&("initial".into(), 0)));
    assert!(!names.contains(&"transport:packet_dropped"), "{events:?}");
    let chosen = logged(
        &mut net,
        Who::Server,
        server,
        "transport:version_information",
    );
    assert_eq!(chosen.len(), 1);
    assert!(chosen[0].starts_with("{\"server_versions\":[1],\"client_versions\":["));
}
