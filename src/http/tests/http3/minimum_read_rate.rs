//! The minimum rate at which clients must read responses that wait for them.

use std::time::Duration;

use uringcore_h3::Code;
use uringcore_http::http3::{Event, Limits};
use uringcore_http::response_errors::TooSlow;

use super::{GET, OK, Site, aborted};

const LITTLE: Event = Event::TooSlow(TooSlow::Little);
const SECOND: Duration = Duration::from_secs(1);

fn limits() -> Limits {
    Limits {
        send_rate: 240,
        send_rate_grace: Duration::from_secs(20),
        ..Limits::default()
    }
}

/// A server and a client that grants `window` bytes of credit for a response.
fn site(limits: Limits, window: u64) -> Site {
    Site::with(limits, move |transport| {
        transport.idle_timeout = Duration::ZERO;
        transport.max_stream_data = window;
    })
}

impl Site {
    /// Begins a response that waits for its client and has more data to send.
    fn begin_long(&mut self, stream_id: u64) {
        self.ask(stream_id, GET, true);
        self.client_pauses(stream_id, true);
        self.respond(stream_id, &vec![0; 1 << 20], false).unwrap();
        assert!(self.command(|http, quic, now| http.is_held_up(quic, stream_id, now)));
    }

    fn client_pauses(&mut self, stream_id: u64, pauses: bool) {
        let quic = self.pair.client.endpoint.connection(self.client).unwrap();
        match pauses {
            true => quic.pause_stream(stream_id),
            false => quic.resume_stream(stream_id),
        }
    }

    /// The client reads about `window` bytes of a response.
    fn take_once(&mut self, stream_id: u64) {
        self.client_pauses(stream_id, false);
        self.wait(Duration::from_millis(12));
        self.client_pauses(stream_id, true);
    }

    fn queued(&mut self, stream_id: u64) -> usize {
        let quic = self.pair.server.endpoint.connection(self.server);
        quic.map_or(0, |quic| quic.send_queue_bytes(stream_id))
    }

    /// Runs for `seconds`; in each second the client reads about `window` bytes. Stops early if a response is
    /// abandoned. Returns the number of seconds.
    fn trickle(&mut self, stream_id: u64, seconds: u32) -> u32 {
        for passed in 0..seconds {
            if self.reported.contains(&LITTLE) {
                return passed;
            }
            self.take_once(stream_id);
            // `tick` then advances by another half second, in which the effects of the first are seen.
            self.tick(SECOND / 2);
        }
        seconds
    }
}

#[test]
fn a_client_that_reads_byte_by_byte_loses_its_response() {
    for is_whole in [false, true] {
        let mut site = site(limits(), 50);
        site.begin_long(0);
        if is_whole {
            site.command(|http, quic, now| http.send_data(quic, 0, "end".into(), true, now))
                .unwrap();
            site.done(0);
        }
        let seconds = site.trickle(0, 200);
        assert!((20..80).contains(&seconds), "{seconds}");
        site.run();
        let reported = site.take_events();
        assert_eq!(reported.iter().filter(|&event| *event == LITTLE).count(), 1);
        assert_eq!(aborted(&reported), if is_whole { vec![] } else { vec![0] });
        let cancelled = [(0, Code::H3_REQUEST_CANCELLED.0)];
        assert_eq!(site.resets(), cancelled);
        site.done(0);
        site.run();
        assert!(site.http.is_drained());
    }
}

#[test]
fn several_whole_responses_that_are_not_read_leave_one_drained_connection() {
    let mut site = site(limits(), 50);
    for stream_id in [0, 4, 8] {
        site.begin_long(stream_id);
        site.command(|http, quic, now| http.send_data(quic, stream_id, "end".into(), true, now))
            .unwrap();
        site.done(stream_id);
    }
    site.take_events();
    while !site
        .reported
        .iter()
        .any(|event| matches!(event, Event::TooSlow(_)))
    {
        site.tick(SECOND * 5);
    }
    site.run();
    let reported = site.take_events();
    let drained = reported.iter().filter(|&event| *event == Event::Drained);
    assert_eq!(drained.count(), 1);
}

