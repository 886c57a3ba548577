//! The epoll backend: produces io_uring's completions from readiness.
//!
//! | file | content |
//! | --- | --- |
//! | `oneshot_operations` | single operations, tried without blocking |
//! | `multishot_operations` | multishot operations: accept and receive |
//! | `epoll_set` | the kernel's epoll set |
//!
//! This file has the state of each descriptor, and the turn.
//!
//! Facts about epoll that shape this:
//!
//! - Operations are tried at `enter`, batched at the end of a turn as a ring would; only those that return EAGAIN wait.
//! - Registrations are level-triggered and changed lazily, right before the wait: a receive that stays armed costs no
//!   `epoll_ctl`.
//! - ERR and HUP are always reported, so a descriptor without waiting operations must leave the set, or the loop spins.
//! - A descriptor that other code closes leaves the set silently, and its number may be reused for another file.
//!   Every new waiting operation therefore renews the registration, except for a poll whose caller guarantees that
//!   it is valid; ENOENT and EEXIST show that our record of it is stale.
//! - A registration belongs to the open file, not to the number: closing the number leaves it in the set while a
//!   duplicate exists, in a forked child for instance, where it cannot be removed any more. So each registration
//!   carries a generation; an event with another generation than the number's current one is ignored, and the only
//!   cure is a new set.
//! - Regular files can't be waited for (EPERM): they are read and written directly.

mod epoll_set;
mod multishot_operations;
mod oneshot_operations;

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::Duration;

use crate::backend_state::BackendState;
use crate::buffer_pool::BufferPool;
use crate::completion::Entered;
use crate::config::DriverConfig;
use crate::errno::Errno;
use crate::operation_table::{OpId, OpKind, OpPhase, Payload, Slot};
use crate::received_datagram::HEADER_ROOM;
use crate::setup_error::SetupError;
use crate::waker::Waker;
use epoll_set::{EpollSet, ReadyEvent};
use multishot_operations::Batch;

pub(crate) struct Epoll {
    set: EpollSet,
    /// Indexed by descriptor.
    registrations: Vec<Registration>,
    /// The generation of the latest registration of all.
    generation: u32,
    /// Descriptors whose registration must be checked before the next wait.
    changed: Vec<RawFd>,
    /// Operations that were not tried yet, in the order in which they were queued.
    queued: VecDeque<OpId>,
    /// Receives that wait for a buffer, oldest first.
    starved_streams: VecDeque<OpId>,
    starved_datagrams: VecDeque<OpId>,
    batch: Batch,
}

/// A descriptor's registration.
#[derive(Copy, Clone, Default)]
struct Registration {
    events: u32,
    /// The generation of the latest registration, which its events carry.
    generation: u32,
    /// True if it is listed in `changed`.
    changed: bool,
    /// A new operation waits: renew the registration even if it looks right.
    renew: bool,
}

impl Epoll {
    pub(crate) fn new(
        config: &DriverConfig,
        waker: &Waker,
    ) -> Result<(Epoll, Rc<BufferPool>, Rc<BufferPool>), SetupError> {
        let set =
            EpollSet::new(waker).map_err(|error| SetupError::epoll("epoll_create1", &error))?;
        let datagram_size = config.datagram_buffer_size + HEADER_ROOM as u32;
        let pools =
            BufferPool::new(config.stream_buffers, config.stream_buffer_size).and_then(|stream| {
                Ok((
                    stream,
                    BufferPool::new(config.datagram_buffers, datagram_size)?,
                ))
            });
        let (stream, datagram) = pools.map_err(|error| SetupError::epoll("mmap", &error))?;
        let epoll = Epoll {
            set,
            registrations: Vec::new(),
            generation: 0,
            changed: Vec::new(),
            queued: VecDeque::new(),
            starved_streams: VecDeque::new(),
            starved_datagrams: VecDeque::new(),
            batch: Batch::new(),
        };
        Ok((epoll, stream, datagram))
    }

    pub(crate) fn queue(&mut self, _state: &mut BackendState, op: OpId) {
        self.queued.push_back(op);
    }

    /// Cancels the other operations on a descriptor that is being closed. Operations queued before the close have
    /// been tried by now, as in a ring.
    fn end_others(&mut self, state: &mut BackendState, fd: RawFd, close: u32) {
        let mut others = std::mem::take(&mut state.scratch);
        state.table.on_fd(fd, &mut others);
        for &index in others.iter().rev().filter(|&&index| index != close) {
            let result = cancelled_result(state.table.at(index));
            state.finish_later(index, result);
        }
        state.scratch = others;
    }

