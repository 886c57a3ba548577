//! The thread that a ring is bound to, and the change of an idle driver to another thread.

use std::cell::Cell;
use std::io;
use std::mem::{self, ManuallyDrop};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{ENTER_REGISTERED_RING, Uring, queue_entries, setup};
use crate::common_backend_state::BackendState;
use crate::operation_table::OpId;

impl Uring {
    /// Binds the ring to this thread.
    pub(super) fn start(&mut self) -> io::Result<()> {
        self.ring.submitter().register_enable_rings()?;
        self.owner = thread_number();
        self.registered = setup::register_ring_fd(self.ring.as_raw_fd());
        if let Some(index) = self.registered {
            self.enter_fd = index;
            self.enter_flags = ENTER_REGISTERED_RING;
        }
        Ok(())
    }

    /// Makes a new ring that is bound to this thread, and moves to it operations that are queued, suspended, or wait
    /// for a buffer. Fails if operations of the old thread are in the kernel.
    pub(super) fn change_thread(&mut self, state: &mut BackendState) -> io::Result<()> {
        let mut ready = mem::take(&mut state.ready);
        self.take_completions(state, &mut ready);
        ready.append(&mut state.ready);
        state.ready = ready;
        self.abandon_polls(state);
        let queued = self
            .backlog
            .iter()
            .map(|entry| OpId::from_u64(entry.get_user_data()));
        let movable = queued.filter(|&op| state.table.get(op).is_some()).count();
        if state.table.in_kernel() != movable {
            return Err(foreign_thread());
        }
        let ring = setup::set_up_again(
            &self.config,
            &state.stream,
            &state.datagram,
            self.stream_flags,
        )?;
        // SAFETY: replaced at once. Only readiness waits are in this ring, which point to no memory.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
        self.ring = ManuallyDrop::new(ring);
        self.enter_fd = self.ring.as_raw_fd();
        self.enter_flags = 0;
        self.registered = None;
        self.owner = 0;
        self.watch_lost = false;
        self.idle_epoll.is_watched = false;
        self.backlog
            .push_front(queue_entries::watch_eventfd(state.waker.fd()));
        self.start()
    }

    pub(super) fn is_owner(&self) -> bool {
        self.owner == thread_number()
    }
}

fn foreign_thread() -> io::Error {
    io::Error::other(
        "operations of the thread that entered the driver before are in flight; another thread can \
         enter only an idle driver",
    )
}

/// The calling thread's number, which is never 0 and which no other thread of this process gets.
pub(super) fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static NUMBER: Cell<u64> = const { Cell::new(0) });
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}
