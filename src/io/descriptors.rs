//! Descriptors of the process: their limit, and duplicates of descriptors given by number.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// A duplicate of `fd`, close-on-exec and above the standard streams; `EBADF` if that is not open.
pub(crate) fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: fcntl only inspects the descriptor and returns EBADF if it is closed.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    borrowed.try_clone_to_owned()
}

/// The soft limit (RLIMIT_NOFILE), above every descriptor number that the kernel allocates. It may change while the
/// process runs.
pub fn limit() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the call writes the limits of this process to the structure, or fails and leaves it unchanged.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}
