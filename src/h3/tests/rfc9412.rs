//! ORIGIN frames (RFC 9412, RFC 8336) between two connections, and the handling of unusual ones. The tests of an
//! origin's grammar are beside its parser.

use crate::common::{faults::*, *};
use bytes::Bytes;
use uringcore_h3::Role::{Client, Server};
use uringcore_h3::origin::ORIGINS_LENGTH_MAX;
use uringcore_h3::{Code, Output, QueuedConnection, Settings};

const ORIGIN: u64 = 0xc;

fn naming(origins: &[&'static str]) -> Settings {
    Settings {
        origins: origins.iter().map(|&origin| Bytes::from(origin)).collect(),
        ..Settings::default()
    }
}

fn entries(origins: &[&str]) -> Vec<u8> {
    let entry = |origin: &&str| {
        let length = u16::try_from(origin.len()).unwrap().to_be_bytes();
        [&length[..], origin.as_bytes()].concat()
    };
    origins.iter().flat_map(entry).collect()
}

/// A client that has received this on the server's control stream after SETTINGS.
fn reported(payloads: &[Vec<u8>]) -> QueuedConnection {
    let mut client = ready(Client, Settings::default());
    for payload in payloads {
        let data = frame(ORIGIN, payload);
        client.handle_stream_data(peer_control(Client), data.into(), false);
    }
    client
}

fn names(connection: &QueuedConnection) -> Option<Vec<&str>> {
    connection.received_origins().map(Iterator::collect)
}

#[test]
fn section_2_a_server_names_origins_right_behind_settings() {
    let both = naming(&["https://b.example:8443", "https://a.example"]);
    for feed in [Feed::Whole, Feed::ByteByByte] {
        let mut pair = Pair::with_settings(feed, naming(&["https://c.example"]), both.clone());
        pair.pump();
        let reported = ["https://a.example", "https://b.example:8443"];
        assert_eq!(names(&pair.client), Some(reported.to_vec()));
        // A client sends none.
        assert_eq!(names(&pair.server), None);
    }
    let mut pair = Pair::new(Feed::Whole);
    pair.pump();
    assert_eq!(names(&pair.client), None);
}

#[test]
fn section_2_1_the_frame_is_lengths_and_origins() {
    let mut server = QueuedConnection::new(Server, naming(&["https://a.example"]), SERVER_UNI);
    let settings = Settings::default().pairs();
    let settings: Vec<u64> = settings
        .iter()
        .flat_map(|&(id, value)| [id, value])
        .collect();
    let wire = [
        &[0][..],
        &frame(0x4, &varints(&settings)),
        b"\x0c\x13\x00\x11https://a.example",
    ];
    let first = outputs(&mut server).into_iter().next();
    assert!(matches!(first, Some(Output::Write { data, .. }) if data == wire.concat()));
}

#[test]
fn rfc_8336_section_2_3_frames_add_up_and_an_empty_one_begins_the_set() {
    assert_eq!(names(&reported(&[vec![]])), Some(vec![]));
    let one = entries(&["https://a.example", "https://a.example:443", ""]);
    let two = entries(&["https://*.example", "https://b.example"]);
    let both = vec!["https://a.example", "https://b.example"];
    assert_eq!(names(&reported(&[one, two])), Some(both));
}

#[test]
fn rfc_9114_section_7_1_an_origin_ends_inside_the_frame() {
    for payload in [
        &b"\x00"[..],
        b"\x00\x01",
        b"\x00\x01a\x00",
        b"\xff\xffhttps://a",
    ] {
        control_frames_close(Client, &[frame(ORIGIN, payload)], Code::H3_FRAME_ERROR);
    }
}

#[test]
fn rfc_8336_section_2_2_elsewhere_it_is_ignored() {
    let origin = frame(ORIGIN, &entries(&["https://a.example"]));
    let mut client = ready(Client, Settings::default());
    client.send_headers(0, &GET, true).unwrap();
    client.handle_stream_data(0, origin.clone().into(), false);
    assert_eq!(names(&client), None);
    assert!(!client.is_closed());

    // The RFC defines no effect for a server; it is not a client.
    let mut server = ready(Server, Settings::default());
    for data in [origin, frame(ORIGIN, b"\x00")] {
        server.handle_stream_data(peer_control(Server), data.into(), false);
    }
    assert_eq!(names(&server), None);
    assert!(!server.is_closed());
}

#[test]
fn what_is_kept_of_origins_is_bounded() {
    let many = |from: u64| {
        let names: Vec<String> = (from..from + 100)
            .map(|n| format!("https://n{n}.example"))
            .collect();
        entries(&names.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let client = reported(&(0..50).map(|n| many(n * 100)).collect::<Vec<_>>());
    let kept = names(&client).unwrap();
    let length: usize = kept.iter().map(|name| name.len()).sum();
    assert!(kept.len() > 500 && length as u64 <= ORIGINS_LENGTH_MAX);

    // A frame that is too long is skipped, and the data after it is read.
    let long = vec![0; ORIGINS_LENGTH_MAX as usize + 1];
    assert_eq!(names(&reported(std::slice::from_ref(&long))), None);
    let after = reported(&[long, entries(&["https://a.example"])]);
    assert_eq!(names(&after), Some(vec!["https://a.example"]));
    // A frame of maximal length is read: here with empty entries only.
    assert_eq!(
        names(&reported(&[vec![0; ORIGINS_LENGTH_MAX as usize]])),
        Some(vec![])
    );
}
