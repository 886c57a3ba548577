//! All processes of the server under load: their processor time and memory together.

use crate::args::Args;
use crate::{Failure, cpu, process_memory};

pub struct ServerProcesses(Vec<u32>);

impl ServerProcesses {
    /// The processes of `--processes`; without it, that of `--pid`.
    pub fn of(args: &Args) -> Result<Self, Failure> {
        let pid: u32 = args.required("pid")?;
        let listed: String = args.or("processes", pid.to_string())?;
        let pids: Result<Vec<u32>, _> = listed.split(',').map(str::parse).collect();
        Ok(Self(pids?))
    }

    pub fn cpu_ns(&self) -> Result<u64, Failure> {
        self.sum(cpu::cpu_ns)
    }

    pub fn resident_bytes(&self) -> Result<u64, Failure> {
        self.sum(process_memory::resident_bytes)
    }

    pub fn sum(&self, of: impl Fn(u32) -> Result<u64, Failure>) -> Result<u64, Failure> {
        self.0.iter().map(|&pid| of(pid)).sum()
    }
}
