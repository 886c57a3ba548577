//! Requests while the process is over its memory budget: a client whose address holds a part of it gets no further
//! ones served, and others do.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use uringcore_proto::budget::{Budget, Charge};
use uringcore_proto::h3::{Code, Event, HeadersKind};
use uringcore_proto::http::SendError;
use uringcore_proto::quic::EndpointSettings;

use super::{GET, Site, requests};

const MIB: usize = 1 << 20;

fn site() -> (Site, Arc<Budget>) {
    let budget = Budget::new(4 * MIB);
    let settings = EndpointSettings {
        budget: Some(budget.clone()),
        ..EndpointSettings::default()
    };
    (Site::at(settings), budget)
}

/// What the server keeps for the site's client beside its streams.
fn charge(site: &mut Site) -> Charge {
    site.command(|_, quic, _| Charge::new(quic.queued()))
}

/// A request comes to the server while so much is kept for its client; nothing is shed before it is looked at.
fn ask_while(site: &mut Site, charge: &mut Charge, stream_id: u64, size: usize) {
    site.browser.send_headers(stream_id, GET, true).unwrap();
    site.perform();
    site.pair.run_for(Duration::from_millis(50));
    charge.set(size);
    site.handle();
    charge.set(0);
    site.run();
}

/// The streams on which the client has got the beginning of a response.
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
    assert_eq!(requests(&site.take_told()), []);
    assert_eq!(site.resets(), [(0, Code::H3_REQUEST_REJECTED.0)]);
    assert_eq!(site.http.open_requests(), 0);
    // The next is served: nothing is kept any more.
    assert_eq!(budget.held(), 0);
    site.ask(4, GET, true);
    assert_eq!(requests(&site.take_told()), [4]);
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
    assert_eq!(requests(&site.take_told()), [0, 4]);
    charge.set(5 * MIB);
    assert_eq!(site.respond(0, b"x", true), Err(SendError::Gone));
    charge.set(0);
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
    // Less than a part of the budget that matters.
    ask_while(&mut site, &mut charge, 0, MIB / 32);
    assert!(budget.is_exceeded());
    assert_eq!(requests(&site.take_told()), [0]);
    charge.set(MIB / 32);
    site.respond(0, b"x", true).unwrap();
    site.run();
    assert_eq!((responses(&site), site.resets()), (vec![0], vec![]));
    assert_eq!(other.held(), 5 * MIB);
}
