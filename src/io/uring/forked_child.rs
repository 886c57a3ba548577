//! A ring's operations in a forked child, which has the parent's memory and must not touch its ring.
//!
//! Most children never run the loop that they were forked with, so the first `enter` sets up a ring of their own.
//! Until then every operation that may continue is suspended: those that only wait, and those that were taken back
//! from the kernel before the fork (the host suspends before it forks). Operations that the parent's kernel may be
//! carrying out at that moment end with ECANCELED here, because their progress is unknown.
//!
//! Connections and data that were received before the fork and not reported yet are in both processes; `Driver` handles
//! connections.

use std::collections::HashMap;
use std::io;
use std::mem::ManuallyDrop;

use super::suspension::{Suspended, close_directly};
use super::{Uring, setup};
use crate::backend_state::BackendState;
use crate::config::DriverConfig;
use crate::net::file_of;
use crate::operation_table::{OpId, OpKind, OpPhase, Slot};

pub(crate) struct Inherited {
    suspended: Vec<Suspended>,
    config: DriverConfig,
    stream_flags: u16,
}

impl Uring {
    /// For a forked child. The mappings and the descriptor are this process's to drop, but the ring must not be
    /// used.
    pub(crate) fn leave_to_parent(mut self, state: &mut BackendState) -> Inherited {
        state.stream.detach();
        state.datagram.detach();
        // SAFETY: dropped once, `self` ends here. Unmapping and closing affect this process only.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
        let known = self.suspended.drain(..).map(|one| (one.op, one.file));
        let known: HashMap<_, _> = known.collect();
        let mut suspended = Vec::new();
        for index in state.table.indexes() {
            // A close in the list may have been finished by the operation it waited for.
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
            // A file operation's descriptor may be a directory, or none.
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

    /// A ring of this process, suspended with all suspended operations.
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

/// True if the operation can also run here without taking anything from the parent.
fn can_continue(slot: &Slot) -> bool {
    let only_waits = match slot.kind {
        OpKind::Accept | OpKind::Connect | OpKind::Poll => true,
        OpKind::Recv | OpKind::RecvOnce | OpKind::RecvMsg => true,
        OpKind::Send | OpKind::SendVectored | OpKind::SendMsg => false,
        OpKind::File | OpKind::Close => false,
    };
    only_waits || slot.phase != OpPhase::Active
}