#[test]
fn a_response_is_kept_at_the_minimum_rate_and_without_a_minimum_rate() {
    for (rate, window) in [(240, 2_000), (0, 50)] {
        let mut site = site(
            Limits {
                send_rate: rate,
                ..limits()
            },
            window,
        );
        site.begin_long(0);
        let before = site.queued(0);
        assert_eq!(site.trickle(0, 300), 300);
        assert!(site.queued(0) < before);
    }
}

#[test]
fn a_client_that_pauses_and_continues_keeps_its_response() {
    let mut site = site(limits(), 2_000);
    site.begin_long(0);
    for _ in 0..3 {
        site.trickle(0, 30);
        // The pause is longer than the grace period and shorter than the time-out.
        for _ in 0..60 {
            site.tick(SECOND * 5);
        }
    }
    assert_eq!(site.trickle(0, 30), 30);
    assert!(!site.reported.contains(&LITTLE));
}

#[test]
fn a_client_that_reads_a_byte_before_each_time_out_loses_its_response() {
    let mut site = site(limits(), 50);
    site.begin_long(0);
    for _ in 0..3 {
        site.take_once(0);
        for _ in 0..100 {
            site.tick(SECOND * 5);
        }
    }
    assert!(site.reported.contains(&LITTLE));
}

#[test]
fn responses_on_a_slow_link_reach_the_rate_together() {
    let mut site = site(limits(), 1 << 20);
    site.pair.link.rate = Some(3_000);
    site.pair.link.queue = 20_000;
    let streams: Vec<u64> = (0..20).map(|number| number * 4).collect();
    for &stream_id in &streams {
        site.ask(stream_id, GET, true);
    }
    for &stream_id in &streams {
        site.respond(stream_id, &vec![0; 100_000], true).unwrap();
        site.done(stream_id);
    }
    let queued = |site: &mut Site| -> usize {
        streams
            .iter()
            .map(|&stream_id| site.queued(stream_id))
            .sum()
    };
    let before = queued(&mut site);
    for _ in 0..150 {
        site.tick(SECOND / 2);
    }
    // Each response alone was read at less than the minimum rate.
    let taken = before - queued(&mut site);
    assert!(taken > 20_000 && taken < 150 * 20 * 240, "{taken}");
    assert!(!site.reported.contains(&LITTLE));
    assert_eq!(site.resets(), []);
}

#[test]
fn a_response_behind_others_is_exempt_from_the_rate() {
    let mut site = site(limits(), 1 << 20);
    site.pair.link.rate = Some(3_000);
    site.pair.link.queue = 20_000;
    site.ask_with(0, Some("u=0"));
    site.ask_with(4, Some("u=7"));
    for (stream_id, size) in [(0, 2_000_000), (4, 100_000)] {
        site.respond(stream_id, &vec![0; size], true).unwrap();
        site.done(stream_id);
    }
    for _ in 0..120 {
        site.tick(SECOND / 2);
    }
    assert!(site.queued(0) > 0, "the urgent one is there");
    assert!(!site.reported.contains(&LITTLE));
}

#[test]
fn time_without_data_of_the_application_does_not_count_against_the_client() {
    let mut site = site(limits(), 1 << 20);
    site.ask(0, GET, true);
    site.command(|http, quic, now| http.send_headers(quic, 0, OK, false, now))
        .unwrap();
    for _ in 0..200 {
        site.command(|http, quic, now| {
            http.send_data(quic, 0, "data: 1\n\n".into(), false, now)
                .unwrap();
            assert!(!http.is_held_up(quic, 0, now));
        });
        site.tick(SECOND * 5);
    }
    assert!(!site.reported.contains(&LITTLE));
    assert_eq!(aborted(&site.take_events()), [] as [u64; 0]);
}
