//! Clients that disconnect while the host handles their requests. Later sends of the host fail with `Gone`, which is
//! not an error of the host.

use std::time::Duration;

use bytes::Bytes;
use uringcore_h3::Code;
use uringcore_http::http3::{Event, Limits};
use uringcore_http::response_errors::SendError;

use super::{GET, OK, POST, Site, aborted, requests};
use crate::h3_common::headers_frame;

const CANCELLED: u64 = Code::H3_REQUEST_CANCELLED.0;

/// The client sends STOP_SENDING for these responses, all in one packet.
fn stop(site: &mut Site, streams: &[u64]) {
    let quic = site.pair.client.endpoint.connection(site.client).unwrap();
    for &stream_id in streams {
        quic.stop_stream(stream_id, CANCELLED).unwrap();
    }
    // In this time the server does not forget a connection that it has closed.
    site.wait(Duration::from_millis(20));
}

/// Makes a server that allows its client this number of early resets.
fn site(early_resets: u32) -> Site {
    Site::new(Limits {
        early_resets,
        early_resets_per_second: 0.001,
        ..Limits::default()
    })
}

#[test]
fn responses_to_a_client_that_was_closed_for_its_resets_are_refused_as_gone() {
    for begun in [false, true] {
        let mut site = site(2);
        let streams: Vec<u64> = (0..5).map(|index| index * 4).collect();
        for &stream_id in &streams {
            site.ask(stream_id, GET, true);
            if begun {
                site.respond(stream_id, b"x", false).unwrap();
            }
        }
        stop(&mut site, &streams);
        assert!(site.http.is_closed_for_abuse());
        // The two allowed resets, and the one that closed the connection. No later reset was processed.
        assert_eq!(aborted(&site.take_events()).len(), 3);
        for &stream_id in &streams {
            let content = Bytes::from_static(b"content");
            let sent = site.command(|http, quic, now| {
                [
                    http.respond(quic, stream_id, OK, content.clone(), true, now),
                    http.send_headers(quic, stream_id, OK, false, now),
                    http.send_data(quic, stream_id, content, true, now),
                    http.send_datagram(quic, stream_id, b"datagram", now)
                        .map(drop),
                ]
            });
            assert_eq!(sent, [const { Err(SendError::Gone) }; 4], "{stream_id}");
            assert!(!site.http.is_waited_for(stream_id));
            site.done(stream_id);
        }
        assert_eq!(site.http.open_requests(), 0);
        site.run();
        assert_eq!(site.closed_with(), Some(Code::H3_EXCESSIVE_LOAD.0));
    }
}

#[test]
fn requests_after_the_reset_that_closed_the_connection_are_not_reported() {
    let mut site = site(1);
    site.ask(0, GET, true);
    site.ask(4, GET, true);
    let quic = site.pair.client.endpoint.connection(site.client).unwrap();
    quic.stop_stream(0, CANCELLED).unwrap();
    quic.stop_stream(4, CANCELLED).unwrap();
    for stream_id in [8, 12, 16] {
        site.browser.send_headers(stream_id, GET, true).unwrap();
    }
    site.run();
    assert!(site.http.is_closed_for_abuse());
    let reported = site.take_events();
    let reported = requests(&reported);
    let waited_for = reported.iter().filter(|&&id| site.http.is_waited_for(id));
    assert_eq!(waited_for.count(), 0);
}

#[test]
fn a_request_stopped_before_its_head_is_complete_is_not_reported() {
    let mut site = site(10);
    let head = headers_frame(POST);
    let (first, rest) = head.split_at(head.len() / 2);
    site.raw(0, first, false);
    stop(&mut site, &[0]);
    let quic = site.pair.client.endpoint.connection(site.client).unwrap();
    // The rest of the request may be in flight when the server stops reading.
    let _ = quic.send_stream(0, Bytes::copy_from_slice(rest), true);
    site.run();
    assert_eq!(requests(&site.take_events()), []);
    assert!(site.http.is_drained());
    assert_eq!(site.http.open_requests(), 0);
    // The stopped request counts as an early reset, and the connection continues.
    site.ask(4, GET, true);
    assert_eq!(requests(&site.take_events()), [4]);
    site.respond(4, b"x", true).unwrap();
}

#[test]
fn sends_in_a_wrong_order_are_the_hosts_error_while_the_client_is_connected() {
    let mut site = site(10);
    site.ask(0, GET, true);
    let content = Bytes::from_static(b"content before a head");
    let sent = site.command(|http, quic, now| http.send_data(quic, 0, content, false, now));
    assert!(matches!(sent, Err(SendError::Invalid(_))), "{sent:?}");
    site.respond(0, b"x", true).unwrap();
}

#[test]
fn responses_that_wait_for_connection_credit_continue_in_order_unless_they_ended() {
    let mut site = Site::with(Limits::default(), |transport| {
        transport.max_stream_data = 20_000;
    });
    let streams: Vec<u64> = (0..40).map(|index| index * 4).collect();
    for &stream_id in &streams {
        site.ask(stream_id, GET, true);
        let quic = site.pair.client.endpoint.connection(site.client).unwrap();
        quic.pause_stream(stream_id);
    }
    let mut held = Vec::new();
    // The highest stream numbers come first, so that the order of waiting differs from that of the numbers.
    for &stream_id in streams.iter().rev() {
        // Together, the responses that are held up queue fewer bytes than the limit of the connection.
        let size = if held.is_empty() { 200_000 } else { 100_000 };
        site.respond(stream_id, &vec![0; size], false).unwrap();
        let is_held_up =
            |site: &mut Site| site.command(|http, quic, now| http.is_held_up(quic, stream_id, now));
        if is_held_up(&mut site) {
            // A response that has to wait again keeps its position among the waiting ones.
            assert!(is_held_up(&mut site));
            held.push(stream_id);
        }
    }
    assert!(held.len() > 10);
    site.take_events();
    let over = held.remove(1);
    site.command(|http, quic, now| http.cancel(quic, over, Code::H3_INTERNAL_ERROR, now));
    site.done(over);
    // The client reads the responses that were not held up. That makes room in the connection's queue for the
    // held-up ones, of which it reads nothing.
    for stream_id in streams.iter().filter(|&id| !held.contains(id)) {
        let quic = site.pair.client.endpoint.connection(site.client).unwrap();
        quic.resume_stream(*stream_id);
    }
    site.run();
    let reported = site.take_events();
    let woken = reported.iter().filter_map(|event| match event {
        Event::Writable { stream_id } => Some(*stream_id),
        _ => None,
    });
    assert_eq!(woken.collect::<Vec<_>>(), held);
}