    /// The caller has marked the slot already.
    pub(crate) fn cancel(&mut self, state: &mut BackendState, op: OpId) {
        let slot = state.table.at(op.index());
        let (fd, result) = (slot.fd, cancelled_result(slot));
        state.finish_later(op.index(), result);
        self.change(fd, false);
    }

    pub(crate) fn enter(
        &mut self,
        state: &mut BackendState,
        timeout: Option<Duration>,
    ) -> io::Result<Entered> {
        self.start_queued(state);
        self.resume_starved(state);
        self.update_set(state);
        let wants_block = timeout != Some(Duration::ZERO) && state.ready.is_empty();
        let block = wants_block && state.waker.begin_sleep();
        state.stats.enters += 1;
        state.stats.syscalls += 1;
        let limit = if block { timeout } else { Some(Duration::ZERO) };
        let count = self.set.wait(limit, state.batch);
        // Only a reported wake is consumed: one that arrives during an `enter` that does not block must still end
        // the next sleep.
        let woken = wants_block && state.waker.end_sleep();
        let count = match count {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                if woken {
                    state.waker.restore_wake();
                }
                return Ok(Entered::Interrupted);
            }
            Err(error) => return Err(error),
        };
        let mut stale_events = false;
        for index in 0..count {
            let Some(event) = self.set.event(index) else {
                continue;
            };
            match self.is_known(&event) {
                true => self.handle_event(state, event.fd, event.events),
                false => stale_events = true,
            }
        }
        if stale_events {
            // If this fails for lack of a descriptor, the orphaned registrations stay, and the next wait
            // finds them again.
            let _ = self.move_to_new_set(state);
        }
        Ok(match (woken, block && count == 0) {
            (true, _) => Entered::Woken,
            (false, true) => Entered::TimedOut,
            (false, false) => Entered::Ready,
        })
    }

    /// True if an event comes from the descriptor's present registration, not from an earlier file with that
    /// number.
    fn is_known(&self, event: &ReadyEvent) -> bool {
        let registration = self.registrations.get(event.fd as usize);
        registration.is_some_and(|registration| {
            registration.events != 0 && registration.generation == event.generation
        })
    }

    /// In a forked child: the set is shared with the parent. Operations that were queued and not tried are tried by
    /// the parent; those that wait for readiness continue to wait here, too.
    pub(crate) fn leave_to_parent(&mut self, state: &mut BackendState) -> io::Result<()> {
        self.move_to_new_set(state)?;
        for _ in 0..self.queued.len() {
            let Some(op) = self.queued.pop_front() else {
                break;
            };
            let Some(slot) = state.table.get(op) else {
                continue;
            };
            if waits_first(slot) || slot.kind == OpKind::Close {
                self.queued.push_back(op);
            } else {
                state.finish_later(op.index(), -libc::ECANCELED);
            }
        }
        Ok(())
    }

    /// Moves to a new set, with only the recorded registrations.
    fn move_to_new_set(&mut self, state: &mut BackendState) -> io::Result<()> {
        self.set.replace(&state.waker)?;
        for (fd, registration) in self.registrations.iter_mut().enumerate() {
            if registration.events == 0 {
                continue;
            }
            state.stats.syscalls += 1;
            // Closed by other code: as silent as leaving the old set.
            let (wanted, generation) = (registration.events, registration.generation);
            if self.set.change(fd as RawFd, 0, wanted, generation).is_err() {
                registration.events = 0;
            }
        }
        Ok(())
    }

    /// True if an operation must be started or registered.
    pub(crate) fn has_work(&self) -> bool {
        !self.queued.is_empty()
            || !self.changed.is_empty()
            || !self.starved_streams.is_empty()
            || !self.starved_datagrams.is_empty()
    }

    pub(crate) fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// Tries the operations queued now: the consequences of a completion belong to the next turn.
    pub(crate) fn start_queued(&mut self, state: &mut BackendState) {
        for _ in 0..self.queued.len() {
            let Some(op) = self.queued.pop_front() else {
                break;
            };
            if state.table.get(op).is_some() {
                self.start(state, op.index());
            }
        }
    }

    /// Bytes of the event array and of the table by descriptor.
    pub(crate) fn queues_bytes(&self) -> u64 {
        (self.set.events_bytes() + self.registrations.capacity() * size_of::<Registration>()) as u64
    }

    /// The first attempt of a queued operation.
    fn start(&mut self, state: &mut BackendState, index: u32) {
        if waits_first(state.table.at(index)) {
            self.wait_for(state, index);
        } else {
            self.attempt(state, index, 0);
        }
    }

    /// The operation waits for readiness.
    fn wait_for(&mut self, state: &mut BackendState, index: u32) {
        state.table.set_phase(index, OpPhase::Polling);
        let slot = state.table.at(index);
        let is_known = matches!(slot.payload, Payload::EventsAgain(_));
        self.change(slot.fd, !is_known);
    }

    /// Ends the operation.
    fn finish(&mut self, state: &mut BackendState, index: u32, result: i32) {
        let fd = state.table.at(index).fd;
        state.finish_later(index, result);
        self.change(fd, false);
    }

    /// Requests a check of the descriptor's registration before the next wait.
    fn change(&mut self, fd: RawFd, renew: bool) {
        let Ok(position) = usize::try_from(fd) else {
            return;
        };
        if position >= self.registrations.len() {
            self.registrations
                .resize(position + 1, Registration::default());
        }
        let registration = &mut self.registrations[position];
        registration.renew |= renew;
        if !std::mem::replace(&mut registration.changed, true) {
            self.changed.push(fd);
        }
    }

    fn update_set(&mut self, state: &mut BackendState) {
        // The list grows during this loop: operations on a regular file are carried out at once.
        while let Some(fd) = self.changed.pop() {
            self.update(state, fd);
        }
    }

    fn update(&mut self, state: &mut BackendState, fd: RawFd) {
        let wanted = self.wanted(state, fd);
        let registration = &mut self.registrations[fd as usize];
        registration.changed = false;
        let renew = std::mem::replace(&mut registration.renew, false);
        if wanted == registration.events && (wanted == 0 || !renew) {
            return;
        }
        let was = std::mem::replace(&mut registration.events, wanted);
        // The counter may wrap: events of a registration arrive while its file is open, and none is 2^32
        // registrations older.
        self.generation = self.generation.wrapping_add(1);
        registration.generation = self.generation;
        state.stats.syscalls += 1;
        let changed = self.set.change(fd, was, wanted, self.generation);
        match (changed, wanted) {
            (Ok(()), _) | (Err(_), 0) => {}
            (Err(Errno(libc::EPERM)), _) => {
                self.registrations[fd as usize].events = 0;
                self.handle_event(state, fd, (libc::EPOLLIN | libc::EPOLLOUT) as u32);
            }
            (Err(errno), _) => {
                self.registrations[fd as usize].events = 0;
                self.fail_all(state, fd, errno);
            }
        }
    }

    /// The events that operations on this descriptor wait for.
    fn wanted(&mut self, state: &mut BackendState, fd: RawFd) -> u32 {
        let mut indexes = std::mem::take(&mut state.scratch);
        state.table.on_fd(fd, &mut indexes);
        let wanted = indexes
            .iter()
            .map(|&index| direction(state.table.at(index)))
            .fold(0, |all, one| all | one);
        state.scratch = indexes;
        wanted
    }

    /// The descriptor can't be waited for.
    fn fail_all(&mut self, state: &mut BackendState, fd: RawFd, errno: Errno) {
        let mut indexes = std::mem::take(&mut state.scratch);
        state.table.on_fd(fd, &mut indexes);
        for &index in indexes.iter().rev() {
            if state.table.at(index).phase == OpPhase::Polling {
                state.finish_later(index, -errno.0);
            }
        }
        state.scratch = indexes;
    }

    /// Handles readiness: every operation that waited for it is tried, oldest first.
    fn handle_event(&mut self, state: &mut BackendState, fd: RawFd, events: u32) {
        let mut indexes = std::mem::take(&mut state.scratch);
        state.table.on_fd(fd, &mut indexes);
        let mut used = false;
        for &index in indexes.iter().rev() {
            let slot = state.table.at(index);
            // The operation is tried when there are buffers, because readable data stays readable.
            used |= slot.phase == OpPhase::Starved;
            if events & (direction(slot) | ERROR_EVENTS) != 0 && slot.phase == OpPhase::Polling {
                used = true;
                self.attempt(state, index, events);
            }
        }
        state.scratch = indexes;
        if !used {
            // A registration that outlived its operations.
            self.change(fd, false);
        }
    }

    /// Continues starved receives, oldest first, while there are buffers. This happens before readable descriptors
    /// are handled; otherwise sockets with more to receive would take the buffers each time.
    fn resume_starved(&mut self, state: &mut BackendState) {
        while state.stream.available() > 0
            && let Some(op) = state.table.next_starved(&mut self.starved_streams)
        {
            self.resume(state, op.index());
        }
        while state.datagram.available() > 0
            && let Some(op) = state.table.next_starved(&mut self.starved_datagrams)
        {
            self.resume(state, op.index());
        }
        if !state.ready.is_empty() {
            return;
        }
        // The others leave the set: readable data that cannot be received would prevent sleeping.
        for position in 0..self.starved_streams.len() {
            self.unregister(state, self.starved_streams[position]);
        }
        for position in 0..self.starved_datagrams.len() {
            self.unregister(state, self.starved_datagrams[position]);
        }
    }

    /// Tries a receive whose socket was readable when the buffers had run out.
    fn resume(&mut self, state: &mut BackendState, index: u32) {
        let fd = state.table.at(index).fd;
        state.stats.rearms += 1;
        state.table.set_phase(index, OpPhase::Polling);
        self.attempt(state, index, 0);
        // The descriptor is still registered, unless it was starved for longer.
        self.change(fd, false);
    }

    fn unregister(&mut self, state: &mut BackendState, op: OpId) {
        if let Some(fd) = state.table.get(op).map(|slot| slot.fd)
            && self.registrations[fd as usize].events != 0
        {
            self.change(fd, false);
        }
    }
}

