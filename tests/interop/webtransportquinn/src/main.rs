//! web-transport-quinn as an endpoint of the interoperability tests: both ends of
//! tests/interop/webtransport.
//!
//! `webtransportquinn server --certs DIR --host HOST --port PORT` prints `READY <port>` and ends on
//! SIGTERM; `webtransportquinn client --certs DIR` plays `$TESTCASE` with the server of
//! `$REQUESTS`.

mod client;
mod server;
// An endpoint's options and the configuration of quinn are shared; no case here moves files.
#[allow(dead_code)]
#[path = "../../quinn/src/setup.rs"]
mod setup;

use std::process::ExitCode;

use setup::{Failure, Options};

const PATH: &str = "/probe";

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    match runtime.block_on(run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("webtransportquinn: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Failure> {
    let options = Options::from_env()?;
    match options.role.as_str() {
        "server" => server::run(&options).await,
        "client" => client::run(&options).await,
        other => Err(format!("no such role: {other}").into()),
    }
}

/// The server's content on a stream of its own: every byte, 400 times.
fn gift() -> Vec<u8> {
    (0..=u8::MAX).cycle().take(256 * 400).collect()
}
