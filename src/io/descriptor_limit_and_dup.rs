//! File descriptors of the process: their limit, and duplicates of descriptors that a host passes as numbers.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// Duplicates `fd`. The duplicate is close-on-exec and its number is above 2. Fails with `EBADF` if `fd` is not open.
pub(crate) fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: fcntl only inspects the descriptor and returns EBADF if it is closed.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    borrowed.try_clone_to_owned()
}

/// The soft limit of open descriptors (RLIMIT_NOFILE): every new descriptor's number is below it. The process may
/// change the limit at any time.
pub fn limit() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the call writes the limits of this process to the structure, or fails and leaves it unchanged.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}
