//! Accepts and receives. Each has a limit per loop iteration, so that one busy descriptor does not delay all others.
//! The set is level-triggered, so the next loop iteration continues.

use std::os::fd::{FromRawFd, OwnedFd};
use std::{mem, ptr};

use super::Epoll;
use crate::common_backend_state::BackendState;
use crate::completion::Outcome;
use crate::errno::Errno;
use crate::operation_table::{OpKind, OpPhase, Payload};
use crate::outgoing_message::empty_header;
use crate::received_datagram::{
    CONTROL_ROOM, Datagram, HEADER_ROOM, HEADER_SIZE, Header, NAME_ROOM,
};

impl Epoll {
    pub(super) fn accept(&mut self, state: &mut BackendState, index: u32) {
        let fd = state.table.at(index).fd;
        for _ in 0..ACCEPTS_PER_ITERATION {
            state.stats.syscalls += 1;
            let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            // SAFETY: null pointers are valid: the peer's address is not requested.
            let accepted = unsafe { libc::accept4(fd, ptr::null_mut(), ptr::null_mut(), flags) };
            if accepted >= 0 {
                // SAFETY: the kernel has just created this descriptor for us.
                let accepted = unsafe { OwnedFd::from_raw_fd(accepted) };
                report(state, index, Outcome::Accepted(Ok(accepted)));
                continue;
            }
            match Errno::last().0 {
                libc::EAGAIN => return,
                // ECONNABORTED: the client has closed its connection before the accept. The listener still works.
                libc::ECONNABORTED | libc::EINTR => {}
                errno => return self.finish(state, index, -errno),
            }
        }
    }

    pub(super) fn recv(&mut self, state: &mut BackendState, index: u32) {
        let fd = state.table.at(index).fd;
        for _ in 0..RECEIVES_PER_ITERATION {
            let Some((start, room)) = state.stream.free_space() else {
                return self.starve(state, index);
            };
            state.stats.syscalls += 1;
            // SAFETY: this code has exclusive access to the room, which is `room` bytes long.
            let received = unsafe { libc::recv(fd, start.cast(), room, libc::MSG_DONTWAIT) };
            if received > 0 {
                let buffer = state.stream.received(received as u32);
                report(state, index, Outcome::Received(Ok(buffer)));
                if (received as usize) < room {
                    return;
                }
                continue;
            }
            match if received < 0 { Errno::last().0 } else { 0 } {
                libc::EAGAIN => return,
                libc::EINTR => {}
                // A result of 0 is the end of the stream.
                errno => return self.finish(state, index, -errno),
            }
        }
    }

    pub(super) fn recv_once(&mut self, state: &mut BackendState, index: u32) {
        let slot = state.table.at(index);
        let (fd, most) = match slot.payload {
            Payload::Most(most) => (slot.fd, most as usize),
            _ => unreachable!("a receive with another kind's payload"),
        };
        loop {
            let Some((start, room)) = state.stream.free_space() else {
                return self.starve(state, index);
            };
            state.stats.syscalls += 1;
            let most = most.min(room);
            // SAFETY: this code has exclusive access to the room, which is at least `most` bytes long.
            let received = unsafe { libc::recv(fd, start.cast(), most, libc::MSG_DONTWAIT) };
            if received > 0 {
                let buffer = state.stream.received(received as u32);
                let mut ready = mem::take(&mut state.ready);
                state.finish_with(index, Outcome::Received(Ok(buffer)), &mut ready);
                state.ready = ready;
                return self.change(fd, false);
            }
            match if received < 0 { Errno::last().0 } else { 0 } {
                libc::EAGAIN => return,
                libc::EINTR => {}
                // A result of 0 is the end of the stream.
                errno => return self.finish(state, index, -errno),
            }
        }
    }

    pub(super) fn recv_msg(&mut self, state: &mut BackendState, index: u32) {
        let fd = state.table.at(index).fd;
        for _ in 0..BATCHES_PER_ITERATION {
            let prepared = self.batch.prepare(state);
            if prepared == 0 {
                return self.starve(state, index);
            }
            state.stats.syscalls += 1;
            // SAFETY: `prepared` headers that point into buffers taken from the pool.
            let received = unsafe {
                libc::recvmmsg(
                    fd,
                    self.batch.headers.as_mut_ptr(),
                    prepared as u32,
                    libc::MSG_DONTWAIT as _,
                    ptr::null_mut(),
                )
            };
            let errno = if received < 0 { Errno::last().0 } else { 0 };
            self.batch
                .collect(state, index, prepared, received.max(0) as usize);
            match errno {
                0 if received as usize == BATCH => {}
                0 | libc::EAGAIN => return,
                libc::EINTR => {}
                errno => return self.finish(state, index, -errno),
            }
        }
    }

