//! Operations with one result: sends, connects, closes, reads and writes of files. Each is tried without blocking, and
//! waits for readiness after EAGAIN.

use std::os::fd::{AsRawFd, IntoRawFd};

use super::Epoll;
use crate::common_backend_state::BackendState;
use crate::errno::Errno;
use crate::net;
use crate::operation_table::{OpKind, OpPhase, Payload, Slot};
use crate::outgoing_message::SEND_FLAGS;

impl Epoll {
    /// Tries an operation. `events` is the readiness that has caused the attempt; 0 at the first one.
    pub(super) fn attempt(&mut self, state: &mut BackendState, index: u32, events: u32) {
        match state.table.at(index).kind {
            OpKind::Accept => self.accept(state, index),
            OpKind::Recv => self.recv(state, index),
            OpKind::RecvOnce => self.recv_once(state, index),
            OpKind::RecvMsg => self.recv_msg(state, index),
            OpKind::Poll => {
                let wanted = poll_events(state.table.at(index)) | super::ERROR_EVENTS;
                self.finish(state, index, (events & wanted) as i32);
            }
            OpKind::Close => self.close(state, index),
            _ => self.transfer(state, index),
        }
    }

    /// Tries a send, a connect, a read or a write until it ends or returns EAGAIN.
    fn transfer(&mut self, state: &mut BackendState, index: u32) {
        loop {
            state.stats.syscalls += 1;
            let slot = state.table.at(index);
            match (step(slot), slot.kind) {
                (Step::Done(result), _) => return self.finish(state, index, result),
                (Step::Again, _) => {}
                (Step::Wait, _) => {
                    // An operation that has waited before still has a valid registration, which costs no `epoll_ctl`.
                    if slot.phase != OpPhase::Polling {
                        self.wait_for(state, index);
                    }
                    return;
                }
            }
        }
    }

    fn close(&mut self, state: &mut BackendState, index: u32) {
        let fd = state.table.at(index).fd;
        self.end_others(state, fd, index);
        let slot = state.table.at(index);
        let Payload::Descriptor(fd) = std::mem::replace(&mut slot.payload, Payload::None) else {
            return self.finish(state, index, -libc::EBADF);
        };
        // The registration is removed first. If a duplicate of the descriptor exists, the registration would otherwise
        // remain after the close.
        let raw = fd.as_raw_fd();
        if let Some(registration) = self.registrations.get_mut(raw as usize)
            && std::mem::take(&mut registration.events) != 0
        {
            state.stats.syscalls += 1;
            // This fails only if other code has closed the descriptor. The kernel has then removed the registration
            // itself.
            let _ = self.set.change(raw, 1, 0, 0);
        }
        state.stats.syscalls += 1;
        // SAFETY: this code owns the descriptor, which `into_raw_fd` released, and closes it once.
        let result = unsafe { libc::close(fd.into_raw_fd()) };
        let result = if result < 0 { -Errno::last().0 } else { 0 };
        self.finish(state, index, result);
    }
}

enum Step {
    Done(i32),
    /// The attempt made progress, or was interrupted.
    Again,
    Wait,
}

fn step(slot: &mut Slot) -> Step {
    let fd = slot.fd;
    match (slot.kind, &mut slot.payload) {
        (OpKind::Send, Payload::Bytes(data)) => {
            let rest = &data[slot.progress as usize..data.len().min(TRANSFER_MAX)];
            // SAFETY: `rest` is readable, with its length.
            let sent = unsafe { libc::send(fd, rest.as_ptr().cast(), rest.len(), SEND_FLAGS) };
            streamed(sent, &mut slot.progress, rest.len())
        }
        (OpKind::SendVectored, Payload::Gather(gather)) => {
            let rest = gather.total() - slot.progress as usize;
            // SAFETY: the header points into the payload, which the slot owns.
            let sent = unsafe { libc::sendmsg(fd, gather.header(), SEND_FLAGS) };
            if sent > 0 {
                gather.advance(sent as usize);
            }
            streamed(sent, &mut slot.progress, rest)
        }
        (OpKind::SendMsg, Payload::Message(message)) => {
            // SAFETY: the header points into the payload, which the slot owns.
            whole(unsafe { libc::sendmsg(fd, message.header(), SEND_FLAGS) })
        }
        (OpKind::Connect, Payload::Address(address)) => {
            if slot.phase == OpPhase::Polling {
                return Step::Done(net::connect_result(fd));
            }
            // SAFETY: an address with its own length.
            let result = unsafe { libc::connect(fd, address.as_ptr().cast(), address.len()) };
            match (result, if result < 0 { Errno::last().0 } else { 0 }) {
                (0, _) => Step::Done(0),
                // EINTR: an interrupted connect continues in the kernel. EALREADY: an earlier, cancelled operation has
                // begun to connect this socket.
                (_, libc::EINPROGRESS | libc::EALREADY | libc::EINTR) => Step::Wait,
                (_, errno) => Step::Done(-errno),
            }
        }
        (OpKind::File, Payload::File(request)) => match request.carry_out() {
            result if result == -libc::EAGAIN && request.readiness().is_some() => Step::Wait,
            result => Step::Done(result),
        },
        (kind, _) => unreachable!("a {kind:?} with another kind's payload"),
    }
}

/// The next step of a send of stream data after one system call. The send continues until all bytes are sent.
fn streamed(sent: isize, progress: &mut u32, rest: usize) -> Step {
    if sent < 0 {
        return match Errno::last().0 {
            libc::EAGAIN => Step::Wait,
            libc::EINTR => Step::Again,
            // The operation ends with the number of bytes that were sent. The next send returns the error.
            _ if *progress > 0 => Step::Done(*progress as i32),
            errno => Step::Done(-errno),
        };
    }
    *progress += sent as u32;
    if sent as usize == rest {
        Step::Done(*progress as i32)
    } else {
        Step::Again
    }
}

fn whole(result: isize) -> Step {
    if result >= 0 {
        return Step::Done(result as i32);
    }
    match Errno::last().0 {
        libc::EAGAIN => Step::Wait,
        libc::EINTR => Step::Again,
        errno => Step::Done(-errno),
    }
}

pub(super) fn poll_events(slot: &Slot) -> u32 {
    match slot.payload {
        Payload::Events(events) | Payload::EventsAgain(events) | Payload::EventsWeak(events) => {
            events
        }
        _ => 0,
    }
}

pub(super) fn file_events(slot: &Slot) -> u32 {
    match &slot.payload {
        Payload::File(request) => request.readiness().unwrap_or(0) as u32,
        _ => 0,
    }
}

/// The kernel's limit for one transfer in bytes (MAX_RW_COUNT).
const TRANSFER_MAX: usize = 0x7fff_f000;
