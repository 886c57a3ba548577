//! Streams on the engine, both backends: order, watermarks, pausing, half-close, the end.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::common::{
    BACKENDS, bytes, engine, events_of_end, iterate, iterate_until, open, receive_all_due, tcp_pair,
};
use bytes::Bytes;
use uringcore_engine::{Engine, EngineEvent, SharedState, WriteOutcome};
use uringcore_io::net;

#[test]
fn written_bytes_arrive_whole_and_in_order() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (fd, mut peer) = tcp_pair();
        let key = open(&mut engine, &fd);
        let expected: Vec<u8> = (0..32_000_000u32).map(|i| (i / 7) as u8).collect();
        for piece in expected.chunks(30_001) {
            engine
                .transports()
                .write(key, Bytes::copy_from_slice(piece));
        }
        engine.transports().close(key);
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            peer.read_to_end(&mut got).map(|_| got)
        });
        let reported = events_of_end(&mut engine, key, fd);
        assert_eq!(reported, ["lost", "closed"]);
        assert!(
            reader.join().expect("reader").expect("read") == expected,
            "{}",
            backend.as_str()
        );
        assert_eq!(engine.stats().driver.in_flight, 0);
    }
}

/// A buffer of the ring serves many small receives, and the last one gets only what fits. Many programs treat each
/// piece as a message, because with other event loops one `send` over loopback arrives as one piece.
#[test]
fn a_message_at_the_end_of_a_receive_buffer_arrives_in_one_piece() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (fd, mut peer) = tcp_pair();
        open(&mut engine, &fd);
        let message: Vec<u8> = (0..35).collect();
        // The messages are more bytes than all receive buffers of an engine with default settings have.
        for number in 0..40_000 {
            peer.write_all(&message).expect("write");
            let mut received = Vec::new();
            while received.is_empty() {
                iterate(&mut engine, Duration::from_secs(10), |_, event| {
                    if let EngineEvent::StreamData { data, .. } = event {
                        received.push(bytes(&data));
                    }
                });
            }
            assert_eq!(
                received,
                [&message[..]],
                "{}, message {number}",
                backend.as_str()
            );
        }
    }
}

/// A copy of 20 KiB out of a receive buffer costs more than a poll and a receive into the reader's own buffer.
#[test]
fn a_reader_with_its_own_buffer_receives_by_itself_from_16_kib_on() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (fd, mut peer) = tcp_pair();
        let key = open(&mut engine, &fd);
        let mut is_left_to_host = |engine: &mut Engine, size: usize| {
            peer.write_all(&vec![1; size]).expect("write");
            let (mut received, mut by_host) = (0, 0);
            while received < size {
                engine.flush(Instant::now());
                engine.enter(Some(Duration::from_secs(10))).expect("enter");
                engine.process(Instant::now());
                while let Some(event) = engine.next_event() {
                    match event {
                        EngineEvent::StreamData { data, .. } => received += data.len(),
                        EngineEvent::StreamReadable { stream, fd } => {
                            receive_all_due(engine, stream, fd, 64 * 1024, |_, data| {
                                received += data.len();
                                by_host += data.len();
                            });
                        }
                        _ => panic!("{}: another event", backend.as_str()),
                    }
                }
            }
            by_host > 0
        };
        for (has_own_buffer, size) in [(false, 20_480), (true, 10_240), (true, 20_480)] {
            engine.transports().set_own_buffer(key, has_own_buffer);
            is_left_to_host(&mut engine, size);
            assert_eq!(
                is_left_to_host(&mut engine, size),
                has_own_buffer && size > 16_384,
                "{}, {size}",
                backend.as_str()
            );
        }
        engine.transports().set_own_buffer(key, false);
        let last = (0..20).map(|_| is_left_to_host(&mut engine, 20_480));
        assert_eq!(last.last(), Some(false), "{}", backend.as_str());
    }
}

