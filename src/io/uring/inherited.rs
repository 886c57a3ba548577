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

use super::suspend::{Suspended, close_now};
use super::{Uring, setup};
use crate::common::Common;
use crate::config::DriverConfig;
use crate::net::file_of;
use crate::op::{OpId, OpKind, OpPhase, Slot};

pub(crate) struct Inherited {
    suspended: Vec<Suspended>,
    config: DriverConfig,
    stream_flags: u16,
}

impl Uring {
    /// For a forked child. The mappings and the descriptor are this process's to drop, but the ring must not be
    /// used.
    pub(crate) fn leave_to_parent(mut self, common: &mut Common) -> Inherited {
        common.stream.detach();
        common.datagram.detach();
        // SAFETY: dropped once, `self` ends here. Unmapping and closing affect this process only.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
        let known = self.suspended.drain(..).map(|one| (one.op, one.file));
        let known: HashMap<_, _> = known.collect();
        let mut suspended = Vec::new();
        for index in common.table.indexes() {
            // A close in the list may have been finished by the operation it waited for.
            if !common.table.is_live(index) {
                continue;
            }
            let op = common.table.id_at(index);
            let slot = common.table.at(index);
            if slot.kind == OpKind::Close {
                close_now(common, index);
            } else if slot.cancelled || slot.discarded || !goes_on(slot) {
                common.finish_later(index, -libc::ECANCELED);
            } else {
                let file = known.get(&op).copied().unwrap_or_else(|| file_of(slot.fd));
                common.table.set_phase(index, OpPhase::Suspended);
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
    pub(crate) fn queue(&mut self, common: &mut Common, op: OpId) {
        let index = op.index();
        let Slot { kind, fd, .. } = *common.table.at(index);
        if kind != OpKind::Close {
            // A file operation's descriptor may be a directory, or none.
            let file = file_of(fd).filter(|_| kind != OpKind::File);
            common.table.set_phase(index, OpPhase::Suspended);
            return self.suspended.push(Suspended {
                op,
                file,
                is_silent: false,
            });
        }
        let mut others = std::mem::take(&mut common.scratch);
        common.table.on_fd(fd, &mut others);
        for &other in others.iter().rev().filter(|&&other| other != index) {
            common.finish_later(other, -libc::ECANCELED);
        }
        common.scratch = others;
        common.table.adopt(index);
        close_now(common, index);
    }

    /// A ring of this process, suspended with all suspended operations.
    pub(crate) fn set_up(&mut self, common: &mut Common) -> io::Result<Uring> {
        let (stream, datagram) = (&common.stream, &common.datagram);
        let ring = setup::set_up_again(&self.config, stream, datagram, self.stream_flags)?;
        let mut uring = Uring::over(ring, &self.config, self.stream_flags, &common.waker);
        uring.suspended = std::mem::take(&mut self.suspended);
        uring.resting = true;
        uring.watch_lost = true;
        Ok(uring)
    }
}

/// True if the operation can also run here without taking anything from the parent.
fn goes_on(slot: &Slot) -> bool {
    let only_waits = match slot.kind {
        OpKind::Accept | OpKind::Connect | OpKind::Poll => true,
        OpKind::Recv | OpKind::RecvOnce | OpKind::RecvMsg => true,
        OpKind::Send | OpKind::SendVectored | OpKind::SendMsg => false,
        OpKind::File | OpKind::Close => false,
    };
    only_waits || slot.phase != OpPhase::Active
}
