//! The error queue of a UDP socket: ICMP errors, each with the destination of the datagram that caused it.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::RawFd;

use crate::errno::Errno;
use crate::outgoing_message::empty_header;
use crate::received_datagram::{find_control, parse_inet};

/// An asynchronous error that the kernel received in an ICMP message.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct SocketError {
    /// The destination of the datagram that failed.
    pub remote: SocketAddr,
    /// The error, for example `ECONNREFUSED` for a port without a socket, `EHOSTUNREACH` or `EMSGSIZE`.
    pub errno: Errno,
}

/// Reads all entries of the error queue (`MSG_ERRQUEUE`). The kernel limits the queue by the size of the receive
/// buffer. The socket needs `IP_RECVERR` or `IPV6_RECVERR`, which [`prepare_quic_socket`](super::prepare_quic_socket)
/// sets.
pub fn read_error_queue(fd: RawFd) -> io::Result<Vec<SocketError>> {
    let mut errors = Vec::new();
    for _ in 0..ERRORS_MAX {
        match read_one(fd) {
            Ok(error) => errors.extend(error),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(errors)
}

/// Reads an entry of the queue; `None` if it is not an ICMP error, but a time stamp for instance.
fn read_one(fd: RawFd) -> io::Result<Option<SocketError>> {
    let mut name = Area([0; 128]);
    let mut control = Area([0; 512]);
    // The entry's data is the failed datagram. It is not used, so a short buffer is enough.
    let mut data = [0u8; 64];
    let mut iovec = libc::iovec {
        iov_base: data.as_mut_ptr().cast(),
        iov_len: data.len(),
    };
    let mut header = empty_header();
    header.msg_name = name.0.as_mut_ptr().cast();
    header.msg_namelen = name.0.len() as libc::socklen_t;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len() as _;
    header.msg_iov = &raw mut iovec;
    header.msg_iovlen = 1;
    // SAFETY: every pointer and length in the header describes one of the arrays above.
    let result =
        unsafe { libc::recvmsg(fd, &raw mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let name = &name.0[..(header.msg_namelen as usize).min(name.0.len())];
    #[allow(clippy::unnecessary_cast)] // not usize in every C library
    let control = &control.0[..(header.msg_controllen as usize).min(control.0.len())];
    let extended = find_control(control, libc::SOL_IP, libc::IP_RECVERR)
        .or_else(|| find_control(control, libc::SOL_IPV6, libc::IPV6_RECVERR));
    let errno = extended
        .and_then(|data| data.first_chunk())
        .map(|bytes| u32::from_ne_bytes(*bytes));
    Ok(match (parse_inet(name), errno) {
        (Some(remote), Some(errno)) if errno != 0 => Some(SocketError {
            remote,
            errno: Errno(errno as i32),
        }),
        _ => None,
    })
}

#[repr(C, align(8))]
struct Area<const N: usize>([u8; N]);

/// The maximum number of entries read at once. No receive buffer holds as many, so the queue is empty afterwards. An
/// entry that stayed there would wake every later poll of the socket.
const ERRORS_MAX: usize = 1 << 16;
const _: () = assert!(mem::align_of::<Area<1>>() >= mem::align_of::<libc::cmsghdr>());