#[test]
fn crossing_the_high_and_low_marks_is_reported_once_each() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (fd, mut peer) = tcp_pair();
        let key = open(&mut engine, &fd);
        engine.transports().set_marks(key, 1000, 4000);
        // The socket is full. Otherwise the engine would send the bytes above the high mark at once.
        let filler = [0; 65536];
        let mut filled = 0;
        while let Ok(sent) = net::send_pieces(fd.as_raw_fd(), [&filler[..]].into_iter()) {
            filled += sent;
        }
        assert_eq!(
            engine.transports().write(key, Bytes::from(vec![1; 4000])),
            WriteOutcome::Queued
        );
        assert_eq!(
            engine.transports().write(key, Bytes::from(vec![1; 1])),
            WriteOutcome::PauseWriting
        );
        assert_eq!(
            engine.transports().write(key, Bytes::from(vec![1; 999])),
            WriteOutcome::Queued
        );
        let reader =
            std::thread::spawn(move || peer.read_exact(&mut vec![0; filled + 5000]).map(|()| peer));
        let mut resumed = 0;
        iterate_until(
            &mut engine,
            |_, event| resumed += usize::from(matches!(event, EngineEvent::Writable { .. })),
            |engine| engine.stats().write_queue_bytes == 0,
        );
        iterate(&mut engine, Duration::ZERO, |_, event| {
            resumed += usize::from(matches!(event, EngineEvent::Writable { .. }));
        });
        assert_eq!(resumed, 1);
        reader.join().expect("reader").expect("all of it arrived");
    }
}

#[test]
fn a_producer_that_refills_the_queue_before_its_event_resumes_later() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (fd, mut peer) = tcp_pair();
        let shared = SharedState::default();
        let key = engine
            .transports()
            .open_stream(fd.as_raw_fd(), shared.clone());
        engine.transports().start(key);
        let fill = |engine: &mut Engine| {
            let mut written = 0;
            while shared.queued() <= shared.high_mark() {
                written += FILLER_BYTES;
                engine
                    .transports()
                    .write(key, Bytes::from(vec![1; FILLER_BYTES]));
            }
            written
        };
        let mut unread = fill(&mut engine);
        assert!(shared.is_above());
        let mut reported = 0;
        let mut refilled = false;
        let end = Instant::now() + Duration::from_secs(20);
        while reported == 0 {
            assert!(Instant::now() < end, "{}", backend.as_str());
            peer.read_exact(&mut vec![0; unread.min(FILLER_BYTES)])
                .expect("read");
            unread -= unread.min(FILLER_BYTES);
            engine.flush(Instant::now());
            engine.enter(Some(Duration::from_millis(1))).expect("enter");
            engine.process(Instant::now());
            if engine.events_ready() > 0 && !refilled {
                refilled = true;
                unread += fill(&mut engine);
                assert!(engine.next_event().is_none() && shared.is_above());
            }
            while let Some(event) = engine.next_event() {
                reported += usize::from(matches!(event, EngineEvent::Writable { .. }));
            }
        }
        assert!(refilled && !shared.is_above() && shared.queued() <= shared.low_mark());
    }
}

#[test]
fn a_new_producer_is_paused_before_it_is_resumed() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (fd, _peer) = tcp_pair();
        let key = open(&mut engine, &fd);
        let fill = |engine: &mut Engine| {
            for _ in 0..1000 {
                let data = Bytes::from(vec![1; FILLER_BYTES]);
                if engine.transports().write(key, data) == WriteOutcome::PauseWriting {
                    return true;
                }
            }
            false
        };
        assert!(fill(&mut engine));
        assert!(!fill(&mut engine), "reported once");
        engine.transports().change_producer(key);
        assert_eq!(
            engine.transports().write(key, Bytes::from_static(b"x")),
            WriteOutcome::PauseWriting
        );
    }
}

/// More bytes than the distance between the high and the low mark.
const FILLER_BYTES: usize = 64 * 1024;

#[test]
fn a_paused_reader_gets_every_byte_after_it_resumes() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (fd, mut peer) = tcp_pair();
        let key = open(&mut engine, &fd);
        let expected: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
        let sent = expected.clone();
        let writer = std::thread::spawn(move || peer.write_all(&sent).map(|()| peer));
        let (mut got, mut eof, mut pieces) = (Vec::new(), false, 0);
        let end = std::time::Instant::now() + Duration::from_secs(10);
        let mut writer = Some(writer);
        while !eof {
            assert!(std::time::Instant::now() < end, "{}", backend.as_str());
            iterate(
                &mut engine,
                Duration::from_millis(20),
                |engine, event| match event {
                    EngineEvent::StreamData { data, .. } => {
                        got.extend(bytes(&data));
                        pieces += 1;
                        // The reader pauses after each piece. Data that the kernel delivers meanwhile must be kept.
                        engine.transports().pause_reading(key);
                    }
                    EngineEvent::StreamEof { .. } => eof = true,
                    _ => {}
                },
            );
            engine.transports().resume_reading(key);
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
        let key = open(&mut engine, &fd);
        engine
            .transports()
            .write(key, Bytes::from_static(b"question"));
        engine
            .transports()
            .finish_writing(key)
            .expect("not yet shut down");
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
            iterate(
                &mut engine,
                Duration::from_millis(20),
                |_, event| match event {
                    EngineEvent::StreamData { data, .. } => got.extend(bytes(&data)),
                    EngineEvent::StreamEof { .. } => eof = true,
                    _ => {}
                },
            );
        }
        assert_eq!(answerer.join().expect("answerer"), b"question");
        assert_eq!(got, b"answer");
        assert_eq!(
            engine.transports().write(key, Bytes::from_static(b"more")),
            WriteOutcome::Lost
        );
    }
}

