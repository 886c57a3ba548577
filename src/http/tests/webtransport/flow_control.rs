//! Flow control of sessions: streams and bytes, in both directions.

use super::*;

/// A server with low limits for sessions, and a client with higher ones.
fn tight() -> Site {
    let limits = Limits {
        streams_bidi: 2,
        streams_uni: 1,
        window: 10_000,
        ..Limits::default()
    };
    Site::with(Limits::default(), limits)
}

#[test]
fn bytes_wait_for_the_sessions_credit() {
    let mut site = tight();
    let session = site.open();
    let first = site.open_stream(Ours, session, false);
    let second = site.open_stream(Ours, session, false);
    let data: Vec<u8> = (0..40_000u32).map(|at| at as u8).collect();
    site.send(Ours, first, &data, true);
    site.send(Ours, second, b"behind it", true);
    assert!(site.on(Ours, |handle, quic, _| handle.is_stream_full(quic, first)));
    site.run();
    let (mut got, mut end) = site.read(Theirs, first);
    assert_eq!((got.len(), end), (10_000, None));
    assert_eq!(site.read(Theirs, second).0, b"");
    while end.is_none() {
        site.run();
        let (more, ended) = site.read(Theirs, first);
        assert!(more.len() <= 10_000);
        got.extend(more);
        end = ended;
    }
    assert_eq!(got, data);
    site.run();
    assert_eq!(site.read(Theirs, second).0, b"behind it");
    let writable = EventKind::Quic(quic::Event::StreamWritable { stream_id: first });
    assert!(site.take(Ours).contains(&writable));
}

#[test]
fn streams_wait_for_the_sessions_credit() {
    let mut site = tight();
    let session = site.open();
    let stream = site.open_stream(Ours, session, true);
    let open = |site: &mut Site| {
        site.on(Ours, |handle, quic, now| {
            handle.open_stream(quic, session, true, now)
        })
    };
    assert_eq!(open(&mut site), Ok(None));
    site.send(Ours, stream, b"x", true);
    site.run();
    assert_eq!(open(&mut site), Ok(None));
    site.forget();
    assert_eq!(site.read(Theirs, stream).0, b"x");
    site.run();
    let available = EventKind::Quic(quic::Event::StreamsAvailable {
        unidirectional: true,
    });
    assert!(site.take(Ours).contains(&available));
    assert!(open(&mut site).unwrap().is_some());
}

#[test]
fn credit_returns_for_abandoned_streams() {
    let mut site = tight();
    let session = site.open();
    for turn in 0..20 {
        let stream = site.open_stream(Ours, session, true);
        site.send(Ours, stream, &[0; 9_000], false);
        site.run();
        match turn % 3 {
            0 => site.on(Ours, |handle, quic, now| {
                handle.reset_stream(quic, stream, 1, now).unwrap();
            }),
            1 => site.on(Theirs, |handle, quic, now| {
                handle.stop_stream(quic, stream, 1, now).unwrap();
            }),
            _ => site.forget_stream(Theirs, stream),
        }
        site.run();
        site.read(Theirs, stream);
        site.run();
    }
}

#[test]
fn streams_and_data_beyond_the_credit_end_the_session() {
    let over_streams = |site: &mut Site, session: u64| {
        for _ in 0..2 {
            let header = [&b"\x40\x54"[..], &[session as u8]].concat();
            let quic = site.quic(Ours);
            let stream = quic.open_stream(true).unwrap();
            quic.send_stream(stream, header.into(), false).unwrap();
        }
    };
    let over_data = |site: &mut Site, session: u64| {
        let data = [&b"\x40\x54"[..], &[session as u8], &[0; 10_001]].concat();
        let quic = site.quic(Ours);
        let stream = quic.open_stream(true).unwrap();
        quic.send_stream(stream, data.into(), false).unwrap();
        site.run();
        site.read(Theirs, stream);
    };
    for is_of_data in [false, true] {
        let mut site = tight();
        let session = site.open();
        match is_of_data {
            false => over_streams(&mut site, session),
            true => over_data(&mut site, session),
        }
        site.run();
        let reported = site.take(Theirs);
        assert!(
            matches!(ended(&reported), Some((0, _, false))),
            "{reported:?}"
        );
        let reset = site.pair.client.has(site.keys[0], |event| {
            let reset = quic::Event::StreamReset {
                stream_id: session,
                error_code: 0x045d_4487,
            };
            *event == reset
        });
        assert!(reset);
    }
}

#[test]
fn older_drafts_have_no_session_flow_control() {
    let limits = Limits {
        drafts: vec![Draft::Two, Draft::Seven],
        streams_uni: 1,
        window: 10,
        ..Limits::default()
    };
    let mut site = Site::with(Limits::default(), limits);
    let session = site.open();
    for _ in 0..10 {
        let stream = site.open_stream(Ours, session, true);
        site.send(Ours, stream, &[0; 1_000], true);
        site.run();
        assert_eq!(site.read(Theirs, stream).0.len(), 1_000);
    }
}

