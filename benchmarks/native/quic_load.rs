//! QUIC load: bulk on one stream at a time with every byte checked, handshakes, round trips,
//! DATAGRAMs, all of them in a WebTransport session with `--webtransport 1`, and the opening of
//! sessions.
//!
//! The protocol of the bulk servers, on a bidirectional stream that the client opens with one byte:
//!
//! - `V`: upload until FIN; the server answers with the count (8 bytes, big-endian) and the
//!   SHA-256.
//! - `U`: upload until FIN; the server answers with the count alone, so that hashing is not
//!   measured.
//! - `D`: the server sends the repeated block until the client's FIN, then ends its side.
//! - `d`: like `D`, in writes of 1 KiB.
//! - `E`: the server echoes all data.
//!
//! The server echoes every DATAGRAM too.

#[path = "quic_load/counted.rs"]
mod counted;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn::SendStream;

use uringcore_bench::args::Args;
use uringcore_bench::carrier::{Carrier, WebTransport};
use uringcore_bench::report::Report;
use uringcore_bench::upload::{VERIFIED_BLOCKS, VERIFIED_BYTES, check_count, check_verified};
use uringcore_bench::{Failure, cpu, exit_with, pattern, process_memory, quinn_setup};

/// The path of the sessions.
const PATH: &str = "/bulk";
/// A server that neither sends nor accepts a byte for this long has failed.
const STALL: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    exit_with(
        "quic_load",
        quinn_setup::runtime().and_then(|rt| rt.block_on(run())),
    )
}

async fn run() -> Result<(), Failure> {
    let args = Args::from_env()?;
    let address: SocketAddr = args.required("addr")?;
    let server: u32 = args.required("pid")?;
    let mode: String = args.required("mode")?;
    let warmup = Duration::from_secs_f64(args.required("warmup")?);
    let window = Duration::from_secs_f64(args.required("seconds")?);

    let is_webtransport = args.or("webtransport", 0)? != 0;
    let endpoint = quinn_setup::client(&args, if is_webtransport { b"h3" } else { b"bulk" })?;
    let connection = quinn_setup::connect(&endpoint, address).await?;
    let (mut http, mut session, mut carrier) = (None, None, Carrier::raw(connection.clone()));
    if is_webtransport {
        let authority = format!("{}:{}", quinn_setup::SERVER_NAME, address.port());
        let many = mode == "session";
        let (opened, first) = WebTransport::new(connection, authority, PATH, many).await?;
        carrier = opened.carrier(&first);
        (http, session) = (Some(Arc::new(opened)), Some(first));
    }
    let load = Load {
        carrier,
        block: Bytes::from(pattern::block()),
        write: args.or("write", pattern::BLOCK)?,
        server,
    };
    if load.write == 0 || !pattern::BLOCK.is_multiple_of(load.write) {
        return Err(format!("--write: must divide {}", pattern::BLOCK).into());
    }
    let measured = match mode.as_str() {
        "upload" => {
            let verified = load.verified_upload().await?;
            let warm = load.upload(warmup).await?;
            let measured = load.upload(window).await?;
            Measured {
                bytes_all: verified + warm.bytes + measured.bytes,
                ..measured
            }
        }
        "download" => load.download(warmup, window).await?,
        _ => {
            let concurrent = args.or("concurrent", 8)?;
            let others =
                counted::Load::new(&endpoint, address, load.carrier, http, server, concurrent);
            return others.run(&mode, warmup, window).await;
        }
    };
    load.carrier.close();
    drop((http, session));
    endpoint.wait_idle().await;

    Report::default()
        .field("bytes", measured.bytes as f64)
        .field("bytes_all", measured.bytes_all as f64)
        .field("seconds", measured.seconds)
        .field("server_cpu_ns", measured.cpu_ns as f64)
        .field(
            "server_rss_bytes",
            process_memory::resident_bytes(server)? as f64,
        )
        .print();
    Ok(())
}

