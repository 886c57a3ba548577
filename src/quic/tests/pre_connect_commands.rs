//! Commands that are called before a connection begins.

use crate::support::{Pair, with_transport};
use bytes::Bytes;
use uringcore_quic::{
    Command, CommandError, Connection, Event, PreConnectCommands, Priority, StreamError,
};

fn send(stream_id: u64, data: &'static [u8], fin: bool) -> Command {
    Command::SendStream {
        stream_id,
        data: Bytes::from_static(data),
        fin,
    }
}

fn replay(pre_connect: PreConnectCommands, connection: &mut Connection) {
    pre_connect.replay(connection, |reason| panic!("refused: {reason}"));
}

#[test]
fn stream_ids_are_those_that_the_connection_will_use() {
    for (is_client, bidi, uni) in [(true, 0, 2), (false, 1, 3)] {
        let mut pre_connect = PreConnectCommands::new(is_client);
        assert_eq!(pre_connect.is_client(), is_client);
        assert_eq!(pre_connect.next_stream_id(false), bidi);
        assert_eq!(pre_connect.next_stream_id(true), uni);
        pre_connect.push(send(uni, b"x", false)).unwrap();
        assert_eq!(pre_connect.next_stream_id(true), uni + 4);
        // Streams may be used out of order. Using one also opens the streams below it (RFC 9000 section 3.2).
        pre_connect.push(send(bidi + 8, b"x", false)).unwrap();
        pre_connect.push(send(bidi, b"x", false)).unwrap();
        assert_eq!(pre_connect.next_stream_id(false), bidi + 12);
        assert_eq!(pre_connect.next_stream_id(true), uni + 4);
    }
}

#[test]
fn streams_of_the_peer_and_invalid_ids_are_refused() {
    let mut client = PreConnectCommands::new(true);
    let mut server = PreConnectCommands::new(false);
    let refusal = |pre_connect: &mut PreConnectCommands, stream_id| match pre_connect
        .push(send(stream_id, b"x", true))
    {
        Err(CommandError::Stream {
            stream_id: id,
            error,
        }) if id == stream_id => Some(error),
        _ => None,
    };
    for id in [0, 2] {
        assert_eq!(refusal(&mut server, id), Some(StreamError::Unknown));
        assert_eq!(refusal(&mut client, id + 1), Some(StreamError::Unknown));
    }
    for id in [1 << 62, u64::MAX - 3] {
        assert_eq!(refusal(&mut client, id), Some(StreamError::OutOfRange));
    }
    assert_eq!(client.next_stream_id(false), 0);
    assert_eq!(client.queued_bytes(1 << 62), 0, "not kept");
}

#[test]
fn queued_bytes_of_a_stream_are_counted() {
    let mut pre_connect = PreConnectCommands::new(true);
    pre_connect.push(send(0, b"four", false)).unwrap();
    pre_connect.push(send(4, b"others", false)).unwrap();
    pre_connect.push(send(0, b"and six", true)).unwrap();
    pre_connect.push(Command::Ping { uid: 1 }).unwrap();
    assert_eq!(pre_connect.queued_bytes(0), 11);
    assert_eq!(pre_connect.queued_bytes(4), 6);
    assert_eq!(pre_connect.queued_bytes(8), 0);
}

#[test]
fn commands_run_in_order() {
    let (client, server) = with_transport(|transport| {
        transport.datagram_recv_bytes = Some(1 << 20);
    });
    let mut pair = Pair::new(client, server);
    let mut pre_connect = PreConnectCommands::new(true);
    for command in [
        send(0, b"one ", false),
        Command::Priority {
            stream_id: 0,
            priority: Priority::new(0, false).unwrap(),
        },
        send(4, b"to be reset", false),
        Command::SendDatagram {
            data: Bytes::from_static(b"a datagram"),
        },
        send(0, b"two", true),
        Command::StopStream {
            stream_id: 0,
            error_code: 7,
        },
        Command::ResetStream {
            stream_id: 4,
            error_code: 9,
        },
        Command::Ping { uid: 23 },
    ] {
        pre_connect.push(command).unwrap();
    }
    let key = pair.connect();
    let connection = pair.client.endpoint.connection(key).unwrap();
    replay(pre_connect, connection);
    assert_eq!(connection.next_stream_id(false), 8);
    pair.run_until("all of it", |pair| {
        pair.client
            .has(key, |event| *event == Event::PingAcknowledged { uid: 23 })
            && pair.server.events.iter().any(
                |(_, event)| matches!(event, Event::Datagram { data, .. } if data == "a datagram"),
            )
            && (pair.server.streams)
                .iter()
                .any(|((_, id), received)| *id == 0 && received.fin)
    });
    let (_, received) = (pair.server.streams.iter())
        .find(|((_, id), _)| *id == 0)
        .expect("the stream");
    assert_eq!(received.data, b"one two");
    assert!(
        (pair.server.streams.keys()).all(|(_, id)| *id == 0),
        "nothing of the stream that was reset before it was sent"
    );
}

#[test]
fn refused_commands_are_reported_and_the_others_run() {
    let mut pair = Pair::default_pair();
    let mut pre_connect = PreConnectCommands::new(true);
    pre_connect.push(send(0, b"", true)).unwrap();
    pre_connect.push(send(0, b"after the end", false)).unwrap();
    pre_connect.push(send(4, b"x", false)).unwrap();
    let key = pair.connect();
    let connection = pair.client.endpoint.connection(key).unwrap();
    let mut refused = Vec::new();
    pre_connect.replay(connection, |reason| refused.push(reason));
    assert_eq!(refused, ["stream 0: the stream is already finished"]);
    assert_eq!(connection.send_queue_bytes(4), 1);
}
