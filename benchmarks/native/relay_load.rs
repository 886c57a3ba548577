//! The load of a media relay over WebTransport: one publisher and `--watchers` subscribers, each on
//! a connection of its own and all in one process, so that one clock measures the delay of each
//! piece.
//!
//! The publisher opens a unidirectional stream for each group: a byte for the track, four for the
//! group's number, and then pieces. A piece is its length (4 bytes, big-endian), the time since the
//! beginning (8, nanoseconds) and padding. The piece's time gives the one byte that the padding
//! repeats; every subscriber compares it. Audio is 50 pieces of 160 bytes a second; video is
//! `--pieces` slices a second, which use the rest of `--bits`.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use quinn::{Endpoint, ReadError, RecvStream, SendStream, VarInt};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use uringcore_bench::args::Args;
use uringcore_bench::carrier::{Session, WebTransport, is_of_session};
use uringcore_bench::latency::Latencies;
use uringcore_bench::report::Report;
use uringcore_bench::{Failure, cpu, exit_with, quinn_setup};

const SOUND: u8 = 0;
const PICTURES: u8 = 1;
const SOUND_PIECES: u32 = 50;
const SOUND_BYTES: usize = 160;
/// The duration of a group.
const GROUP: Duration = Duration::from_millis(500);
/// The track and the group's number.
const GROUP_HEAD: usize = 5;
/// The length and the time.
const PIECE_HEAD: usize = 12;
const PIECE_BYTES_MAX: usize = 1 << 24;
/// A subscriber that receives no picture for this long has a stalled video.
const STALL: Duration = Duration::from_millis(100);
/// Time for data in flight when the publisher ends.
const REST: Duration = Duration::from_secs(2);
const CONNECT: Duration = Duration::from_secs(30);
/// Time limits for opening all sessions, and for closing their connections.
const OPENING: Duration = Duration::from_secs(15);
const CLOSING: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let run = || -> Result<(), Failure> {
        let runtime = quinn_setup::runtime()?;
        LocalSet::new().block_on(&runtime, run())
    };
    exit_with("relay_load", run())
}

/// The time range in which pieces count, and the results.
struct Seen {
    begin: Instant,
    /// Relative to `begin`: delays of pieces due in it count, and bytes that arrive in it.
    window: std::ops::Range<Duration>,
    delays: Latencies,
    bytes: u64,
    groups_whole: u64,
    groups_reset: u64,
    stalls: u64,
    /// True if flow control blocked the publisher until its end and left a piece half sent.
    is_cut: bool,
    wrong: Option<String>,
}

type Shared = Rc<RefCell<Seen>>;