#[test]
fn a_reset_by_the_peer_ends_the_stream_with_the_error() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (fd, peer) = tcp_pair();
        let key = open(&mut engine, &fd);
        let peer = socket2::Socket::from(peer);
        peer.set_linger(Some(Duration::ZERO)).expect("linger");
        drop(peer); // with no linger, a close is a reset
        let mut ended = None;
        iterate_until(
            &mut engine,
            |engine, event| {
                if let EngineEvent::Failed { error, .. } = event {
                    ended = Some(error);
                    // No operation is in flight, so the transport ends now and no event follows.
                    assert!(engine.transports().release(key, None));
                }
            },
            |engine| engine.stats().streams == 0,
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
        let key = open(&mut engine, &fd);
        engine
            .transports()
            .write(key, Bytes::from(vec![0; 64 << 20]));
        iterate(&mut engine, Duration::ZERO, |_, _| {});
        engine.transports().abort(key);
        assert_eq!(engine.stats().write_queue_bytes, 0);
        engine.transports().release(key, Some(fd));
        iterate_until(&mut engine, |_, _| {}, |engine| engine.stats().streams == 0);
        let mut got = Vec::new();
        // Unsent data was dropped, so the peer gets a reset or an early end of file. In both cases it lacks data.
        let _ = peer.read_to_end(&mut got);
        assert!(got.len() < 64 << 20, "{}", backend.as_str());
        assert_eq!(engine.stats().driver.in_flight, 0);
        assert_eq!(engine.stats().driver.buffers_out, 0);
    }
}

#[test]
fn bytes_written_in_the_iteration_of_an_abort_are_tried_first() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (fd, mut peer) = tcp_pair();
        let key = open(&mut engine, &fd);
        iterate(&mut engine, Duration::ZERO, |_, _| {});
        engine.transports().write(key, Bytes::from_static(b"last "));
        engine.transports().write(key, Bytes::from_static(b"words"));
        engine.transports().abort(key);
        engine.transports().release(key, Some(fd));
        iterate_until(&mut engine, |_, _| {}, |engine| engine.stats().streams == 0);
        let mut got = Vec::new();
        peer.read_to_end(&mut got).expect("read");
        assert_eq!(got, b"last words", "{}", backend.as_str());
    }
}

#[test]
fn a_close_after_a_complete_write_ends_at_once() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (fd, mut peer) = tcp_pair();
        let key = open(&mut engine, &fd);
        engine.transports().write(key, Bytes::from_static(b"bye"));
        engine.transports().close(key);
        engine.transports().release(key, Some(fd));
        iterate_until(
            &mut engine,
            |_, event| assert!(!matches!(event, EngineEvent::Lost { .. })),
            |engine| engine.stats().streams == 0,
        );
        let mut got = Vec::new();
        peer.read_to_end(&mut got).expect("read");
        assert_eq!(got, b"bye", "{}", backend.as_str());
    }
}

#[test]
fn a_queue_that_grows_large_is_sent_at_once() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (fd, peer) = tcp_pair();
        let key = open(&mut engine, &fd);
        engine.begin_callbacks(2);
        engine.transports().write(key, Bytes::from(vec![1; 500]));
        // This write is held back, unless the machine has delayed the test's thread.
        engine.transports().write(key, Bytes::from(vec![1; 500]));
        engine.transports().write(key, Bytes::from(vec![2; 40_000]));
        let mut got = vec![0; 41_000];
        peer.set_read_timeout(Some(Duration::from_secs(5)))
            .expect("a limit");
        (&peer).read_exact(&mut got).expect("without an iteration");
        assert_eq!((got[999], got[1000]), (1, 2), "{}", backend.as_str());
        assert!(
            engine.transports().notify_when_flushed(key),
            "nothing is left"
        );
    }
}

#[test]
fn a_large_write_that_is_sent_at_once_pauses_no_producer() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (fd, mut peer) = tcp_pair();
        let key = open(&mut engine, &fd);
        engine.transports().set_marks(key, 10, 1000);
        engine
            .transports()
            .write(key, Bytes::from_static(b"first "));
        let outcome = engine
            .transports()
            .write(key, Bytes::from(vec![b'x'; 2000]));
        assert_eq!(outcome, WriteOutcome::Queued, "{}", backend.as_str());
        let mut got = vec![0; 2006];
        peer.read_exact(&mut got)
            .expect("sent without an iteration");
        assert!(got.starts_with(b"first x"));
    }
}

