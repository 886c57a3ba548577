//! A client holds its first flight back until it has data to send with the ClientHello.

use std::time::Duration;

use crate::support::{Pair, Who, client_settings, server_settings};
use bytes::Bytes;
use uringcore_quic::{ClientSettings, ClientSetup, Event, ServerSettings, tls::SessionTicket};

/// A ticket that allows 0-RTT data, from an earlier connection.
fn ticket(pair: &mut Pair) -> SessionTicket {
    pair.establish();
    pair.run_for(Duration::from_secs(1));
    let found = pair
        .client
        .events
        .iter()
        .find_map(|(_, event)| match event {
            Event::SessionTicket(ticket) => Some(SessionTicket::clone(ticket)),
            _ => None,
        });
    found.expect("the server gave a ticket")
}

/// The types of the packets in a datagram that has an Initial packet and perhaps a 0-RTT packet after it. The type is
/// in bits 4 and 5 of a long header (RFC 9000 section 17.2).
fn packets_in(datagram: &[u8]) -> Vec<&'static str> {
    let mut rest = datagram;
    let mut found = Vec::new();
    while let Some((first, after)) = rest.split_first() {
        // The fixed bit is not checked, because it may be greased (RFC 9287).
        if first & 0x80 == 0 {
            break;
        }
        let kind = (first >> 4) & 3;
        let mut at = &after[4..];
        for _ in 0..2 {
            at = &at[1 + usize::from(at[0])..];
        }
        let mut varint = || {
            let length = 1 << (at[0] >> 6);
            let value = at[..length]
                .iter()
                .fold(0usize, |value, byte| value << 8 | usize::from(*byte));
            at = &at[length..];
            value & !(3 << (8 * length - 2))
        };
        if kind == 0 {
            let token = varint();
            assert_eq!(token, 0, "no token was given");
        }
        let length = varint();
        found.push(["initial", "0rtt", "handshake", "retry"][usize::from(kind)]);
        rest = &at[length..];
    }
    found
}

#[test]
fn a_held_client_sends_its_client_hello_with_0rtt_data() {
    let server = ServerSettings {
        early_data: true,
        ..server_settings()
    };
    let mut pair = Pair::new(client_settings(), server);
    let resuming = ClientSettings {
        session_ticket: Some(ticket(&mut pair)),
        ..client_settings()
    };
    pair.client_setup = ClientSetup::new(&resuming).unwrap();

    let key = pair.connect();
    pair.client.endpoint.connection(key).unwrap().hold();
    let sent = pair.client.sent;
    // Neither time nor other commands release the first flight.
    pair.run_for(Duration::from_secs(2));
    let connection = pair.client.endpoint.connection(key).unwrap();
    assert_eq!(connection.next_stream_id(false), 0);
    connection
        .send_stream(0, Bytes::from_static(b"early"), true)
        .unwrap();
    connection.ping(7);
    assert_eq!(connection.send_queue_bytes(0), 5);
    pair.run_for(Duration::from_secs(2));
    assert_eq!(pair.client.sent, sent, "held");

    pair.record = true;
    pair.client.endpoint.connection(key).unwrap().release();
    pair.exchange();
    let first = pair.recorded.iter().map(|(who, data)| {
        assert_eq!(*who, Who::Client, "no answer of the server has arrived");
        packets_in(data)
    });
    assert_eq!(first.collect::<Vec<_>>(), [["initial", "0rtt"]]);

    pair.run_for(Duration::from_secs(1));
    let accepted = |event: &Event| {
        matches!(
            event,
            Event::HandshakeCompleted {
                early_data_accepted: true,
                ..
            }
        )
    };
    assert!(pair.client.has(key, accepted));
    let mut newest = pair.server.events.iter().rev();
    let (server, _) = *newest.find(|(_, event)| *event == Event::Accepted).unwrap();
    assert_eq!(pair.server.received(server, 0), b"early");
    assert!(
        pair.client
            .has(key, |event| *event == Event::PingAcknowledged { uid: 7 })
    );
    // A connection that has sent something cannot be held back any more.
    pair.client.endpoint.connection(key).unwrap().hold();
    let connection = pair.client.endpoint.connection(key).unwrap();
    connection
        .send_stream(4, Bytes::from_static(b"later"), true)
        .unwrap();
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.server.received(server, 4), b"later");
}

#[test]
fn a_held_connection_that_is_closed_sends_nothing() {
    let mut pair = Pair::default_pair();
    let kept = pair.connect();
    pair.client.endpoint.connection(kept).unwrap().hold();
    let closed = pair.connect();
    let connection = pair.client.endpoint.connection(closed).unwrap();
    connection.hold();
    connection
        .send_stream(0, Bytes::from_static(b"nothing"), false)
        .unwrap();
    pair.close(Who::Client, closed, 9, None, b"no need");
    // The connection is released after its close, and closed once more.
    pair.client.endpoint.connection(closed).unwrap().release();
    pair.close(Who::Client, closed, 10, None, b"");
    pair.exchange();
    let (code, _, reason, _) = pair.client.closed(closed).expect("one Closed");
    assert_eq!((code, reason.as_str()), (9, "no need"));
    assert!(pair.client.endpoint.connection(closed).is_none());
    assert_eq!(pair.client.endpoint.len(), 1);

    // When the endpoint closes all connections, it waits for no peer.
    let now = pair.now;
    pair.client.endpoint.close_all(now, 0, b"");
    assert!(pair.client.endpoint.may_end());
    pair.exchange();
    assert!(pair.client.closed(kept).is_some());
    assert!(pair.client.endpoint.is_idle());
    assert_eq!((pair.client.sent, pair.server.events.len()), (0, 0));
}