struct Measured {
    bytes: u64,
    /// Includes the bytes before the window: divisor for counters that span the whole run.
    bytes_all: u64,
    seconds: f64,
    cpu_ns: u64,
}

struct Load {
    carrier: Carrier,
    block: Bytes,
    /// Bytes in one write.
    write: usize,
    server: u32,
}

impl Load {
    /// Returns the number of bytes.
    async fn verified_upload(&self) -> Result<u64, Failure> {
        let (mut send, mut receive) = self.carrier.open_bi().await?;
        send.write_all(b"V").await?;
        for _ in 0..VERIFIED_BLOCKS {
            within(self.write_block(&mut send)).await?;
        }
        send.finish()?;
        let answer = within(async { Ok(receive.read_to_end(64).await?) }).await?;
        check_verified(&answer, &self.block)?;
        Ok(VERIFIED_BYTES)
    }

    /// Uploads for `window` and waits until the server has counted the last byte.
    async fn upload(&self, window: Duration) -> Result<Measured, Failure> {
        let (mut send, mut receive) = self.carrier.open_bi().await?;
        send.write_all(b"U").await?;
        let cpu_before = cpu::cpu_ns(self.server)?;
        let begin = Instant::now();
        let mut bytes = 0;
        while begin.elapsed() < window {
            within(self.write_block(&mut send)).await?;
            bytes += self.block.len() as u64;
        }
        send.finish()?;
        let answer = within(async { Ok(receive.read_to_end(64).await?) }).await?;
        let seconds = begin.elapsed().as_secs_f64();
        check_count(&answer, bytes)?;
        Ok(Measured {
            bytes,
            bytes_all: bytes,
            seconds,
            cpu_ns: cpu::cpu_ns(self.server)? - cpu_before,
        })
    }

    /// Downloads for `warmup` and then for `window`; returns the bytes that arrived within the
    /// window.
    async fn download(&self, warmup: Duration, window: Duration) -> Result<Measured, Failure> {
        let (mut send, mut receive) = self.carrier.open_bi().await?;
        let mode = if self.write == pattern::BLOCK {
            b"D"
        } else {
            b"d"
        };
        send.write_all(mode).await?;
        let mut offset = 0;
        let begin = Instant::now();
        let mut opened = None;
        loop {
            let chunk = within(async { Ok(receive.read_chunk(1 << 20, true).await?) }).await?;
            let chunk = chunk.ok_or("the server ended the download by itself")?;
            self.check(offset, &chunk.bytes)?;
            offset += chunk.bytes.len() as u64;
            let now = begin.elapsed();
            match opened {
                None if now >= warmup => {
                    opened = Some((Instant::now(), offset, cpu::cpu_ns(self.server)?));
                }
                Some((since, from, cpu_before)) if now >= warmup + window => {
                    let mut measured = Measured {
                        bytes: offset - from,
                        bytes_all: 0,
                        seconds: since.elapsed().as_secs_f64(),
                        cpu_ns: cpu::cpu_ns(self.server)? - cpu_before,
                    };
                    send.finish()?;
                    while let Some(rest) =
                        within(async { Ok(receive.read_chunk(1 << 20, true).await?) }).await?
                    {
                        self.check(offset, &rest.bytes)?;
                        offset += rest.bytes.len() as u64;
                    }
                    measured.bytes_all = offset;
                    return Ok(measured);
                }
                _ => {}
            }
        }
    }

    fn check(&self, offset: u64, data: &[u8]) -> Result<(), Failure> {
        pattern::check(&self.block, offset, data)
            .map_err(|at| format!("a wrong byte at {at} of the download").into())
    }

    async fn write_block(&self, send: &mut SendStream) -> Result<(), Failure> {
        for at in (0..self.block.len()).step_by(self.write) {
            send.write_chunk(self.block.slice(at..at + self.write))
                .await?;
        }
        Ok(())
    }
}

async fn within<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(STALL, work)
        .await
        .map_err(|_| format!("nothing moved for {STALL:?}"))?
}
