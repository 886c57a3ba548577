//! Readiness of descriptors: which can be waited for, and which are ready now. Not here: waiting (the driver).
//!
//! With io_uring, files other than sockets of IPv4, IPv6 and Unix may wake a poll although there is nothing to read
//! or write. Each wake-up of theirs therefore costs a `poll(2)`, and each registration a `getsockopt` that
//! determines the kind ([`wakes_for_nothing`]).

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::option;
use crate::completion::Interest;

/// Fails for a descriptor that cannot be watched for readiness, with the errors of `epoll_ctl`: EBADF for one that
/// is closed, or was opened with `O_PATH`; EPERM for a directory, and for most regular files and some devices
/// (`/dev/null`), which are always ready.
pub fn check_watchable(fd: RawFd) -> io::Result<()> {
    // SAFETY: reads the flags of a descriptor, or returns EBADF.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    // Such a descriptor has a status like any other, but a poll of the ring would fail later.
    if flags & libc::O_PATH != 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    let mut status = mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the pointer is to memory of the right size, which the kernel fills on success.
    if unsafe { libc::fstat(fd, status.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fstat succeeded, so the structure is filled.
    match unsafe { status.assume_init() }.st_mode & libc::S_IFMT {
        // Only the file system or the driver decides this: a terminal can be watched and /dev/null cannot,
        // /proc/self/mounts can and a file on a disk cannot.
        libc::S_IFREG | libc::S_IFDIR | libc::S_IFCHR | libc::S_IFBLK => ask_epoll(fd),
        _ => Ok(()),
    }
}

/// Fails with the error of `epoll_ctl` for `fd`.
fn ask_epoll(fd: RawFd) -> io::Result<()> {
    let mut event = libc::epoll_event {
        events: libc::EPOLLIN as u32,
        u64: 0,
    };
    // SAFETY: a new set, owned from here on by `set`, takes `fd` with a live event structure.
    unsafe {
        let set = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        if set < 0 {
            return Err(io::Error::last_os_error());
        }
        let set = OwnedFd::from_raw_fd(set);
        if libc::epoll_ctl(set.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// True if `fd` is ready for `interest`, has failed or has ended. False also for a closed descriptor.
pub fn is_ready(fd: RawFd, interest: Interest) -> bool {
    let mut entry = libc::pollfd {
        fd,
        events: interest.poll_bits() as libc::c_short,
        revents: 0,
    };
    // SAFETY: one live entry; no time-out to wait for.
    let count = unsafe { libc::poll(&raw mut entry, 1, 0) };
    count == 1 && entry.revents & libc::POLLNVAL == 0
}

/// True if a one-shot poll of the ring on `fd` may complete although nothing is ready.
///
/// io_uring completes a poll on every wake-up, whereas epoll checks the file again. Sockets of AF_VSOCK wake
/// writers while they connect; data in a pipe may have been read by another process since. Sockets of the usual
/// families wake only when they are ready, so they are not checked.
pub fn wakes_for_nothing(fd: RawFd) -> bool {
    let family = option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN);
    !matches!(family, Ok(libc::AF_INET | libc::AF_INET6 | libc::AF_UNIX))
}
