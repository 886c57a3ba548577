//! Streams on the engine, both backends: order, watermarks, pausing, half-close, the end.

mod common;

use std::io::{Read, Write};
use std::time::Duration;

use bytes::Bytes;
use common::{BACKENDS, bytes, engine, open, tcp_pair, turn, turn_until};
use uringcore_engine::{Event, WriteOutcome};

#[test]
fn what_is_written_arrives_whole_and_in_order() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (fd, mut peer) = tcp_pair();
        let key = open(&mut engine, fd);
        let expected: Vec<u8> = (0..2_000_000u32).map(|i| (i / 7) as u8).collect();
        for piece in expected.chunks(3_001) {
            engine.write(key, Bytes::copy_from_slice(piece));
        }
        engine.close_stream(key);
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            peer.read_to_end(&mut got).map(|_| got)
        });
        let mut closed = None;
        turn_until(
            &mut engine,
            |_, event| {
                if let Event::StreamClosed { error, .. } = event {
                    closed = Some(error);
                }
            },
            |engine| engine.stats().streams == 0,
        );
        assert_eq!(closed, Some(None));
        assert!(
            reader.join().expect("reader").expect("read") == expected,
            "{}",
            backend.as_str()
        );
        assert_eq!(engine.stats().driver.in_flight, 0);
    }
}

#[test]
fn the_queue_rises_above_high_water_once_and_falls_once() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (fd, mut peer) = tcp_pair();
        let key = open(&mut engine, fd);
        engine.set_stream_watermarks(key, 1000, 4000);
        assert_eq!(
            engine.write(key, Bytes::from(vec![1; 4000])),
            WriteOutcome::Queued
        );
        assert_eq!(
            engine.write(key, Bytes::from(vec![1; 1])),
            WriteOutcome::PauseWriting
        );
        assert_eq!(
            engine.write(key, Bytes::from(vec![1; 999])),
            WriteOutcome::Queued
        );
        let mut resumed = 0;
        turn_until(
            &mut engine,
            |_, event| resumed += usize::from(matches!(event, Event::StreamResumeWriting { .. })),
            |engine| {
                engine
                    .stream(key)
                    .is_some_and(|s| s.write_queue_bytes() == 0)
            },
        );
        turn(&mut engine, Duration::ZERO, |_, event| {
            resumed += usize::from(matches!(event, Event::StreamResumeWriting { .. }));
        });
        assert_eq!(resumed, 1);
        peer.read_exact(&mut vec![0; 5000])
            .expect("all of it arrived");
    }
}

#[test]
fn a_paused_reader_gets_every_byte_after_it_resumes() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (fd, mut peer) = tcp_pair();
        let key = open(&mut engine, fd);
        let expected: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
        let sent = expected.clone();
        let writer = std::thread::spawn(move || peer.write_all(&sent).map(|()| peer));
        let (mut got, mut eof, mut pieces) = (Vec::new(), false, 0);
        let end = std::time::Instant::now() + Duration::from_secs(10);
        let mut writer = Some(writer);
        while !eof {
            assert!(std::time::Instant::now() < end, "{}", backend.as_str());
            turn(
                &mut engine,
                Duration::from_millis(20),
                |engine, event| match event {
                    Event::StreamData { data, .. } => {
                        got.extend(bytes(&data));
                        pieces += 1;
                        // Every piece pauses: what the kernel delivers meanwhile must be kept.
                        engine.pause_reading(key);
                    }
                    Event::StreamEof { .. } => eof = true,
                    _ => {}
                },
            );
            engine.resume_reading(key);
            if got.len() == expected.len()
                && let Some(writer) = writer.take()
            {
                drop(writer.join().expect("writer").expect("write"));
            }
        }
        assert!(got == expected, "{}", backend.as_str());
        assert!(pieces > 1);
    }
}

#[test]
fn half_close_sends_the_queue_then_fin_and_still_reads() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (fd, mut peer) = tcp_pair();
        let key = open(&mut engine, fd);
        engine.write(key, Bytes::from_static(b"question"));
        engine.finish_writing(key);
        let answerer = std::thread::spawn(move || {
            let mut question = Vec::new();
            peer.read_to_end(&mut question).expect("read");
            peer.write_all(b"answer").expect("write");
            question
        });
        let (mut got, mut eof) = (Vec::new(), false);
        let end = std::time::Instant::now() + Duration::from_secs(10);
        while !eof {
            assert!(std::time::Instant::now() < end, "{}", backend.as_str());
            turn(
                &mut engine,
                Duration::from_millis(20),
                |_, event| match event {
                    Event::StreamData { data, .. } => got.extend(bytes(&data)),
                    Event::StreamEof { .. } => eof = true,
                    _ => {}
                },
            );
        }
        assert_eq!(answerer.join().expect("answerer"), b"question");
        assert_eq!(got, b"answer");
        assert_eq!(
            engine.write(key, Bytes::from_static(b"more")),
            WriteOutcome::Lost
        );
    }
}

#[test]
fn a_reset_by_the_peer_ends_the_stream_with_the_error() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (fd, peer) = tcp_pair();
        let key = open(&mut engine, fd);
        let peer = socket2::Socket::from(peer);
        peer.set_linger(Some(Duration::ZERO)).expect("linger");
        drop(peer); // with no linger, a close is a reset
        let mut ended = None;
        turn_until(
            &mut engine,
            |_, event| {
                if let Event::StreamClosed { error, .. } = event {
                    ended = error;
                }
            },
            |engine| engine.stream(key).is_none(),
        );
        assert_eq!(
            ended.map(|errno| errno.0),
            Some(libc::ECONNRESET),
            "{}",
            backend.as_str()
        );
        assert_eq!(engine.stats().driver.in_flight, 0);
    }
}

#[test]
fn abort_drops_the_queue() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (fd, mut peer) = tcp_pair();
        let key = open(&mut engine, fd);
        engine.write(key, Bytes::from(vec![0; 64 << 20]));
        turn(&mut engine, Duration::ZERO, |_, _| {});
        engine.abort_stream(key, None);
        turn_until(
            &mut engine,
            |_, _| {},
            |engine| engine.stream(key).is_none(),
        );
        let mut got = Vec::new();
        // A reset (unsent data was dropped) or an early end: either way not everything.
        let _ = peer.read_to_end(&mut got);
        assert!(got.len() < 64 << 20, "{}", backend.as_str());
        assert_eq!(engine.stats().driver.in_flight, 0);
        assert_eq!(engine.stats().driver.buffers_out, 0);
    }
}
