//! Sessions that end in every state, with streams in flight: no side keeps any state of them.

use super::*;

/// Opens streams of every kind in every state, and sends a datagram.
fn with_streams_in_flight(site: &mut Site, session: u64) {
    for side in BOTH {
        for uni in [false, true] {
            let silent = site.open_stream(side, session, uni);
            let open = site.open_stream(side, session, uni);
            let long = site.open_stream(side, session, uni);
            let finished = site.open_stream(side, session, uni);
            let reset = site.open_stream(side, session, uni);
            let dropped = site.open_stream(side, session, uni);
            assert!(silent < open);
            site.send(side, open, b"some", false);
            // The data exceeds the flow-control windows, so a part of it waits in queues.
            site.send(side, long, &vec![7; 3 << 20], true);
            site.send(side, finished, b"all", true);
            site.send(side, reset, b"some", false);
            site.on(side, |handle, quic, now| {
                handle.reset_stream(quic, reset, 3, now)
            })
            .unwrap();
            site.send(side, dropped, b"all", true);
            site.forget_stream(side, dropped);
        }
        let sent = site.on(side, |handle, quic, _| {
            handle.send_datagram(quic, session, b"datagram")
        });
        sent.unwrap();
    }
}

fn some_are_read(site: &mut Site) {
    for side in BOTH {
        for stream in opened(&site.take(side)) {
            if stream % 8 < 4 {
                site.read(side, stream);
                site.forget_stream(side, stream);
            }
        }
    }
}

#[test]
fn a_session_closed_by_either_side_leaves_no_state() {
    for draft in Draft::ALL {
        for side in BOTH {
            // The session ends before any stream data has arrived, when some has arrived, and when all that may has
            // arrived.
            for steps in [0, 1, 20] {
                let mut site = Site::speaking(draft);
                let session = site.open();
                with_streams_in_flight(&mut site, session);
                for _ in 0..steps {
                    site.pair.run_for(Duration::from_millis(7));
                    site.handle();
                }
                some_are_read(&mut site);
                site.close(side, session, 5, "why");
                site.run();
                for reported in BOTH {
                    let reported = site.take(reported);
                    assert_eq!(
                        ended(&reported),
                        Some((5, "why", true)),
                        "{draft:?} {steps}"
                    );
                    assert_eq!(
                        reported.last(),
                        Some(&EventKind::Released),
                        "{draft:?} {steps}"
                    );
                }
                site.check_nothing_is_left();
            }
        }
    }
}

#[test]
fn a_session_whose_connect_stream_is_reset_leaves_no_state() {
    for side in BOTH {
        let mut site = Site::new();
        let session = site.open();
        with_streams_in_flight(&mut site, session);
        site.run();
        some_are_read(&mut site);
        site.on(side, |handle, quic, now| {
            handle.abort(quic, session, Code::H3_INTERNAL_ERROR, now);
        });
        site.run();
        for reported in BOTH {
            assert_eq!(ended(&site.take(reported)), Some((0, "", false)));
        }
        site.check_nothing_is_left();
    }
}

#[test]
fn a_close_capsule_arrives_after_stop_sending() {
    for side in BOTH {
        let mut site = Site::new();
        let session = site.open();
        site.on(side, |_, quic, _| quic.stop_stream(session, 0))
            .unwrap();
        site.close(side, session, 5, "why");
        site.run();
        for reported in BOTH {
            assert_eq!(ended(&site.take(reported)), Some((5, "why", true)));
        }
        // A side that has stopped reading does not get the end of the other side's direction. So a time-out ends its
        // wait.
        site.pair.run_for(Duration::from_secs(11));
        site.tick();
        site.run();
        site.check_nothing_is_left();
    }
}

#[test]
fn a_session_whose_peer_stops_reading_without_a_close_is_abandoned() {
    for side in BOTH {
        let mut site = Site::new();
        let session = site.open();
        site.on(side, |_, quic, _| quic.stop_stream(session, 0))
            .unwrap();
        site.run();
        site.tick();
        for reported in BOTH {
            assert_eq!(ended(&site.take(reported)), None);
        }
        // First the side that is not read ends the session, then the other side, which no longer reads.
        for _ in BOTH {
            site.pair.run_for(Duration::from_secs(11));
            site.tick();
            site.run();
        }
        for reported in BOTH {
            assert_eq!(ended(&site.take(reported)), Some((0, "", false)));
        }
        site.check_nothing_is_left();
    }
}

