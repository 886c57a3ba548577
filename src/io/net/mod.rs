//! System calls on sockets: addresses, options, half-close, and receives and sends that bypass the driver. The
//! functions take a descriptor that the caller keeps open; a closed descriptor results in `EBADF`.
//!
//! | file | content |
//! | --- | --- |
//! | `quic_socket_options` | UDP sockets with the options that QUIC needs |
//! | `reuseport` | several sockets on one UDP port |
//! | `error_queue` | ICMP errors of a UDP socket |
//! | `datagram_syscalls` | datagrams sent and received directly, without the ring |
//! | `readiness_check` | which descriptors can be waited for, and which are ready |
//!
//! Not here: the creation of TCP sockets.

mod datagram_syscalls;
mod error_queue;
mod quic_socket_options;
mod readiness_check;
mod reuseport;

use std::io;
use std::mem;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use socket2::{SockAddr, SockRef};

pub use datagram_syscalls::{BURST_MAX, recv_from, send_many};
pub use error_queue::{SocketError, read_error_queue};
pub use quic_socket_options::{
    QuicSocketInfo, QuicSocketOptions, prepare_quic_socket, udp_quic_socket,
};
pub use readiness_check::{check_watchable, is_ready, wakes_for_nothing};
pub use reuseport::steer_by_connection_id;

use crate::errno::Errno;
use crate::received_message::{AddressPayload, PeerAddress, ReceivePayload, ReceivedMessage};

/// The socket's own address.
pub fn local_addr(fd: RawFd) -> io::Result<SockAddr> {
    with_socket(fd, |socket| socket.local_addr())
}

/// The address of the connected peer, even if it has reset the connection. `ENOTCONN` if the socket was never
/// connected.
pub fn peer_addr(fd: RawFd) -> io::Result<SockAddr> {
    with_socket(fd, |socket| match socket.peer_addr() {
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
            peer_addr_after_end(fd, &socket)
        }
        known => known,
    })
}

/// The peer's address by `SO_PEERNAME`, which, unlike getpeername(2), works after the end of the connection.
fn peer_addr_after_end(fd: RawFd, socket: &SockRef<'_>) -> io::Result<SockAddr> {
    let size = socket.local_addr()?.len();
    // SAFETY: the storage has room for an address of any family, and its size is passed.
    let ((), address) = unsafe {
        SockAddr::try_init(|storage, length| {
            *length = size;
            let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERNAME);
            match libc::getsockopt(fd, level, name, storage.cast(), length) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        })
    }?;
    Ok(address)
}

/// Sets `TCP_NODELAY`.
pub fn set_nodelay(fd: RawFd, on: bool) -> io::Result<()> {
    with_socket(fd, |socket| socket.set_tcp_nodelay(on))
}

/// Sets or clears `O_NONBLOCK`.
pub fn set_nonblocking(fd: RawFd, on: bool) -> io::Result<()> {
    with_socket(fd, |socket| socket.set_nonblocking(on))
}

/// Ends the sending direction: the peer reads the end of the stream, and this socket can still receive.
pub fn shutdown_write(fd: RawFd) -> io::Result<()> {
    with_socket(fd, |socket| socket.shutdown(std::net::Shutdown::Write))
}

/// Returns the pending asynchronous error (`SO_ERROR`) and clears it.
pub fn take_socket_error(fd: RawFd) -> io::Result<Option<Errno>> {
    let error = with_socket(fd, |socket| socket.take_error())?;
    Ok(error.and_then(|error| error.raw_os_error()).map(Errno))
}

/// Starts a connect with a system call.
pub fn connect(fd: RawFd, address: &SockAddr) -> io::Result<()> {
    with_socket(fd, |socket| socket.connect(address))
}

/// The result of a non-blocking connect, once the socket is writable: 0 or a negative errno.
pub(crate) fn connect_result(fd: RawFd) -> i32 {
    match take_socket_error(fd) {
        Ok(None) => 0,
        Ok(Some(errno)) => -errno.0,
        Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
    }
}

/// Receives with a system call into memory that may be uninitialised.
pub fn recv(fd: RawFd, memory: &mut [mem::MaybeUninit<u8>]) -> io::Result<usize> {
    with_socket(fd, |socket| {
        socket.recv_with_flags(memory, libc::MSG_DONTWAIT)
    })
}

/// Receives at most `size` bytes into a vector, whose allocation is reused. The vector is empty after an error.
pub fn recv_to(fd: RawFd, buffer: &mut Vec<u8>, size: usize) -> io::Result<usize> {
    buffer.clear();
    buffer.reserve_exact(size);
    let count = recv(fd, &mut buffer.spare_capacity_mut()[..size])?;
    // SAFETY: the kernel has filled the first `count` bytes of the spare capacity.
    unsafe { buffer.set_len(count) };
    Ok(count)
}

