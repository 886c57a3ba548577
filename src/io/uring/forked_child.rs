//! The operations of a ring in a forked child, which has a copy of the parent's memory and must not use its ring.
//!
//! Most children never run the loop that they were forked with, so a child makes its own ring only at its first
//! `enter`. Until then its operations are suspended: those that only wait, and those that were taken back from the
//! kernel before the fork (the host suspends the driver before it forks). An operation that the kernel may be
//! executing for the parent ends with ECANCELED in the child, because its progress is unknown.
//!
//! Data that was received before the fork and not reported is in both processes. `Driver` leaves such connections to
//! the parent.

use std::collections::HashMap;
use std::io;
use std::mem::ManuallyDrop;

use super::suspension::{Suspended, close_directly};
use super::{Uring, setup};
use crate::common_backend_state::BackendState;
use crate::driver_config::DriverConfig;
use crate::net::file_of;
use crate::operation_table::{OpId, OpKind, OpPhase, Slot};

pub(crate) struct Inherited {
    suspended: Vec<Suspended>,
    config: DriverConfig,
    stream_flags: u16,
}

impl Uring {
    /// Drops the parent's ring in a forked child, without using it, and suspends the operations that can continue here.
    pub(crate) fn leave_to_parent(mut self, state: &mut BackendState) -> Inherited {
        state.stream.detach();
        state.datagram.detach();
        // SAFETY: dropped once, `self` ends here. Unmapping and closing affect this process only.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
        let known = self.suspended.drain(..).map(|one| (one.op, one.file));
        let known: HashMap<_, _> = known.collect();
        let mut suspended = Vec::new();
        for index in state.table.indexes() {
            // When this operation ends, a close that waited for it may end, too. That close is later in this list.
            if !state.table.is_live(index) {
                continue;
            }
            let op = state.table.id_at(index);
            let slot = state.table.at(index);
            if slot.kind == OpKind::Close {
                close_directly(state, index);
            } else if slot.cancelled || slot.discarded || !can_continue(slot) {
                state.finish_later(index, -libc::ECANCELED);
            } else {
                let file = known.get(&op).copied().unwrap_or_else(|| file_of(slot.fd));
                state.table.set_phase(index, OpPhase::Suspended);
                suspended.push(Suspended {
                    op,
                    file,
                    is_silent: false,
                });
            }
        }
        Inherited {
            suspended,
            config: self.config.clone(),
            stream_flags: self.stream_flags,
        }
    }
}

impl Inherited {
    pub(crate) fn queue(&mut self, state: &mut BackendState, op: OpId) {
        let index = op.index();
        let Slot { kind, fd, .. } = *state.table.at(index);
        if kind != OpKind::Close {
            // A file operation may have no descriptor, or that of a directory.
            let file = file_of(fd).filter(|_| kind != OpKind::File);
            state.table.set_phase(index, OpPhase::Suspended);
            return self.suspended.push(Suspended {
                op,
                file,
                is_silent: false,
            });
        }
        let mut others = std::mem::take(&mut state.scratch);
        state.table.on_fd(fd, &mut others);
        for &other in others.iter().rev().filter(|&&other| other != index) {
            state.finish_later(other, -libc::ECANCELED);
        }
        state.scratch = others;
        state.table.adopt(index);
        close_directly(state, index);
    }

    /// Makes a ring of this process. It is suspended, with all operations.
    pub(crate) fn set_up(&mut self, state: &mut BackendState) -> io::Result<Uring> {
        let (stream, datagram) = (&state.stream, &state.datagram);
        let ring = setup::set_up_again(&self.config, stream, datagram, self.stream_flags)?;
        let mut uring = Uring::with_ring(ring, &self.config, self.stream_flags, &state.waker);
        uring.suspended = std::mem::take(&mut self.suspended);
        uring.is_suspended = true;
        uring.watch_lost = true;
        Ok(uring)
    }
}

/// True if the child can execute the operation as well: the operation only waits, or it was not in the kernel at the
/// time of the fork.
fn can_continue(slot: &Slot) -> bool {
    let only_waits = match slot.kind {
        OpKind::Accept | OpKind::Connect | OpKind::Poll => true,
        OpKind::Recv | OpKind::RecvOnce | OpKind::RecvMsg => true,
        OpKind::Send | OpKind::SendVectored | OpKind::SendMsg => false,
        OpKind::File | OpKind::Close => false,
    };
    only_waits || slot.phase != OpPhase::Active
}