async fn run() -> Result<(), Failure> {
    let args = Args::from_env()?;
    let address: SocketAddr = args.required("addr")?;
    let server: u32 = args.required("pid")?;
    let watchers: usize = args.required("watchers")?;
    let bits: u32 = args.required("bits")?;
    let pieces: u32 = args.or("pieces", 250)?;
    let warmup = Duration::from_secs_f64(args.required("warmup")?);
    let length = Duration::from_secs_f64(args.required("seconds")?);
    let picture = (bits / 8).saturating_sub(SOUND_PIECES * SOUND_BYTES as u32) / pieces;
    let picture = (picture as usize).max(PIECE_HEAD);

    let seen = Rc::new(RefCell::new(Seen {
        begin: Instant::now(),
        window: Duration::MAX..Duration::MAX,
        delays: Latencies::default(),
        bytes: 0,
        groups_whole: 0,
        groups_reset: 0,
        stalls: 0,
        is_cut: false,
        wrong: None,
    }));
    let mut kept = Vec::with_capacity(watchers);
    let opening = async {
        for _ in 0..watchers {
            let (endpoint, http, session) = open(&args, address, "/watch").await?;
            let connection = http.connection().clone();
            spawn_local(watch(connection, Rc::clone(&seen)));
            kept.push((endpoint, http, session));
        }
        open(&args, address, "/publish").await
    };
    let opened = timeout(OPENING, opening).await;
    let publisher = opened.map_err(|_| format!("opened {} of {watchers}", kept.len()))??;
    let (_, http, session) = &publisher;

    let begin = Instant::now();
    {
        let mut seen = seen.borrow_mut();
        seen.begin = begin;
        seen.window = warmup..warmup + length;
    }
    let until = warmup + length;
    let publishing = async {
        tokio::try_join!(
            publish(
                http,
                session,
                SOUND,
                SOUND_PIECES,
                SOUND_BYTES,
                begin,
                &seen
            ),
            publish(http, session, PICTURES, pieces, picture, begin, &seen),
        )
    };
    let used = async {
        sleep(warmup).await;
        let before = (cpu::cpu_ns(server)?, cpu::cpu_ns(std::process::id())?);
        sleep(length).await;
        let after = (cpu::cpu_ns(server)?, cpu::cpu_ns(std::process::id())?);
        Ok::<_, Failure>((after.0 - before.0, after.1 - before.1))
    };
    let ((sound, pictures), (server_ns, load_ns)) = timeout(until + CONNECT, async {
        tokio::try_join!(publishing, used)
    })
    .await
    .map_err(|_| "the publisher was not let go on")??;
    let groups = sound.groups + pictures.groups;
    let expected = groups * watchers as u64;
    let end = Instant::now() + REST;
    loop {
        let (done, wrong) = {
            let seen = seen.borrow();
            (seen.groups_whole + seen.groups_reset, seen.wrong.clone())
        };
        if let Some(wrong) = wrong {
            return Err(wrong.into());
        }
        if done >= expected || Instant::now() > end {
            break;
        }
        sleep(Duration::from_millis(5)).await;
    }
    {
        let mut seen = seen.borrow_mut();
        if seen.delays.is_empty() {
            return Err("nothing has come".into());
        }
        let whole = seen.groups_whole;
        let reset = seen.groups_reset;
        let seconds = length.as_secs_f64();
        Report::default()
            .field("pieces", (sound.pieces + pictures.pieces) as f64)
            .field("bytes", seen.bytes as f64)
            .field("seconds", seconds)
            .field("megabits", seen.bytes as f64 * 8e-6 / seconds)
            .field(
                "published_megabits",
                (sound.bytes + pictures.bytes) as f64 * 8e-6 / seconds,
            )
            .field(
                "due_megabits",
                (picture * pieces as usize + SOUND_BYTES * SOUND_PIECES as usize) as f64 * 8e-6,
            )
            .field("p50_us", seen.delays.percentile_us(50.0))
            .field("p99_us", seen.delays.percentile_us(99.0))
            .field("max_us", seen.delays.percentile_us(100.0))
            .field("groups", expected as f64)
            .field("groups_reset", reset as f64)
            .field(
                "groups_missing",
                expected.saturating_sub(whole + reset) as f64,
            )
            .field("stalls", seen.stalls as f64)
            .field("server_cpu_share", server_ns as f64 / 1e9 / seconds)
            .field("load_cpu_share", load_ns as f64 / 1e9 / seconds)
            .print();
    }
    kept.push(publisher);
    for (_, http, _) in &kept {
        http.connection().close(VarInt::from_u32(0), b"done");
    }
    let closing = async {
        for (endpoint, ..) in &kept {
            endpoint.wait_idle().await;
        }
    };
    // The figures remain valid; they show a relay that no longer answers.
    let _late = timeout(CLOSING, closing).await;
    Ok(())
}

/// Opens a session at `path` on a connection from a port of its own.
async fn open(
    args: &Args,
    address: SocketAddr,
    path: &'static str,
) -> Result<(Endpoint, WebTransport, Session), Failure> {
    let mut transport = quinn_setup::transport();
    transport.max_concurrent_uni_streams(VarInt::from_u32(1024));
    let endpoint = quinn_setup::client_with(args, b"h3", transport)?;
    let authority = format!("{}:{}", quinn_setup::SERVER_NAME, address.port());
    let opening = async {
        let connection = quinn_setup::connect(&endpoint, address).await?;
        WebTransport::new(connection, authority, path, false).await
    };
    let (http, session) = timeout(CONNECT, opening)
        .await
        .map_err(|_| "the relay takes no session")??;
    Ok((endpoint, http, session))
}

/// Totals of the publisher, overall and in the window.
#[derive(Default)]
struct Published {
    groups: u64,
    pieces: u64,
    bytes: u64,
}

