//! Flow control of sessions: streams and bytes, both ways.

use super::*;

/// A server that gives sessions little, and a client that may be given more.
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
    let writable = What::Quic(quic::Event::StreamWritable { stream_id: first });
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
    let available = What::Quic(quic::Event::StreamsAvailable {
        unidirectional: true,
    });
    assert!(site.take(Ours).contains(&available));
    assert!(open(&mut site).unwrap().is_some());
}

#[test]
fn credit_comes_back_for_streams_that_are_given_up() {
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
        let told = site.take(Theirs);
        assert!(matches!(ended(&told), Some((0, _, false))), "{told:?}");
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
fn older_drafts_have_no_credit_of_sessions() {
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
