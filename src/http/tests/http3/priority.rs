//! Priorities of responses (RFC 9218), as the client and the application set them.

use super::*;
use crate::h3_common::{frame, varints};

const PRIORITY_UPDATE: u64 = 0xf0700;
const SIZE: usize = 400_000;

type Fields<'a> = &'a [(&'a [u8], &'a [u8])];

impl Site {
    pub(super) fn ask_with(&mut self, stream_id: u64, priority: Option<&str>) {
        let mut lines = GET.to_vec();
        lines.extend(priority.map(|value| ("priority", value)));
        self.ask(stream_id, &lines, true);
    }

    /// Sends a PRIORITY_UPDATE on the client's control stream.
    fn update(&mut self, stream_id: u64, value: &str) {
        let payload = [&varints(&[stream_id])[..], value.as_bytes()].concat();
        self.raw(2, &frame(PRIORITY_UPDATE, &payload), false);
    }

    /// Sends large responses together, in this order, and waits until all have arrived.
    fn respond_to(&mut self, streams: &[(u64, Fields<'_>)]) {
        for &(stream_id, fields) in streams {
            let content = Bytes::from(vec![0; SIZE]);
            self.command(|http, quic, now| {
                http.respond(quic, stream_id, fields, content, true, now)
            })
            .unwrap();
        }
        for _ in 0..200 {
            self.wait(Duration::from_millis(20));
        }
    }

    /// The number of bytes of `other` that had arrived when `stream_id` was complete.
    fn received_before(&self, stream_id: u64, other: u64) -> usize {
        let mut received = 0;
        for event in &self.heard {
            match event {
                h3::Event::Data {
                    stream_id: id,
                    fin: true,
                    ..
                } if *id == stream_id => return received,
                h3::Event::Data {
                    stream_id: id,
                    data,
                    ..
                } if *id == other => received += data.len(),
                _ => {}
            }
        }
        panic!("stream {stream_id} did not end: {received} bytes of the other")
    }
}

fn slow() -> Site {
    let mut site = Site::new(Limits::default());
    site.pair.link.rate = Some(1_000_000);
    site.pair.link.queue = 1 << 20;
    site
}

/// At most this many bytes of a response were in flight before the other response began.
const FEW: usize = SIZE / 4;

#[test]
fn the_urgent_response_goes_first() {
    let mut site = slow();
    site.ask_with(0, Some("u=7"));
    site.ask_with(4, Some("u=0"));
    site.respond_to(&[(0, OK), (4, OK)]);
    assert!(site.received_before(4, 0) < FEW);
}

#[test]
fn responses_of_one_urgency_go_one_after_the_other_unless_they_are_incremental() {
    for (priority, shares) in [("u=3", false), ("u=3, i", true)] {
        let mut site = slow();
        site.ask_with(0, Some(priority));
        site.ask_with(4, Some(priority));
        site.respond_to(&[(4, OK), (0, OK)]);
        let received = site.received_before(0, 4);
        assert_eq!(received > SIZE / 2, shares, "{priority}: {received}");
        assert!(shares || received < FEW, "{received}");
    }
}

#[test]
fn responses_share_the_connection_without_priority_signals() {
    let mut site = slow();
    site.ask_with(0, None);
    site.ask_with(4, None);
    site.respond_to(&[(0, OK), (4, OK)]);
    assert!(site.received_before(0, 4) > SIZE / 2);
}

#[test]
fn after_one_signal_requests_without_a_signal_have_the_default_priority() {
    let mut site = slow();
    site.ask_with(0, Some(""));
    site.respond(0, b"x", true).unwrap();
    site.done(0);
    site.ask_with(4, None);
    site.ask_with(8, None);
    site.respond_to(&[(8, OK), (4, OK)]);
    assert!(site.received_before(4, 8) < FEW);
}

#[test]
fn an_update_counts_before_its_request_and_during_it() {
    for is_before in [true, false] {
        let mut site = slow();
        if is_before {
            site.update(4, "u=1");
        }
        site.ask_with(0, None);
        site.ask_with(4, Some("u=6"));
        if !is_before {
            site.update(4, "u=1");
        }
        site.respond_to(&[(0, OK), (4, OK)]);
        assert!(site.received_before(4, 0) < FEW);
    }
}

#[test]
fn section_8_the_application_overrides_its_parameters_and_an_update_the_others() {
    let urgent: Lines<'_> = &[(":status", "200"), ("priority", "u=0")];
    let urgent: Vec<_> = urgent
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
        .collect();
    let mut site = slow();
    site.ask_with(0, Some("u=1"));
    site.ask_with(4, Some("u=7"));
    site.respond_to(&[(0, OK), (4, &urgent)]);
    assert!(site.received_before(4, 0) < FEW);

    let mut site = slow();
    site.ask_with(0, Some("u=1"));
    site.ask_with(4, Some("u=2"));
    site.command(|http, quic, now| http.send_headers(quic, 4, &urgent, false, now))
        .unwrap();
    site.update(4, "u=7");
    let content = Bytes::from(vec![0; SIZE]);
    site.command(|http, quic, now| http.send_data(quic, 4, content, true, now))
        .unwrap();
    site.respond_to(&[(0, OK)]);
    assert!(site.received_before(4, 0) < FEW);
}

#[test]
fn updates_for_future_streams_are_bounded_and_a_flood_of_them_closes_the_connection() {
    let mut site = Site::new(Limits::default());
    for stream in 0..1000 {
        site.update_now(4 * stream, "u=1");
    }
    site.run();
    site.ask_with(0, None);
    site.respond(0, b"x", true).unwrap();
    site.done(0);
    site.run();
    assert_eq!(requests(&site.take_events()), [0]);
    for round in 0..8 {
        for stream in 1..1000 {
            site.update_now(4 * stream, &format!("u={round}"));
        }
        site.run();
    }
    assert_eq!(site.closed_with(), Some(Code::H3_EXCESSIVE_LOAD.0));
}

impl Site {
    fn update_now(&mut self, stream_id: u64, value: &str) {
        let payload = [&varints(&[stream_id])[..], value.as_bytes()].concat();
        if let Some(quic) = self.pair.client.endpoint.connection(self.client) {
            let said = frame(PRIORITY_UPDATE, &payload).into();
            // `send_stream` fails after the server has closed the connection.
            let _ = quic.send_stream(2, said, false);
        }
    }
}

#[test]
fn a_response_behind_more_urgent_ones_is_not_abandoned() {
    let limits = Limits {
        send_timeout: Duration::from_secs(2),
        ..Limits::default()
    };
    let mut site = Site::new(limits);
    site.pair.link.rate = Some(100_000);
    site.pair.link.queue = 1 << 20;
    site.ask_with(0, Some("u=0"));
    site.ask_with(4, Some("u=7"));
    site.ask_with(8, Some("u=7"));
    // The most urgent response takes three times as long as each of the others.
    for (stream_id, size) in [(0, 600_000), (4, 200_000), (8, 200_000)] {
        site.respond(stream_id, &vec![0; size], true).unwrap();
    }
    // The host has finished one response, and may send more of the other.
    site.done(8);
    for _ in 0..40 {
        site.tick(Duration::from_millis(100));
    }
    assert_eq!(site.resets(), []);
    assert!(site.received_before(4, 0) >= 590_000);
    assert!(site.received_before(8, 0) >= 590_000);
}

#[test]
fn unread_urgent_responses_do_not_hold_back_others() {
    let limits = Limits {
        send_timeout: Duration::from_secs(2),
        ..Limits::default()
    };
    let mut site = Site::with(limits, |transport| transport.max_stream_data = 10_000);
    let quic = site.pair.client.endpoint.connection(site.client).unwrap();
    for stream_id in [0, 4] {
        quic.pause_stream(stream_id);
    }
    site.ask_with(0, Some("u=0"));
    site.ask_with(4, Some("u=7"));
    for stream_id in [0, 4] {
        site.respond(stream_id, &[0; 100_000], true).unwrap();
        site.done(stream_id);
    }
    for _ in 0..6 {
        site.tick(Duration::from_millis(100));
    }
    assert!(site.http.is_drained());
}
