//! The epoll backend: waits for readiness, executes operations by system calls, and makes the completions that
//! io_uring would make.
//!
//! | file | content |
//! | --- | --- |
//! | `oneshot_operations` | operations with one result: sends, connects, closes, files |
//! | `accept_and_receive` | receives, and accepts with many results |
//! | `epoll_set` | the kernel's epoll set |
//!
//! This file has the registrations of descriptors, and `enter`.
//!
//! Queued operations are tried in `enter`, all together, as a ring would submit them. Those that return EAGAIN wait
//! for readiness.
//!
//! Facts about epoll that shape this backend:
//!
//! - Registrations are level-triggered, and they are changed only right before the wait. So a receive that stays
//!   armed costs no `epoll_ctl`.
//! - epoll always reports ERR and HUP. So a descriptor without waiting operations must leave the set, or the loop
//!   would spin.
//! - A descriptor that other code closes leaves the set silently, and its number may be reused for another file. So
//!   each operation that begins to wait renews the registration, except for a poll whose caller guarantees that it is
//!   valid. ENOENT and EEXIST show that our record of the registration is stale.
//! - A registration belongs to the open file and not to the number. While a duplicate of a closed descriptor exists,
//!   for instance in a forked child, the registration stays in the set and cannot be removed. So each registration
//!   has a generation. An event whose generation is not the number's latest one is ignored, and all valid
//!   registrations move to a new set.
//! - Regular files cannot be waited for (EPERM). They are read and written directly.

mod accept_and_receive;
mod epoll_set;
mod oneshot_operations;

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::Duration;

use crate::backend_setup_error::SetupError;
use crate::common_backend_state::BackendState;
use crate::completion::Entered;
use crate::driver_config::DriverConfig;
use crate::errno::Errno;
use crate::operation_table::{OpId, OpKind, OpPhase, Payload, Slot};
use crate::receive_buffer_pool::BufferPool;
use crate::received_datagram::HEADER_ROOM;
use crate::waker::Waker;
use accept_and_receive::Batch;
use epoll_set::{EpollSet, ReadyEvent};

pub(crate) struct Epoll {
    set: EpollSet,
    /// The registration of each descriptor; the index is the descriptor.
    registrations: Vec<Registration>,
    /// The generation of the newest registration.
    generation: u32,
    /// Descriptors whose registration is checked before the next wait.
    changed: Vec<RawFd>,
    /// Operations that were not tried yet, oldest first.
    queued: VecDeque<OpId>,
    /// Receives of streams that wait for a free buffer, oldest first.
    starved_streams: VecDeque<OpId>,
    /// Receives of datagrams that wait for a free buffer, oldest first.
    starved_datagrams: VecDeque<OpId>,
    /// The arguments of `recvmmsg`.
    batch: Batch,
}

/// The registration of a descriptor in the epoll set.
#[derive(Copy, Clone, Default)]
struct Registration {
    /// The registered events; 0 if the descriptor is not in the set.
    events: u32,
    /// The generation of the registration. Its events carry this number.
    generation: u32,
    /// True if the descriptor is in `changed`.
    changed: bool,
    /// True if an operation has begun to wait. The registration is then renewed, even if it has the right events
    /// already.
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

    /// Cancels the other operations of a descriptor that is being closed. Operations that were queued before the close
    /// have been tried already, as in a ring.
    fn end_others(&mut self, state: &mut BackendState, fd: RawFd, close: u32) {
        let mut others = std::mem::take(&mut state.scratch);
        state.table.on_fd(fd, &mut others);
        for &index in others.iter().rev().filter(|&&index| index != close) {
            let result = cancelled_result(state.table.at(index));
            state.finish_later(index, result);
        }
        state.scratch = others;
    }

