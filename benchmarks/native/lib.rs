//! Code shared by the load generators: the command line, the test pattern, the processor time and
//! memory of the server under test, connections with one message in flight, latency percentiles, the
//! answers to uploads and the one JSON line at the end of a run.
//!
//! Nothing here depends on a protocol; each program implements its own.

pub mod args;
pub mod carrier;
pub mod cpu;
pub mod idle_memory;
pub mod latency;
pub mod message_load;
pub mod pattern;
pub mod process_memory;
pub mod quinn_setup;
pub mod report;
pub mod server_processes;
pub mod socket_channel;
pub mod upload;

/// Every load generator ends in one of two ways: a JSON line on stdout and status 0, or a message on
/// stderr and status 1. A wrong byte or a lost connection is never a slow success.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs a program's body and turns its failure into a message and status 1.
pub fn exit_with(name: &str, outcome: Result<(), Failure>) -> std::process::ExitCode {
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{name}: {failure}");
            std::process::ExitCode::FAILURE
        }
    }
}
