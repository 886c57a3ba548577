//! Clients that give no flow-control credit to the server's critical streams.

use uringcore_h3::Code;
use uringcore_http::http3::{Event, Limits};

use super::{GET, POST, Site};

/// Makes a client that does not read the server's control stream and QPACK streams. So the server keeps only its
/// initial credit for them.
fn site_without_credit() -> Site {
    let limits = Limits {
        early_resets: 1_000_000,
        ..Limits::default()
    };
    let mut site = Site::with(limits, |transport| transport.max_stream_data = 200);
    let quic = site.pair.client.endpoint.connection(site.client).unwrap();
    for stream_id in [3, 7, 11] {
        quic.pause_stream(stream_id);
    }
    site
}

/// The maximum number of bytes that have waited on a stream of the server.
fn queued(site: &mut Site, stream_id: u64) -> usize {
    let quic = site.pair.server.endpoint.connection(site.server);
    quic.map_or(0, |quic| quic.send_queue_bytes(stream_id))
}

#[test]
fn a_client_without_credit_for_the_decoder_stream_is_closed() {
    let mut site = site_without_credit();
    let (mut next, mut most) = (0, 0);
    while site.closed_with().is_none() {
        let batch: Vec<u64> = (0..100).map(|number| next + number * 4).collect();
        next += 400;
        assert!(next < 40_000, "{most} bytes wait");
        for &stream_id in &batch {
            site.browser.send_headers(stream_id, POST, false).unwrap();
        }
        site.run();
        for &stream_id in &batch {
            // The server's QPACK decoder has to send a stream cancellation (RFC 9204 section 4.4.2).
            site.browser
                .cancel_request(stream_id, Code::H3_REQUEST_CANCELLED.0);
        }
        site.run();
        for event in site.take_events() {
            if let Event::Aborted { stream_id } = event {
                let now = site.pair.now;
                site.http.done(stream_id, now);
            }
        }
        most = most.max(queued(&mut site, 11));
    }
    assert_eq!(site.closed_with(), Some(Code::H3_EXCESSIVE_LOAD.0));
    assert!((1_000..16_000).contains(&most), "{most}");
}

#[test]
fn a_client_that_acknowledges_table_entries_before_they_are_sent_is_closed() {
    let mut site = site_without_credit();
    let (mut turn, mut most) = (0, 0);
    while site.closed_with().is_none() {
        assert!(turn < 400, "{most} bytes wait");
        // The encoder inserts a field line into the dynamic table when the line is sent for the second time.
        let value = format!("{turn:0>100}");
        let fields: &[(&[u8], &[u8])] = &[(b":status", b"200"), (b"x", value.as_bytes())];
        for stream_id in [turn * 8, turn * 8 + 4] {
            site.ask(stream_id, GET, true);
            // The second response may close the connection.
            let _ = site
                .command(|http, quic, now| http.send_headers(quic, stream_id, fields, true, now));
            site.done(stream_id);
        }
        most = most.max(queued(&mut site, 7));
        // The client sends an Insert Count Increment (RFC 9204 section 4.4.3).
        let quic = site.pair.client.endpoint.connection(site.client).unwrap();
        let _ = quic.send_stream(10, vec![1].into(), false);
        site.run();
        turn += 1;
    }
    assert_eq!(site.closed_with(), Some(Code::H3_EXCESSIVE_LOAD.0));
    assert!((1_000..16_000).contains(&most), "{most}");
}
