//! Readiness of descriptors: checks whether a descriptor can be waited for, and whether it is ready now. Not here: the
//! wait itself (the driver).
//!
//! io_uring may report readiness of a file that is not ready, unless the file is an IPv4, IPv6 or Unix socket. So each
//! registration of a watcher costs a `getsockopt` that determines the kind ([`wakes_for_nothing`]), and each report for
//! another kind a `poll(2)` that checks it.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::option;
use crate::completion::Interest;

/// Fails if a descriptor cannot be waited for, with the error that `epoll_ctl` would return: EBADF if it is closed or
/// was opened with `O_PATH`; EPERM for directories, and for most regular files and some devices (`/dev/null`), which
/// are always ready.
pub fn check_watchable(fd: RawFd) -> io::Result<()> {
    // SAFETY: reads the flags of a descriptor, or returns EBADF.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    // fstat(2) below succeeds for a descriptor opened with O_PATH, but a poll of it would fail later.
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
        // For these kinds of files the answer depends on the file system or the device driver. A terminal and
        // /proc/self/mounts can be waited for; /dev/null and a file on a disk cannot.
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

/// True if `fd` is ready for `interest`, or if it has an error or a hang-up. False if it is closed.
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

/// True if io_uring may complete a poll of `fd` although the file is not ready.
///
/// io_uring completes a poll at every wake-up of the file's waiters, whereas epoll checks the file again. A socket of
/// AF_VSOCK wakes writers while it connects, and another process may have read a pipe's data after the wake-up. Sockets
/// of IPv4, IPv6 and Unix wake their waiters only when they are ready.
pub fn wakes_for_nothing(fd: RawFd) -> bool {
    let family = option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN);
    !matches!(family, Ok(libc::AF_INET | libc::AF_INET6 | libc::AF_UNIX))
}