/// Device and inode of a descriptor's file. They differ if the descriptor's number is reused for another file.
pub type FileId = (libc::dev_t, libc::ino_t);

pub fn file_of(fd: RawFd) -> Option<FileId> {
    let mut stat = mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: room for one structure, which is read only if the call has filled it.
    unsafe {
        (libc::fstat(fd, stat.as_mut_ptr()) == 0).then(|| {
            let stat = stat.assume_init();
            (stat.st_dev, stat.st_ino)
        })
    }
}

/// Receives one message of at most `size` bytes with a system call.
pub fn recv_message(fd: RawFd, size: usize) -> io::Result<ReceivedMessage> {
    let mut payload = ReceivePayload::new(size);
    // SAFETY: the header points into the payload, which lives until the call returns.
    let received = unsafe { libc::recvmsg(fd, payload.header(), libc::MSG_DONTWAIT) };
    if received < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(payload.received(received as usize))
    }
}

/// Accepts one connection with a system call. The listener must be non-blocking. The connection is non-blocking and
/// close-on-exec.
pub fn accept(fd: RawFd) -> io::Result<(OwnedFd, PeerAddress)> {
    let mut name = AddressPayload::new();
    let (address, length) = name.pointers();
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: room for any address, with its length; both live until the call returns.
    let accepted = unsafe { libc::accept4(fd, address, length, flags) };
    if accepted < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just created this descriptor for us.
    let accepted = unsafe { OwnedFd::from_raw_fd(accepted) };
    Ok((accepted, PeerAddress(name)))
}

/// Sends one datagram with a system call, for callers that do not enter the driver.
pub fn send_to(fd: RawFd, data: &[u8], to: Option<&SockAddr>) -> io::Result<usize> {
    with_socket(fd, |socket| match to {
        Some(to) => socket.send_to_with_flags(data, to, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL),
        None => socket.send_with_flags(data, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL),
    })
}

/// Sends stream data with one system call, without blocking: the first [`PIECES_MAX`] pieces. A transport uses it while
/// its write queue is empty, because an operation would cost more.
pub fn send_pieces<'a>(
    fd: RawFd,
    mut pieces: impl Iterator<Item = &'a [u8]>,
) -> Result<usize, Errno> {
    let first = pieces.next().unwrap_or(&[]);
    match pieces.next() {
        // A plain send saves the kernel from reading a header and a list, and this process from filling the list.
        None => uninterrupted(fd, |socket| socket.send_with_flags(first, SEND_FLAGS)),
        Some(second) => send_vectored(fd, [first, second].into_iter().chain(pieces)),
    }
}

fn send_vectored<'a>(fd: RawFd, pieces: impl Iterator<Item = &'a [u8]>) -> Result<usize, Errno> {
    let mut slices = [io::IoSlice::new(&[]); PIECES_MAX];
    let mut count = 0;
    for (slice, piece) in slices.iter_mut().zip(pieces) {
        *slice = io::IoSlice::new(piece);
        count += 1;
    }
    uninterrupted(fd, |socket| {
        socket.send_vectored_with_flags(&slices[..count], SEND_FLAGS)
    })
}

/// Sends, again after each interruption by a signal.
fn uninterrupted(
    fd: RawFd,
    send: impl Fn(SockRef<'_>) -> io::Result<usize>,
) -> Result<usize, Errno> {
    loop {
        match with_socket(fd, &send) {
            Ok(sent) => return Ok(sent),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Errno(error.raw_os_error().unwrap_or(libc::EIO))),
        }
    }
}

const SEND_FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// The maximum number of pieces of one [`send_pieces`].
pub const PIECES_MAX: usize = 64;

/// Takes ownership of a descriptor.
///
/// # Safety
///
/// From now on nothing else uses or closes the descriptor.
///
/// # Errors
///
/// `EBADF` if the number is not open. An owner of such a number would later close another file that gets the number.
pub unsafe fn take_over(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: reads the flags of a descriptor, or returns EBADF.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open, and the caller gives up its ownership.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn with_socket<T>(fd: RawFd, work: impl FnOnce(SockRef<'_>) -> io::Result<T>) -> io::Result<T> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: not -1, and borrowed only for the call. If the descriptor is not open the system call returns EBADF;
    // nothing here owns or closes it.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    work(SockRef::from(&borrowed))
}

/// `setsockopt` with a plain integer, for options that socket2 lacks.
fn set_option(fd: RawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let length = mem::size_of::<i32>() as libc::socklen_t;
    // SAFETY: a live i32, with its length.
    let result = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), length) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn option(fd: RawFd, level: i32, name: i32) -> io::Result<i32> {
    let mut value: i32 = 0;
    let mut length = mem::size_of::<i32>() as libc::socklen_t;
    // SAFETY: room for an i32, with its length.
    let result =
        unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut length) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(value)
    }
}