/// Sends `rate` pieces of `size` bytes a second on `track` until the window ends.
async fn publish(
    http: &WebTransport,
    session: &Session,
    track: u8,
    rate: u32,
    size: usize,
    begin: Instant,
    seen: &Shared,
) -> Result<Published, Failure> {
    let window = seen.borrow().window.clone();
    let mut published = Published::default();
    let mut group: Option<(SendStream, Instant)> = None;
    let mut ticks = interval(Duration::from_secs(1) / rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    while begin.elapsed() < window.end {
        // The time at which the piece is due, so that a delay by the relay's backpressure counts as
        // late.
        let due = ticks.tick().await.into_std();
        if group
            .as_ref()
            .is_none_or(|(_, since)| since.elapsed() >= GROUP)
        {
            if let Some((mut old, _)) = group.take() {
                old.finish()?;
            }
            let mut stream = http.open_uni(session).await?;
            let number = u32::try_from(published.groups)?;
            let mut head = vec![track];
            head.extend_from_slice(&number.to_be_bytes());
            stream.write_all(&head).await?;
            published.groups += 1;
            group = Some((stream, Instant::now()));
        }
        let Some((stream, _)) = group.as_mut() else {
            continue;
        };
        let sent = due.saturating_duration_since(begin);
        let nanoseconds = u64::try_from(sent.as_nanos())?;
        let mut piece = vec![filling(nanoseconds); size];
        piece[..4].copy_from_slice(&u32::try_from(size)?.to_be_bytes());
        piece[4..PIECE_HEAD].copy_from_slice(&nanoseconds.to_be_bytes());
        // A relay that is behind blocks its publisher by flow control.
        let rest = (window.end + REST).saturating_sub(sent);
        match timeout(rest, stream.write_chunk(piece.into())).await {
            Ok(written) => written?,
            Err(_) => {
                seen.borrow_mut().is_cut = true;
                return Ok(published);
            }
        }
        if window.contains(&sent) {
            published.pieces += 1;
            published.bytes += size as u64;
        }
    }
    if let Some((mut last, _)) = group {
        last.finish()?;
    }
    Ok(published)
}

fn filling(nanoseconds: u64) -> u8 {
    (nanoseconds >> 10) as u8
}

/// Receives the groups of one subscriber until its connection ends.
async fn watch(connection: quinn::Connection, seen: Shared) {
    // The arrival time of the last picture, in any of its groups.
    let last = Rc::new(RefCell::new(None));
    while let Ok(stream) = connection.accept_uni().await {
        let (seen, last) = (Rc::clone(&seen), Rc::clone(&last));
        spawn_local(async move {
            if let Err(failure) = group(stream, &seen, &last).await {
                seen.borrow_mut().wrong = Some(failure.to_string());
            }
        });
    }
}

/// Receives one group, to its end.
async fn group(
    mut stream: RecvStream,
    seen: &Shared,
    last: &RefCell<Option<Instant>>,
) -> Result<(), Failure> {
    // The end of the connection is no error of a stream.
    let Ok(of_session) = is_of_session(&mut stream).await else {
        return Ok(());
    };
    if !of_session {
        while let Ok(Some(_)) = stream.read_chunk(1 << 16, true).await {}
        return Ok(());
    }
    let mut track = None;
    let mut held = BytesMut::new();
    loop {
        let chunk = match stream.read_chunk(1 << 20, true).await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break,
            Err(ReadError::Reset(_)) => {
                seen.borrow_mut().groups_reset += 1;
                return Ok(());
            }
            Err(_) => return Ok(()),
        };
        held.extend_from_slice(&chunk.bytes);
        if track.is_none() {
            if held.len() < GROUP_HEAD {
                continue;
            }
            track = Some(held[0]);
            held.advance(GROUP_HEAD);
        }
        take_pieces(&mut held, seen, (track == Some(PICTURES)).then_some(last))?;
    }
    if !held.is_empty() {
        if seen.borrow().is_cut {
            return Ok(());
        }
        return Err("a group ended within a piece".into());
    }
    seen.borrow_mut().groups_whole += 1;
    Ok(())
}

/// Counts the pieces that have arrived whole; `last` refers to pictures.
fn take_pieces(
    held: &mut BytesMut,
    seen: &Shared,
    last: Option<&RefCell<Option<Instant>>>,
) -> Result<(), Failure> {
    while held.len() >= PIECE_HEAD {
        let size = u32::from_be_bytes(held[..4].try_into()?) as usize;
        if !(PIECE_HEAD..=PIECE_BYTES_MAX).contains(&size) {
            return Err(format!("a piece of {size} bytes").into());
        }
        if held.len() < size {
            break;
        }
        let nanoseconds = u64::from_be_bytes(held[4..PIECE_HEAD].try_into()?);
        let byte = filling(nanoseconds);
        if !held[PIECE_HEAD..size].iter().all(|&each| each == byte) {
            return Err("a wrong byte in a piece".into());
        }
        held.advance(size);
        let now = Instant::now();
        let mut seen = seen.borrow_mut();
        let sent = Duration::from_nanos(nanoseconds);
        let counts = seen.window.contains(&sent);
        if counts {
            let delay = now.duration_since(seen.begin).saturating_sub(sent);
            seen.delays.add(delay);
        }
        if seen.window.contains(&now.duration_since(seen.begin)) {
            seen.bytes += size as u64;
        }
        if let Some(last) = last {
            let before = last.replace(Some(now));
            if counts && before.is_some_and(|before| now - before > STALL) {
                seen.stalls += 1;
            }
        }
    }
    Ok(())
}