/// Opens `count` streams, and resets each of them right after it was opened.
fn reset_at_once(site: &mut Site, session: u64, uni: bool, count: usize) -> Vec<u64> {
    let mut streams = Vec::new();
    for _ in 0..100 * count {
        let opened = site.on(Ours, |handle, quic, now| {
            handle.open_stream(quic, session, uni, now)
        });
        let Some(stream) = opened.unwrap() else {
            site.run_closely(Duration::from_millis(100));
            for stream in opened_by_the_client(site) {
                site.read(Theirs, stream);
                site.forget_stream(Theirs, stream);
            }
            continue;
        };
        site.send(Ours, stream, &[7; 1_000], false);
        site.on(Ours, |handle, quic, now| {
            handle.reset_stream(quic, stream, 9, now).unwrap();
        });
        site.forget_stream(Ours, stream);
        streams.push(stream);
        if streams.len() == count {
            break;
        }
    }
    streams
}

/// Returns the streams of the client that the server's host has got. Checks that the resets of all of them have
/// arrived.
fn opened_by_the_client(site: &mut Site) -> Vec<u64> {
    opened(&site.take(Theirs))
}

#[test]
fn streams_that_are_reset_at_once_cost_no_credit() {
    for (uni, loss) in [(false, 0), (true, 0), (true, 20)] {
        let limits = Limits {
            streams_bidi: 5,
            streams_uni: 5,
            window: 10_000,
            ..Limits::default()
        };
        let mut site = Site::with(Limits::default(), limits);
        let session = site.open();
        site.pair.link.loss = loss;
        let streams = reset_at_once(&mut site, session, uni, 100);
        assert_eq!(streams.len(), 100, "{uni} {loss}");
        site.run_closely(Duration::from_secs(5));
        let stats = site.on(Theirs, |handle, _, _| handle.stats(session));
        assert_eq!(stats.unwrap().streams_accepted[usize::from(uni)], 100);
        assert_eq!(site.closed_with(Ours), None);
    }
}

#[test]
fn a_reset_stream_still_delivers_its_header() {
    for uni in [false, true] {
        let mut site = Site::new();
        let session = site.open();
        let streams = reset_at_once(&mut site, session, uni, 50);
        site.run_closely(Duration::from_millis(300));
        let mut reported = opened_by_the_client(&mut site);
        reported.sort_unstable();
        assert_eq!(reported, streams);
        for stream in streams {
            let reset = StreamEnd::Reset { error_code: 9 };
            assert_eq!(site.read(Theirs, stream), (Vec::new(), Some(reset)));
            site.forget_stream(Theirs, stream);
        }
        site.close(Ours, session, 0, "");
        site.run();
        site.check_nothing_is_left();
    }
}

#[test]
fn bytes_that_a_reset_discards_return_to_the_credit_exactly() {
    let mut site = tight();
    let session = site.open();
    let first = site.open_stream(Ours, session, false);
    site.send(Ours, first, &[0; 4_000], false);
    site.pair.run_for(Duration::from_millis(50));
    let is_full = |site: &mut Site, stream: u64| {
        site.on(Ours, |handle, quic, _| handle.is_stream_full(quic, stream))
    };
    let second = site.open_stream(Ours, session, false);
    let third = site.open_stream(Ours, session, true);
    site.send(Ours, second, &[0; 6_000], false);
    site.send(Ours, third, &[0; 5_000], false);
    assert!(is_full(&mut site, third));
    site.on(Ours, |handle, quic, now| {
        handle.reset_stream(quic, second, 1, now).unwrap();
    });
    // The credit that the other session has returned, and as much again, is available.
    assert!(!is_full(&mut site, third));
    site.send(Ours, third, &[0; 1_000], false);
    assert!(!is_full(&mut site, third));
    site.send(Ours, third, &[0], false);
    assert!(is_full(&mut site, third));
}

#[test]
fn bytes_that_stop_sending_discards_return_to_the_credit_exactly() {
    let window = 1_200_000;
    let limits = Limits {
        window,
        ..Limits::default()
    };
    let mut site = Site::with(Limits::default(), limits);
    let session = site.open();
    let stream = site.open_stream(Ours, session, true);
    // The data exceeds QUIC's flow-control credit.
    let size = 1_100_000;
    site.send(Ours, stream, &vec![0; size], false);
    site.run();
    site.on(Theirs, |handle, quic, now| {
        handle.stop_stream(quic, stream, 1, now).unwrap();
    });
    site.run();
    let unsent = site.take(Ours).into_iter().find_map(|what| match what {
        EventKind::Quic(quic::Event::StopSending { unsent, .. }) => Some(unsent),
        _ => None,
    });
    let unsent = unsent.unwrap();
    assert!(unsent > 10_000);
    // The server has granted credit for the data that it does not read.
    let mut room = 2 * window as usize - (size - unsent);
    while room > 0 {
        let part = room.min(200_000);
        let other = site.open_stream(Ours, session, true);
        site.send(Ours, other, &vec![0; part], false);
        assert!(!site.on(Ours, |handle, quic, _| handle.is_stream_full(quic, other)));
        room -= part;
    }
    let other = site.open_stream(Ours, session, true);
    site.send(Ours, other, &[0], false);
    assert!(site.on(Ours, |handle, quic, _| handle.is_stream_full(quic, other)));
}
