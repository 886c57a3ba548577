//! Entries of the ring's queues, in the kernel's format: submission entries of operations, and completion entries.

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{CancelBuilder, Fd};
use io_uring::{cqueue, opcode};
use std::os::fd::RawFd;
use std::ptr;

use super::setup::{DATAGRAM_GROUP, STREAM_GROUP};
use crate::operation_table::{OpId, OpKind, Payload, Slot};
use crate::outgoing_message::empty_header;
use crate::received_datagram::{CONTROL_ROOM, NAME_ROOM};

/// Makes the submission entry of an operation. Its pointers are into the slot's payload.
pub(super) fn operation(op: OpId, slot: &mut Slot, receive_header: &libc::msghdr) -> Entry {
    let fd = Fd(slot.fd);
    let entry = match (slot.kind, &mut slot.payload) {
        (OpKind::Accept, _) => opcode::AcceptMulti::new(fd)
            .flags(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC)
            .build(),
        (OpKind::RecvOnce, Payload::Most(most)) => opcode::Recv::new(fd, ptr::null_mut(), *most)
            .buf_group(STREAM_GROUP)
            .build()
            .flags(Flags::BUFFER_SELECT),
        (OpKind::Recv, _) => opcode::RecvMulti::new(fd, STREAM_GROUP).build(),
        (OpKind::RecvMsg, _) => {
            opcode::RecvMsgMulti::new(fd, receive_header, DATAGRAM_GROUP).build()
        }
        (OpKind::Send, Payload::Bytes(data)) => {
            // WAITALL: if the socket's buffer is full, the kernel waits and sends the rest.
            let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
            opcode::Send::new(fd, data.as_ptr(), length(data.len()))
                .flags(flags)
                .build()
        }
        (OpKind::SendVectored, Payload::Gather(gather)) => {
            let flags = (libc::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32;
            opcode::SendMsg::new(fd, gather.header())
                .flags(flags)
                .build()
        }
        // DONTWAIT: the driver waits for readiness itself if the receiver's buffer is full. If io_uring waited, its
        // second attempt on a Unix datagram socket would send an empty datagram, because the first has consumed the
        // data (Linux 6.18).
        (OpKind::SendMsg, Payload::Message(message)) => opcode::SendMsg::new(fd, message.header())
            .flags((libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) as u32)
            .build(),
        (OpKind::Connect, Payload::Address(address)) => {
            opcode::Connect::new(fd, address.as_ptr().cast(), address.len()).build()
        }
        (
            OpKind::Poll,
            Payload::Events(events) | Payload::EventsAgain(events) | Payload::EventsWeak(events),
        ) => opcode::PollAdd::new(fd, *events).build(),
        (OpKind::File, Payload::File(request)) => request.entry(),
        (kind, _) => unreachable!("a {kind:?} with another kind's payload"),
    };
    entry.user_data(op.as_u64())
}

/// Makes the entry that waits for readiness before an operation is tried again. It is needed after EAGAIN, which
/// io_uring returns for O_NONBLOCK pipes and terminals instead of waiting.
pub(super) fn readiness(op: OpId, slot: &Slot) -> Entry {
    let events = match slot.kind {
        OpKind::File => file_events(slot),
        OpKind::Recv | OpKind::RecvMsg | OpKind::Accept | OpKind::RecvOnce => libc::POLLIN,
        _ => libc::POLLOUT,
    };
    opcode::PollAdd::new(Fd(slot.fd), events as u32)
        .build()
        .user_data(op.as_u64())
}

/// Replaces the kernel's internal codes for a restart by EINTR. No system call returns these codes, but an interrupted
/// worker thread of io_uring may (seen with the opening of a FIFO, Linux 6.18).
#[inline]
fn without_restart(result: i32) -> i32 {
    if (-ERESTART_LAST..=-ERESTART_FIRST).contains(&result) {
        -libc::EINTR
    } else {
        result
    }
}

fn file_events(slot: &Slot) -> libc::c_short {
    match &slot.payload {
        Payload::File(request) => request.readiness().unwrap_or(libc::POLLIN),
        _ => libc::POLLIN,
    }
}

pub(super) fn cancel(op: OpId) -> Entry {
    // Without the flag ALL, the cancel applies to one operation. With SKIP_SUCCESS a successful cancel has no
    // completion of its own.
    opcode::AsyncCancel::new(op.as_u64())
        .build()
        .flags(Flags::SKIP_SUCCESS)
        .user_data(IGNORED)
}

pub(super) fn cancel_everything() -> Entry {
    opcode::AsyncCancel2::new(CancelBuilder::any().all())
        .build()
        .user_data(SUSPEND)
}

/// Makes the entry of a close, for a descriptor without operations in the kernel.
pub(super) fn close(op: OpId, fd: RawFd) -> Entry {
    opcode::Close::new(Fd(fd)).build().user_data(op.as_u64())
}

/// Makes two linked entries that cancel all operations of a descriptor and close it. An armed multishot operation would
/// keep the socket alive after the close, and the peer would get no FIN. The link is a hard one: if there is nothing to
/// cancel, the first entry fails, and the close must be executed nevertheless.
pub(super) fn cancel_and_close(op: OpId, fd: RawFd) -> [Entry; 2] {
    let cancel = opcode::AsyncCancel2::new(CancelBuilder::fd(Fd(fd)).all())
        .build()
        .flags(Flags::IO_HARDLINK | Flags::SKIP_SUCCESS)
        .user_data(IGNORED);
    [cancel, close(op, fd)]
}

/// Makes the multishot poll of the waker's eventfd. Every write to the eventfd completes it, so the eventfd is never
/// read.
pub(super) fn watch_eventfd(fd: RawFd) -> Entry {
    opcode::PollAdd::new(Fd(fd), libc::POLLIN as u32)
        .multi(true)
        .build()
        .user_data(WAKE)
}

/// Makes the poll that completes when the idle epoll set (`idle_epoll`) has an event.
pub(super) fn watch_set(fd: RawFd) -> Entry {
    opcode::PollAdd::new(Fd(fd), libc::POLLIN as u32)
        .build()
        .user_data(IDLE_EPOLL)
}

/// Makes the template of multishot `recvmsg`, which contains the sizes of the address and of the control messages.
pub(super) fn receive_header() -> Box<libc::msghdr> {
    let mut header = Box::new(empty_header());
    header.msg_namelen = NAME_ROOM as libc::socklen_t;
    header.msg_controllen = CONTROL_ROOM as _;
    header
}

/// The fields of a completion entry that the driver uses.
#[derive(Copy, Clone)]
pub(super) struct CompletionEntry {
    pub(super) user_data: u64,
    pub(super) result: i32,
    flags: u32,
}

impl CompletionEntry {
    #[inline]
    pub(super) fn new(entry: &cqueue::Entry) -> CompletionEntry {
        CompletionEntry {
            user_data: entry.user_data(),
            result: without_restart(entry.result()),
            flags: entry.flags(),
        }
    }

    #[inline]
    pub(super) fn more(self) -> bool {
        cqueue::more(self.flags)
    }

    #[inline]
    pub(super) fn buffer(self) -> Option<u16> {
        cqueue::buffer_select(self.flags)
    }

    #[inline]
    pub(super) fn kernel_keeps_buffer(self) -> bool {
        cqueue::buffer_more(self.flags)
    }
}

/// Limits the length of one transfer to the kernel's limit (MAX_RW_COUNT). A longer transfer completes short.
fn length(bytes: usize) -> u32 {
    bytes.min(0x7fff_f000) as u32
}

/// The `user_data` of entries without an operation. Their kind is 0, which no operation has.
pub(super) const IGNORED: u64 = 0;
pub(super) const WAKE: u64 = 1;
pub(super) const SUSPEND: u64 = 2;
pub(super) const IDLE_EPOLL: u64 = 3;
/// The kernel's codes from ERESTARTSYS to ERESTART_RESTARTBLOCK.
const ERESTART_FIRST: i32 = 512;
const ERESTART_LAST: i32 = 516;
