//! HTTP/3 load: many requests in flight, one large body, or idle connections, with every status and
//! every byte checked.
//!
//! It uses quinn and the h3 crate on one thread. `applications/__init__.py` describes the responses
//! of the paths.

#[path = "h3_load/idle.rs"]
mod idle;
#[path = "h3_load/requests.rs"]
mod requests;
#[path = "h3_load/target.rs"]
mod target;
#[path = "h3_load/transfer.rs"]
mod transfer;

use std::process::ExitCode;

use uringcore_bench::args::Args;
use uringcore_bench::{Failure, exit_with, quinn_setup};

use target::Target;

fn main() -> ExitCode {
    exit_with("h3_load", start())
}

fn start() -> Result<(), Failure> {
    let runtime = quinn_setup::runtime()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, run())
}

async fn run() -> Result<(), Failure> {
    let args = Args::from_env()?;
    let mode: String = args.or("mode", "requests".to_owned())?;
    let report = match mode.as_str() {
        "requests" => requests::run(&args, Target::new(&args, quinn_setup::transport())?).await?,
        "upload" | "download" => {
            let target = Target::new(&args, quinn_setup::transport())?;
            transfer::run(&args, target, &mode).await?
        }
        "idle" => idle::run(&args).await?,
        other => {
            let known = "none of requests, upload, download, idle";
            return Err(format!("--mode: {other:?} is {known}").into());
        }
    };
    report.print();
    Ok(())
}
