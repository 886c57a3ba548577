//! Native quinn as an endpoint of the interoperability tests: the public runner's cases, with the
//! command line of `uringcore interop`.
//!
//! `quinn_interop server --certs DIR --www DIR --host HOST --port PORT` prints `READY <port>` and
//! ends on SIGTERM; `quinn_interop client --certs DIR --downloads DIR` fetches the URLs of
//! `$REQUESTS`. `$TESTCASE` names the case. The status is 127 for a case that quinn does not
//! support.

mod client;
mod files;
mod probe;
mod server;
mod setup;

use std::process::ExitCode;

use setup::{Failure, Options};

const UNSUPPORTED: u8 = 127;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    match runtime.block_on(run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("quinn_interop: {failure}");
            match failure.downcast_ref::<setup::Unsupported>() {
                Some(_) => ExitCode::from(UNSUPPORTED),
                None => ExitCode::FAILURE,
            }
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
