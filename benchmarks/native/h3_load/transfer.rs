//! One large body, up or down: its rate, the server's processor time, and the growth of the
//! server's memory.

use std::time::Instant;

use bytes::{Buf, Bytes};
use http::Method;

use uringcore_bench::args::Args;
use uringcore_bench::report::Report;
use uringcore_bench::upload::{VERIFIED_BYTES, check_count, check_verified};
use uringcore_bench::{Failure, cpu, pattern, process_memory};

use crate::target::{Requests, Target, accepted, open, within};

/// Sent before the clock starts, so that buffers and windows have grown. Uploads are verified in
/// it.
const FIRST_BYTES: u64 = VERIFIED_BYTES;

pub async fn run(args: &Args, target: Target, mode: &str) -> Result<Report, Failure> {
    let bytes: u64 = args.required("bytes")?;
    if !bytes.is_multiple_of(pattern::BLOCK as u64) {
        return Err(format!("--bytes: must be a multiple of {}", pattern::BLOCK).into());
    }
    let (_, requests) = target.connect().await?;
    let mut transfer = Transfer {
        block: Bytes::from(pattern::block()),
        requests,
        target: &target,
    };
    let upload = mode == "upload";
    if upload {
        let answer = transfer.upload("/verify", FIRST_BYTES).await?;
        check_verified(&answer, &transfer.block)?;
    } else {
        transfer.download(FIRST_BYTES).await?;
    }

    let pid = target.pid;
    process_memory::reset_peak(pid)?;
    let resident = process_memory::resident_bytes(pid)?;
    let cpu_before = cpu::cpu_ns(pid)?;
    let begin = Instant::now();
    if upload {
        check_count(&transfer.upload("/upload", bytes).await?, bytes)?;
    } else {
        transfer.download(bytes).await?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let cpu_ns = cpu::cpu_ns(pid)? - cpu_before;
    let grown = process_memory::peak_bytes(pid)?.saturating_sub(resident);
    drop(transfer);
    target.close().await;
    Ok(Report::default()
        .field("bytes", bytes as f64)
        .field("bytes_all", (FIRST_BYTES + bytes) as f64)
        .field("seconds", seconds)
        .field("server_cpu_ns", cpu_ns as f64)
        .field("server_rss_bytes", resident as f64)
        .field("server_grown_bytes", grown as f64))
}

struct Transfer<'a> {
    block: Bytes,
    requests: Requests,
    target: &'a Target,
}

impl Transfer<'_> {
    /// Returns the response.
    async fn upload(&mut self, path: &str, bytes: u64) -> Result<Vec<u8>, Failure> {
        let uri = self.target.uri(path)?;
        let mut stream = within(open(&mut self.requests, Method::POST, &uri, bytes)).await?;
        for _ in 0..bytes / pattern::BLOCK as u64 {
            within(async { Ok(stream.send_data(self.block.clone()).await?) }).await?;
        }
        within(async { Ok(stream.finish().await?) }).await?;
        within(accepted(&mut stream)).await?;
        let mut answer = Vec::new();
        while let Some(mut piece) = within(async { Ok(stream.recv_data().await?) }).await? {
            answer.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
        }
        Ok(answer)
    }

    /// Compares every byte.
    async fn download(&mut self, bytes: u64) -> Result<(), Failure> {
        let uri = self.target.uri(&format!("/download/{bytes}"))?;
        let mut stream = within(open(&mut self.requests, Method::GET, &uri, 0)).await?;
        within(async { Ok(stream.finish().await?) }).await?;
        within(accepted(&mut stream)).await?;
        let mut at = 0;
        while let Some(mut piece) = within(async { Ok(stream.recv_data().await?) }).await? {
            while piece.has_remaining() {
                let chunk = piece.chunk();
                let length = chunk.len();
                pattern::check(&self.block, at, chunk)
                    .map_err(|at| format!("a wrong byte at {at} of the download"))?;
                at += length as u64;
                piece.advance(length);
            }
        }
        if at != bytes {
            return Err(format!("{at} bytes of {bytes} came").into());
        }
        Ok(())
    }
}
