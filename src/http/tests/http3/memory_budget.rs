//! Requests while the process exceeds its memory budget. A client whose address holds a significant part of the budget
//! gets no further requests served; other clients do.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use uringcore_h3::{self as h3, Code, Event, HeadersKind};
use uringcore_http::http3::{Connection, Limits};
use uringcore_http::response_errors::SendError;
use uringcore_limits::memory_budget::{Budget, Charge};
use uringcore_quic::{self as quic, ClientSetup, EndpointSettings};

use super::{GET, POST, Site, requests};
use crate::h3_common::headers_frame;
use crate::support::sessions::{early_server, newest_server, send, ticket, with_ticket};
use crate::support::{Pair, Who, client_settings};

const MIB: usize = 1 << 20;

fn site() -> (Site, Arc<Budget>) {
    let budget = Budget::new(4 * MIB);
    let settings = EndpointSettings {
        budget: Some(budget.clone()),
        ..EndpointSettings::default()
    };
    (Site::at(settings), budget)
}

/// Makes a charge for bytes that the server keeps for its client besides stream data.
fn charge(site: &mut Site) -> Charge {
    site.command(|_, quic, _| Charge::new(quic.queued()))
}

/// Sends a request that arrives while `size` bytes are charged to its client. Nothing is shed before the request is
/// handled.
fn ask_while(site: &mut Site, charge: &mut Charge, stream_id: u64, size: usize) {
    site.browser.send_headers(stream_id, GET, true).unwrap();
    site.perform();
    site.pair.run_for(Duration::from_millis(50));
    charge.set(size);
    settle(site);
    site.handle();
    charge.set(0);
    site.run();
}

/// Lets the endpoint count the bytes of the connection, before it sheds any.
fn settle(site: &mut Site) {
    site.command(|_, _, _| {});
    let now = site.pair.now;
    // The charge takes effect when the endpoint handles a datagram, so it gets one that it drops.
    let endpoint = &mut site.pair.server.endpoint;
    endpoint.poll_transmit(now, &mut Vec::new());
}

/// The streams on which the client has received the beginning of a response.
fn responses(site: &Site) -> Vec<u64> {
    let response = |event: &Event| match event {
        Event::Headers {
            stream_id,
            kind: HeadersKind::Response,
            ..
        } => Some(*stream_id),
        _ => None,
    };
    site.heard.iter().filter_map(response).collect()
}

#[test]
fn over_the_budget_a_request_of_an_address_that_holds_much_is_rejected() {
    let (mut site, budget) = site();
    let mut charge = charge(&mut site);
    ask_while(&mut site, &mut charge, 0, 5 * MIB);
    assert_eq!(requests(&site.take_events()), []);
    assert_eq!(site.resets(), [(0, Code::H3_REQUEST_REJECTED.0)]);
    assert_eq!(site.http.open_requests(), 0);
    // The next request is served, because now only the connection itself is charged.
    assert!(budget.held() < MIB);
    site.ask(4, GET, true);
    assert_eq!(requests(&site.take_events()), [4]);
    site.respond(4, b"x", true).unwrap();
    site.run();
    assert_eq!(responses(&site), [4]);
}

#[test]
fn over_the_budget_a_response_to_an_address_that_holds_much_does_not_begin() {
    let (mut site, _) = site();
    let mut charge = charge(&mut site);
    site.ask(0, GET, true);
    site.ask(4, GET, true);
    assert_eq!(requests(&site.take_events()), [0, 4]);
    charge.set(5 * MIB);
    settle(&mut site);
    assert_eq!(site.respond(0, b"x", true), Err(SendError::Gone));
    charge.set(0);
    settle(&mut site);
    site.respond(4, b"x", true).unwrap();
    site.run();
    assert_eq!(site.resets(), [(0, Code::H3_EXCESSIVE_LOAD.0)]);
    assert_eq!(responses(&site), [4]);
}

#[test]
fn over_the_budget_a_client_of_another_address_is_served() {
    let (mut site, budget) = site();
    let mut charge = charge(&mut site);
    let mut other = budget.enter(IpAddr::from([192, 0, 2, 1]));
    other.set(5 * MIB);
    // The client holds so little that its requests are still served.
    ask_while(&mut site, &mut charge, 0, MIB / 32);
    assert!(budget.is_exceeded());
    assert_eq!(requests(&site.take_events()), [0]);
    charge.set(MIB / 32);
    site.respond(0, b"x", true).unwrap();
    site.run();
    assert_eq!((responses(&site), site.resets()), (vec![0], vec![]));
    assert_eq!(other.held(), 5 * MIB);
}

#[test]
fn heads_that_wait_for_the_handshake_are_charged_until_it_is_complete() {
    let mut pair = Pair::new(client_settings(), early_server());
    let ticket = ticket(&mut pair);
    pair.client_setup = ClientSetup::new(&with_ticket(&ticket)).unwrap();
    let client = pair.connect();
    let large = "x".repeat(300);
    let lines: Vec<_> = POST.iter().copied().chain([("x-large", &*large)]).collect();
    for stream_id in [0, 4] {
        send(
            &mut pair,
            Who::Client,
            client,
            stream_id,
            &headers_frame(&lines),
            false,
        );
    }
    let before = pair.server.events.len();
    pair.run_until("the requests", |pair| {
        let is_data = |event: &quic::Event| matches!(event, quic::Event::StreamData { .. });
        let events = pair.server.events[before..].iter();
        events.filter(|(_, event)| is_data(event)).count() == 2
    });
    let (server, now) = (newest_server(&pair), pair.now);
    let events = pair.server.events.split_off(before);
    let quic = pair.server.endpoint.connection(server).unwrap();
    assert!(quic.is_handshaking());
    let mut http = Connection::new(quic, h3::Settings::default(), Limits::default(), now);
    let about_streams = events.into_iter().filter(|(_, it)| it.is_about_streams());
    about_streams.for_each(|(_, event)| http.handle(quic, event, now));
    assert_eq!(
        (http.open_requests(), http.poll_event().is_none()),
        (2, true)
    );
    let held = quic.queued().bytes();
    assert!((600..2_000).contains(&held), "{held}");
    pair.run_for(Duration::from_secs(1));
    let quic = pair.server.endpoint.connection(server).unwrap();
    http.handle(
        quic,
        quic::Event::ConnectionWritable { queued_bytes: 0 },
        now,
    );
    let reported: Vec<_> = std::iter::from_fn(|| http.poll_event()).collect();
    assert_eq!(
        (requests(&reported), quic.queued().bytes()),
        (vec![0, 4], 0)
    );
}