    /// Cancels an operation whose slot the caller has marked as cancelled.
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
        // A call that does not block must not consume a wake, which has to end the next sleep.
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
            // If no descriptor is free for a new set, this fails. The stale registrations then stay in the old set, and
            // the next wait returns their events again.
            let _ = self.move_to_new_set(state);
        }
        Ok(match (woken, block && count == 0) {
            (true, _) => Entered::Woken,
            (false, true) => Entered::TimedOut,
            (false, false) => Entered::Ready,
        })
    }

    /// True if the event belongs to the descriptor's registration. False if it belongs to an earlier file with this
    /// number.
    fn is_known(&self, event: &ReadyEvent) -> bool {
        let registration = self.registrations.get(event.fd as usize);
        registration.is_some_and(|registration| {
            registration.events != 0 && registration.generation == event.generation
        })
    }

    /// Makes a new epoll set in a forked child, because the old set is the parent's too. Operations that wait for
    /// readiness then wait in both processes. Operations that were queued and not tried end here, because the parent
    /// tries them.
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

    /// Makes a new set, and registers the descriptors in it whose registrations are valid.
    fn move_to_new_set(&mut self, state: &mut BackendState) -> io::Result<()> {
        self.set.replace(&state.waker)?;
        for (fd, registration) in self.registrations.iter_mut().enumerate() {
            if registration.events == 0 {
                continue;
            }
            state.stats.syscalls += 1;
            // Registering a descriptor that other code has closed fails. Its operations then never complete, as in the
            // old set: closing a descriptor removes it from an epoll set without an event.
            let (wanted, generation) = (registration.events, registration.generation);
            if self.set.change(fd as RawFd, 0, wanted, generation).is_err() {
                registration.events = 0;
            }
        }
        Ok(())
    }

    /// True if an operation must be tried or registered.
    pub(crate) fn has_work(&self) -> bool {
        !self.queued.is_empty()
            || !self.changed.is_empty()
            || !self.starved_streams.is_empty()
            || !self.starved_datagrams.is_empty()
    }

    pub(crate) fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// Tries the operations that are queued. Operations that are queued as a result are tried in the next loop
    /// iteration.
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

    /// Bytes of the event array and of the registrations.
    pub(crate) fn queues_bytes(&self) -> u64 {
        (self.set.events_bytes() + self.registrations.capacity() * size_of::<Registration>()) as u64
    }

    /// Tries a queued operation for the first time, or lets it wait for readiness at once.
    fn start(&mut self, state: &mut BackendState, index: u32) {
        if waits_first(state.table.at(index)) {
            self.wait_for(state, index);
        } else {
            self.attempt(state, index, 0);
        }
    }

    /// Lets an operation wait for readiness.
    fn wait_for(&mut self, state: &mut BackendState, index: u32) {
        state.table.set_phase(index, OpPhase::Polling);
        let slot = state.table.at(index);
        let is_known = matches!(slot.payload, Payload::EventsAgain(_));
        self.change(slot.fd, !is_known);
    }

    /// Ends an operation. If no other operation waits for its events, the registration no longer includes them.
    fn finish(&mut self, state: &mut BackendState, index: u32, result: i32) {
        let fd = state.table.at(index).fd;
        state.finish_later(index, result);
        self.change(fd, false);
    }

    /// Requests that the descriptor's registration is checked before the next wait, and renewed if `renew` is true.
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
        // The list may grow during this loop, because operations on regular files are executed in it.
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
        // The counter may wrap. Events arrive only while the registration's file is open, and no open file is 2^32
        // registrations old.
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

    /// The events that operations of this descriptor wait for.
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

    /// Fails all waiting operations of a descriptor that cannot be registered.
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

    /// Handles an event: tries the operations that waited for it, oldest first.
    fn handle_event(&mut self, state: &mut BackendState, fd: RawFd, events: u32) {
        let mut indexes = std::mem::take(&mut state.scratch);
        state.table.on_fd(fd, &mut indexes);
        let mut used = false;
        for &index in indexes.iter().rev() {
            let slot = state.table.at(index);
            // A receive without a buffer is tried when one is free. Its data stays in the socket.
            used |= slot.phase == OpPhase::Starved;
            if events & (direction(slot) | ERROR_EVENTS) != 0 && slot.phase == OpPhase::Polling {
                used = true;
                self.attempt(state, index, events);
            }
        }
        state.scratch = indexes;
        if !used {
            // No operation waits for the event, so the registration is removed.
            self.change(fd, false);
        }
    }

    /// Continues receives that wait for a buffer, oldest first, while buffers are free. This happens before new
    /// events are handled. Otherwise sockets that always have more data would take the buffers each time.
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
        // Receives that still wait for a buffer are removed from the set. Otherwise readable data without a free buffer
        // would end each sleep at once.
        for position in 0..self.starved_streams.len() {
            self.unregister(state, self.starved_streams[position]);
        }
        for position in 0..self.starved_datagrams.len() {
            self.unregister(state, self.starved_datagrams[position]);
        }
    }

    /// Tries a receive that has waited for a buffer.
    fn resume(&mut self, state: &mut BackendState, index: u32) {
        let fd = state.table.at(index).fd;
        state.stats.rearms += 1;
        state.table.set_phase(index, OpPhase::Polling);
        self.attempt(state, index, 0);
        // A descriptor that has waited for long was removed from the set, and is registered again.
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

/// True for operations that must not be tried before their descriptor is ready.
fn waits_first(slot: &Slot) -> bool {
    matches!(
        slot.kind,
        OpKind::Accept | OpKind::Recv | OpKind::RecvOnce | OpKind::RecvMsg | OpKind::Poll
    )
}

/// The events that an operation waits for; 0 if it does not wait.
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

/// The result of a cancelled operation: ECANCELED, or the number of bytes that a send has sent, as with io_uring.
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

    /// Events carry the generation of their registration, which is a counter of 32 bits.
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
