//! How many descriptors the process may have.

/// The soft limit (RLIMIT_NOFILE): numbers from this one on are not given out. It may change while the process runs.
pub fn limit() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the call writes the limits of this process to the structure, or fails and leaves it as it is.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}