#[test]
fn streams_of_an_ended_session_are_reset_with_session_gone() {
    let mut site = Site::new();
    let session = site.open();
    let stream = site.open_stream(Ours, session, false);
    site.send(Ours, stream, b"some", false);
    site.run();
    site.close(Theirs, session, 0, "");
    // A stream that is opened before the client has received the end of the session.
    let late = site.open_stream(Ours, session, true);
    site.send(Ours, late, b"some", false);
    site.pair.run_for(Duration::from_millis(300));
    let stops = |site: &Site, id: u64| {
        site.pair.client.has(site.keys[0], |event| {
            matches!(
                event,
                quic::Event::StopSending { stream_id, error_code: 0x170d_7b68, .. } if *stream_id == id
            )
        })
    };
    assert!(stops(&site, stream));
    site.run();
    site.check_nothing_is_left();
}

#[test]
fn the_end_of_the_connect_stream_ends_the_session_without_a_reason() {
    let mut site = Site::new();
    let session = site.open();
    site.quic(Ours)
        .send_stream(session, Bytes::new(), true)
        .unwrap();
    site.run();
    assert_eq!(ended(&site.take(Theirs)), Some((0, "", true)));
    assert_eq!(ended(&site.take(Ours)), Some((0, "", true)));
    site.check_nothing_is_left_at(Theirs);
}

#[test]
fn an_abandoned_session_request_is_not_open() {
    for waits in [false, true] {
        let mut site = Site::new();
        let session = site.connect(request()).unwrap();
        if waits {
            site.run();
        }
        site.close(Ours, session, 9, "never mind");
        assert_eq!(ended(&site.take(Ours)), Some((9, "never mind", false)));
        site.run();
        let reported = site.take(Theirs);
        assert_eq!(ended(&reported).is_some(), waits, "{reported:?}");
        assert_eq!(site.accept(session, &[], None), Err(Error::Gone));
        site.check_nothing_is_left();
    }
}

#[test]
fn a_session_abandoned_before_the_servers_settings_leaves_no_state() {
    let mut site = Site::before_settings(
        http::Limits::default(),
        Limits::default(),
        Limits::default(),
    );
    let session = site.connect(request()).unwrap();
    site.close(Ours, session, 9, "never mind");
    assert_eq!(ended(&site.take(Ours)), Some((9, "never mind", false)));
    site.run();
    let is_asked = |event: &http::Event| matches!(event, http::Event::Session { .. });
    assert!(
        !site.http_events.iter().any(is_asked),
        "{:?}",
        site.http_events
    );
    site.check_nothing_is_left();
}

#[test]
fn a_session_request_excluded_by_goaway_has_ended() {
    let mut site = Site::new();
    let seen = site.connect(request()).unwrap();
    site.run();
    let unseen = site.connect(request()).unwrap();
    site.go_away();
    // The server does not reset the stream itself.
    site.pair.run_for(Duration::from_millis(500));
    site.client_handles();
    let reported = std::mem::take(&mut site.reported[0]);
    let [first, second] = &reported[..] else {
        panic!("{reported:?}")
    };
    assert_eq!(
        (first.session_id, &first.what),
        (seen, &EventKind::Draining)
    );
    let reason = "the server accepts no further sessions";
    assert_eq!(second.session_id, unseen);
    assert_eq!(
        ended(std::slice::from_ref(&second.what)),
        Some((0, reason, false))
    );
    site.run();
    site.accept(seen, &[], None).unwrap();
    site.run();
    site.close(Ours, seen, 0, "");
    site.run();
    site.check_nothing_is_left();
}

#[test]
fn a_closing_session_whose_peer_does_not_end_its_stream_is_dropped_after_a_time() {
    let mut site = Site::new();
    let session = site.open();
    site.close(Theirs, session, 1, "over");
    // The client's QUIC receives the data, but its HTTP/3 is never called.
    site.pair.run_for(Duration::from_millis(500));
    let events = site.pair.server.events[site.seen[1]..].to_vec();
    site.seen[1] += events.len();
    let now = site.pair.now;
    for (_, event) in events.into_iter().filter(|it| it.1.is_about_streams()) {
        let quic = site.pair.server.endpoint.connection(site.keys[1]).unwrap();
        site.http.handle(quic, event, now);
    }
    assert!(!site.http.is_drained());
    site.pair.run_for(Duration::from_secs(11));
    site.tick();
    assert!(site.http.is_drained());
    site.run();
    site.check_nothing_is_left();
}
