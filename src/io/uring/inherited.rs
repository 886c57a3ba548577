//! A ring's operations in a forked child, which has the parent's memory and must not touch its ring.
//!
//! Most children never run the loop that they were forked with, so a ring of their own is set up by the
//! first `enter`. Until then everything that may go on is suspended: what only waits, and what was taken back
//! from the kernel before the fork (the host comes to rest before it forks). What the parent's kernel may
//! be carrying out at that moment ends with ECANCELED here, for nobody can say how far it gets.
//!
//! What was accepted or received before the fork and not told yet is in both processes; `Driver` sees to
//! connections.

use std::collections::HashMap;
use std::io;
use std::mem::ManuallyDrop;

use super::suspend::{Suspended, close_now};
use super::{Uring, setup};
use crate::common::Common;
use crate::config::DriverConfig;
use crate::net::file_of;
use crate::op::{OpId, OpKind, Phase, Slot};

pub(crate) struct Inherited {
    suspended: Vec<Suspended>,
    config: DriverConfig,
    stream_flags: u16,
}

impl Uring {
    /// In a forked child. The mappings and the descriptor are ours to drop, the ring is not ours to speak
    /// to.
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
                common.table.set_phase(index, Phase::Suspended);
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
            common.table.set_phase(index, Phase::Suspended);
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

    /// A ring of this process, at rest with all that was suspended.
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

/// True if doing it here as well takes nothing away from what the parent's kernel does.
fn goes_on(slot: &Slot) -> bool {
    let only_waits = match slot.kind {
        OpKind::Accept | OpKind::Connect | OpKind::Poll => true,
        OpKind::Recv | OpKind::RecvOnce | OpKind::RecvMsg => true,
        OpKind::Send | OpKind::SendVectored | OpKind::SendMsg => false,
        OpKind::File | OpKind::Close => false,
    };
    only_waits || slot.phase != Phase::Active
}