#[test]
fn an_error_during_a_pause_follows_the_data_before_it() {
    for backend in BACKENDS {
        let mut engine = engine(backend);
        let (fd, mut peer) = tcp_pair();
        let key = open(&mut engine, &fd);
        iterate(&mut engine, Duration::ZERO, |_, _| {});
        peer.write_all(b"farewell").expect("write");
        let mut reported = Vec::new();
        let end = std::time::Instant::now() + Duration::from_secs(10);
        while reported.is_empty() {
            assert!(std::time::Instant::now() < end, "{}", backend.as_str());
            iterate(&mut engine, Duration::from_millis(20), |engine, event| {
                if let EngineEvent::StreamData { data, .. } = event {
                    reported.push(String::from_utf8(bytes(&data)).expect("text"));
                    engine.transports().pause_reading(key);
                    engine.transports().put_back(key, data.into_rest(4));
                }
            });
        }
        let peer = socket2::Socket::from(peer);
        peer.set_linger(Some(Duration::ZERO)).expect("linger");
        drop(peer);
        for _ in 0..5 {
            iterate(&mut engine, Duration::from_millis(5), |_, event| {
                assert!(!matches!(event, EngineEvent::Failed { .. }));
            });
        }
        engine.transports().resume_reading(key);
        while reported.len() < 3 {
            assert!(std::time::Instant::now() < end, "{}", backend.as_str());
            iterate(
                &mut engine,
                Duration::from_millis(20),
                |_, event| match event {
                    EngineEvent::StreamData { data, .. } => {
                        reported.push(String::from_utf8(bytes(&data)).expect("text"));
                    }
                    EngineEvent::Failed { error, .. } => reported.push(format!("{}", error.0)),
                    _ => {}
                },
            );
        }
        let reset = libc::ECONNRESET.to_string();
        assert_eq!(
            reported,
            ["farewell", "well", &reset],
            "{}",
            backend.as_str()
        );
    }
}

/// The events of one loop iteration are A1, A2, B, A3. Stream A pauses at A1, and the callback of B resumes it. By then
/// A2 is in the backlog, and it must still come before A3.
#[test]
fn resuming_in_the_middle_of_an_iteration_keeps_the_order() {
    for backend in BACKENDS {
        for with_eof in [false, true] {
            let mut engine = engine(backend);
            let (a_fd, mut a_peer) = tcp_pair();
            let (b_fd, mut b_peer) = tcp_pair();
            let (a, b) = (open(&mut engine, &a_fd), open(&mut engine, &b_fd));
            iterate(&mut engine, Duration::ZERO, |_, _| {
                panic!("nothing was sent")
            });
            // The kernel is entered without processing completions, so that each piece is a separate completion.
            let take = |engine: &mut Engine| {
                std::thread::sleep(Duration::from_millis(5));
                engine.enter(Some(Duration::ZERO)).expect("enter");
            };
            a_peer.write_all(b"1").expect("write");
            take(&mut engine);
            a_peer.write_all(b"2").expect("write");
            take(&mut engine);
            b_peer.write_all(b"x").expect("write");
            take(&mut engine);
            if with_eof {
                a_peer
                    .shutdown(std::net::Shutdown::Write)
                    .expect("shutdown");
            } else {
                a_peer.write_all(b"3").expect("write");
            }
            take(&mut engine);
            let mut heard = Vec::new();
            let end = Instant::now() + Duration::from_secs(10);
            while heard.len() < 3 {
                assert!(Instant::now() < end, "{}: {heard:?}", backend.as_str());
                iterate(
                    &mut engine,
                    Duration::from_millis(20),
                    |engine, event| match event {
                        EngineEvent::StreamData { stream, data } if stream == a => {
                            heard.extend_from_slice(&bytes(&data));
                            if heard.len() == 1 {
                                engine.transports().pause_reading(a);
                            }
                        }
                        EngineEvent::StreamEof { stream } if stream == a => heard.push(b'E'),
                        EngineEvent::StreamData { stream, .. } if stream == b => {
                            engine.transports().resume_reading(a)
                        }
                        _ => {}
                    },
                );
            }
            let expected = if with_eof { b"12E" } else { b"123" };
            assert_eq!(heard, expected, "{}", backend.as_str());
        }
    }
}