/// True if an operation is not tried before its descriptor is ready.
fn waits_first(slot: &Slot) -> bool {
    matches!(
        slot.kind,
        OpKind::Accept | OpKind::Recv | OpKind::RecvOnce | OpKind::RecvMsg | OpKind::Poll
    )
}

/// The direction that a waiting operation waits for; 0 for all others.
fn direction(slot: &Slot) -> u32 {
    if slot.phase != OpPhase::Polling {
        return 0;
    }
    match slot.kind {
        OpKind::Accept | OpKind::Recv | OpKind::RecvOnce | OpKind::RecvMsg => libc::EPOLLIN as u32,
        OpKind::Poll => oneshot_operations::poll_events(slot),
        OpKind::File => oneshot_operations::file_events(slot),
        OpKind::Send | OpKind::SendVectored | OpKind::SendMsg | OpKind::Connect | OpKind::Close => {
            libc::EPOLLOUT as u32
        }
    }
}

/// A send that is cancelled half-way reports its progress, as the ring's does.
fn cancelled_result(slot: &Slot) -> i32 {
    if slot.progress > 0 {
        slot.progress as i32
    } else {
        -libc::ECANCELED
    }
}

const ERROR_EVENTS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::completion::Outcome;
    use crate::operation_table::{OpKind, Payload};

    /// The set's events carry 32 bits of a counter.
    #[test]
    fn events_match_their_registrations_when_the_generation_wraps() {
        let config = DriverConfig::default();
        let waker = Waker::new().unwrap();
        let (mut epoll, stream, datagram) = Epoll::new(&config, &waker).unwrap();
        let mut state = BackendState::new(&config, waker, stream, datagram);
        epoll.generation = u32::MAX - 1;
        let pairs: Vec<_> = (0..4).map(|_| UnixStream::pair().unwrap()).collect();
        for (token, (ours, _)) in (0..).zip(&pairs) {
            let payload = Payload::Events(libc::POLLIN as u32);
            let op = state
                .table
                .insert(OpKind::Poll, ours.as_raw_fd(), token, payload);
            epoll.queue(&mut state, op.unwrap_or_else(|_| unreachable!()));
        }
        epoll.enter(&mut state, Some(Duration::ZERO)).unwrap();
        assert_eq!(
            epoll.generation, 2,
            "four registrations, and two of them behind the wrap"
        );
        for (_, theirs) in &pairs {
            (&*theirs).write_all(b"1").unwrap();
        }
        epoll.enter(&mut state, Some(Duration::ZERO)).unwrap();
        let mut tokens: Vec<_> = state
            .ready
            .drain(..)
            .map(|completion| {
                assert!(matches!(completion.outcome, Outcome::Done(Ok(_))));
                completion.token
            })
            .collect();
        tokens.sort_unstable();
        assert_eq!(tokens, [0, 1, 2, 3]);
    }
}
