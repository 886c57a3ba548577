//! Memory of another process, as counted by the kernel.

use std::fs;

use crate::Failure;

/// Returns the resident memory of `pid` in bytes.
pub fn resident_bytes(pid: u32) -> Result<u64, Failure> {
    status(pid, "VmRSS")
}

/// Returns the peak resident memory of `pid` since [`reset_peak`], in bytes.
pub fn peak_bytes(pid: u32) -> Result<u64, Failure> {
    status(pid, "VmHWM")
}

/// Resets the peak to the current resident memory.
pub fn reset_peak(pid: u32) -> Result<(), Failure> {
    Ok(fs::write(format!("/proc/{pid}/clear_refs"), "5")?)
}

/// Returns the memory that the end of `pid` would free, in bytes.
pub fn private_bytes(pid: u32) -> Result<u64, Failure> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    Ok(kibibytes(&rollup, "Private_Clean")? + kibibytes(&rollup, "Private_Dirty")?)
}

fn status(pid: u32, name: &str) -> Result<u64, Failure> {
    kibibytes(&fs::read_to_string(format!("/proc/{pid}/status"))?, name)
}

/// Returns the value of a line `name: 12 kB`, in bytes.
fn kibibytes(text: &str, name: &str) -> Result<u64, Failure> {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .ok_or_else(|| format!("the kernel tells no {name}"))?;
    let kib: u64 = value.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_by_its_whole_name() {
        let text = "VmHWMx:\t 1 kB\nVmHWM:\t  20 kB\n";
        assert_eq!(kibibytes(text, "VmHWM").unwrap(), 20 * 1024);
        assert!(kibibytes(text, "VmRSS").is_err());
    }

    #[test]
    fn what_is_written_is_private_and_stays_the_peak() {
        let pid = std::process::id();
        reset_peak(pid).unwrap();
        let before = private_bytes(pid).unwrap();
        let grown = vec![1_u8; 64 << 20];
        assert!(private_bytes(pid).unwrap() - before > 60 << 20);
        drop(grown);
        assert!(peak_bytes(pid).unwrap() > resident_bytes(pid).unwrap() + (50 << 20));
    }
}
