//! Datagrams sent and received by system calls instead of operations of the driver: bursts that must keep their order,
//! and datagrams that are larger than the driver's buffers.

use std::io;
use std::mem;
use std::os::fd::RawFd;
use std::ptr;

use socket2::SockAddr;

use super::with_socket;
use crate::errno::Errno;
use crate::outgoing_message::{SendMsg, empty_header};

/// Sends `messages` in order until one fails, with one `sendmmsg` that never blocks. Returns the number of messages
/// that were sent, at most [`BURST_MAX`]; if none was, the error of the first. Of each message only the data and the
/// destination are used.
pub fn send_many<'a>(
    fd: RawFd,
    messages: impl Iterator<Item = &'a SendMsg>,
) -> Result<usize, Errno> {
    let mut pieces = [libc::iovec {
        iov_base: ptr::null_mut(),
        iov_len: 0,
    }; BURST_MAX];
    let mut headers = [libc::mmsghdr {
        msg_hdr: empty_header(),
        msg_len: 0,
    }; BURST_MAX];
    let mut count = 0;
    for (message, (piece, entry)) in messages.zip(pieces.iter_mut().zip(&mut headers)) {
        debug_assert!(message.segment_size.is_none() && message.ecn.is_none());
        piece.iov_base = message.data.as_ptr().cast_mut().cast();
        piece.iov_len = message.data.len();
        entry.msg_hdr.msg_iov = piece;
        entry.msg_hdr.msg_iovlen = 1;
        if let Some(to) = &message.to {
            entry.msg_hdr.msg_name = to.as_ptr().cast_mut().cast();
            entry.msg_hdr.msg_namelen = to.len();
        }
        count += 1;
    }
    loop {
        // SAFETY: `count` filled headers, whose pieces and addresses are borrowed for this call.
        let sent = unsafe {
            libc::sendmmsg(
                fd,
                headers.as_mut_ptr(),
                count,
                (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
            )
        };
        match usize::try_from(sent) {
            Ok(sent) => return Ok(sent),
            Err(_) if Errno::last().0 == libc::EINTR => {}
            Err(_) => return Err(Errno::last()),
        }
    }
}

/// Receives one datagram of at most `buffer.capacity()` bytes into `bytes_like_objects`, without blocking. Returns the sender's
/// address, which is empty if a Unix socket without a name has sent it.
pub fn recv_from(fd: RawFd, buffer: &mut Vec<u8>) -> io::Result<SockAddr> {
    buffer.clear();
    let (count, from) = with_socket(fd, |socket| {
        socket.recv_from_with_flags(buffer.spare_capacity_mut(), libc::MSG_DONTWAIT)
    })?;
    // SAFETY: the kernel has filled the first `count` bytes of the spare capacity.
    unsafe { buffer.set_len(count) };
    Ok(from)
}

/// The maximum number of datagrams of one [`send_many`].
pub const BURST_MAX: usize = 64;

const _: () = assert!(
    mem::size_of::<libc::mmsghdr>() * BURST_MAX <= 8192,
    "the array is on the stack"
);
