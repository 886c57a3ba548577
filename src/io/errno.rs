//! The kernel's error numbers.
//!
//! Not here: the operation that an error belongs to (`completion`).

use std::fmt;
use std::io;

/// A positive errno value.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct Errno(pub i32);

impl Errno {
    /// The operation was cancelled.
    pub const CANCELED: Errno = Errno(libc::ECANCELED);
    /// The operation table is full.
    pub const NO_BUFFERS: Errno = Errno(libc::ENOBUFS);

    /// The calling thread's `errno`.
    pub(crate) fn last() -> Errno {
        Errno(
            io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO),
        )
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl std::error::Error for Errno {}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> io::Error {
        io::Error::from_raw_os_error(errno.0)
    }
}