    /// Lets a receive wait until a buffer is free.
    fn starve(&mut self, state: &mut BackendState, index: u32) {
        state.stats.enobufs += 1;
        let op = state.table.id_at(index);
        state.table.set_phase(index, OpPhase::Starved);
        if state.table.at(index).kind == OpKind::RecvMsg {
            &mut self.starved_datagrams
        } else {
            &mut self.starved_streams
        }
        .push_back(op);
    }
}

fn report(state: &mut BackendState, index: u32, outcome: Outcome) {
    let mut ready = mem::take(&mut state.ready);
    state.report(index, outcome, &mut ready);
    state.ready = ready;
}

/// The arguments of `recvmmsg`, which are allocated once. Buffers get the layout of io_uring's multishot `recvmsg`, so
/// that `Datagram` parses those of both backends.
pub(super) struct Batch {
    headers: Box<[libc::mmsghdr; BATCH]>,
    iovecs: Box<[libc::iovec; BATCH]>,
    ids: [u16; BATCH],
}

impl Batch {
    pub(super) fn new() -> Batch {
        let header = libc::mmsghdr {
            msg_hdr: empty_header(),
            msg_len: 0,
        };
        let iovec = libc::iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        };
        Batch {
            headers: Box::new([header; BATCH]),
            iovecs: Box::new([iovec; BATCH]),
            ids: [0; BATCH],
        }
    }

    /// Takes up to [`BATCH`] free buffers, and lets the message headers point to them. Returns the number of buffers.
    fn prepare(&mut self, state: &BackendState) -> usize {
        let pool = &state.datagram;
        let mut count = 0;
        while count < BATCH
            && let Some(id) = pool.take()
        {
            let base = pool.address(id);
            self.ids[count] = id;
            let iovec = &mut self.iovecs[count];
            iovec.iov_base = base.wrapping_add(HEADER_ROOM).cast();
            iovec.iov_len = pool.buffer_size() as usize - HEADER_ROOM;
            let header = &mut self.headers[count].msg_hdr;
            *header = empty_header();
            header.msg_name = base.wrapping_add(HEADER_SIZE).cast();
            header.msg_namelen = NAME_ROOM as libc::socklen_t;
            header.msg_control = base.wrapping_add(HEADER_SIZE + NAME_ROOM).cast();
            header.msg_controllen = CONTROL_ROOM as _;
            header.msg_iov = iovec;
            header.msg_iovlen = 1;
            count += 1;
        }
        count
    }

    /// Reports received datagrams and returns the unused buffers.
    fn collect(&mut self, state: &mut BackendState, index: u32, prepared: usize, received: usize) {
        for position in 0..received {
            let id = self.ids[position];
            let libc::mmsghdr {
                msg_hdr: message,
                msg_len: length,
            } = self.headers[position];
            let header = Header {
                name_length: message.msg_namelen,
                control_length: message.msg_controllen as u32,
                payload_length: length,
                flags: message.msg_flags as u32,
            };
            // SAFETY: until `filled` only this code uses the buffer, which is longer than a header.
            unsafe {
                state
                    .datagram
                    .address(id)
                    .cast::<Header>()
                    .write_unaligned(header)
            };
            let buffer = state
                .datagram
                .filled(id, HEADER_ROOM as u32 + length, false);
            let datagram = Datagram::new(buffer).ok_or(Errno(libc::EIO));
            report(state, index, Outcome::Datagram(datagram));
        }
        for &id in self.ids[received..prepared].iter().rev() {
            state.datagram.put_back(id);
        }
    }
}

const ACCEPTS_PER_ITERATION: usize = 64;
const RECEIVES_PER_ITERATION: usize = 8;
const BATCH: usize = 16;
const BATCHES_PER_ITERATION: usize = 2;
