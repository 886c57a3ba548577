//! The epoll backend: produces io_uring's completions from readiness.
//!
//! | file | content |
//! | --- | --- |
//! | `attempt` | single operations, tried without blocking |
//! | `receive` | multishot operations: accept and receive |
//! | `set` | the kernel's epoll set |
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

mod attempt;
mod receive;
mod set;

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::Duration;

use crate::common::Common;
use crate::completion::Entered;
use crate::config::DriverConfig;
use crate::datagram::HEADER_ROOM;
use crate::errno::Errno;
use crate::op::{OpId, OpKind, OpPhase, Payload, Slot};
use crate::pool::Pool;
use crate::setup_error::SetupError;
use crate::waker::Waker;
use receive::Batch;
use set::{ReadyEvent, Set};

pub(crate) struct Epoll {
    set: Set,
    /// Indexed by descriptor.
    watches: Vec<Watch>,
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
struct Watch {
    registered: u32,
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
    ) -> Result<(Epoll, Rc<Pool>, Rc<Pool>), SetupError> {
        let set = Set::new(waker).map_err(|error| SetupError::epoll("epoll_create1", &error))?;
        let datagram_size = config.datagram_buffer_size + HEADER_ROOM as u32;
        let pools = Pool::new(config.stream_buffers, config.stream_buffer_size)
            .and_then(|stream| Ok((stream, Pool::new(config.datagram_buffers, datagram_size)?)));
        let (stream, datagram) = pools.map_err(|error| SetupError::epoll("mmap", &error))?;
        let epoll = Epoll {
            set,
            watches: Vec::new(),
            generation: 0,
            changed: Vec::new(),
            queued: VecDeque::new(),
            starved_streams: VecDeque::new(),
            starved_datagrams: VecDeque::new(),
            batch: Batch::new(),
        };
        Ok((epoll, stream, datagram))
    }

    pub(crate) fn queue(&mut self, _common: &mut Common, op: OpId) {
        self.queued.push_back(op);
    }

    /// Cancels the other operations on a descriptor that is being closed. Operations queued before the close have
    /// been tried by now, as in a ring.
    fn end_others(&mut self, common: &mut Common, fd: RawFd, close: u32) {
        let mut others = std::mem::take(&mut common.scratch);
        common.table.on_fd(fd, &mut others);
        for &index in others.iter().rev().filter(|&&index| index != close) {
            let result = cancelled_result(common.table.at(index));
            common.finish_later(index, result);
        }
        common.scratch = others;
    }

    /// The caller has marked the slot already.
    pub(crate) fn cancel(&mut self, common: &mut Common, op: OpId) {
        let slot = common.table.at(op.index());
        let (fd, result) = (slot.fd, cancelled_result(slot));
        common.finish_later(op.index(), result);
        self.change(fd, false);
    }

    pub(crate) fn enter(
        &mut self,
        common: &mut Common,
        timeout: Option<Duration>,
    ) -> io::Result<Entered> {
        self.start_queued(common);
        self.feed_starved(common);
        self.update_set(common);
        let wants_block = timeout != Some(Duration::ZERO) && common.ready.is_empty();
        let block = wants_block && common.waker.fall_asleep();
        common.stats.enters += 1;
        common.stats.syscalls += 1;
        let limit = if block { timeout } else { Some(Duration::ZERO) };
        let count = self.set.wait(limit, common.batch);
        // Only a reported wake is consumed: one that arrives during an `enter` that does not block must still end
        // the next sleep.
        let woken = wants_block && common.waker.get_up();
        let count = match count {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                if woken {
                    common.waker.keep();
                }
                return Ok(Entered::Interrupted);
            }
            Err(error) => return Err(error),
        };
        let mut orphans = false;
        for index in 0..count {
            let Some(event) = self.set.event(index) else {
                continue;
            };
            match self.is_known(&event) {
                true => self.handle_event(common, event.fd, event.events),
                false => orphans = true,
            }
        }
        if orphans {
            // If this fails for lack of a descriptor, the orphaned registrations stay, and the next wait
            // finds them again.
            let _ = self.move_to_new_set(common);
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
        let watch = self.watches.get(event.fd as usize);
        watch.is_some_and(|watch| watch.registered != 0 && watch.generation == event.generation)
    }

    /// In a forked child: the set is shared with the parent. Operations that were queued and not tried are tried by
    /// the parent; those that wait for readiness continue to wait here, too.
    pub(crate) fn leave_to_parent(&mut self, common: &mut Common) -> io::Result<()> {
        self.move_to_new_set(common)?;
        for _ in 0..self.queued.len() {
            let Some(op) = self.queued.pop_front() else {
                break;
            };
            let Some(slot) = common.table.get(op) else {
                continue;
            };
            if waits_first(slot) || slot.kind == OpKind::Close {
                self.queued.push_back(op);
            } else {
                common.finish_later(op.index(), -libc::ECANCELED);
            }
        }
        Ok(())
    }

    /// Moves to a new set, with only the recorded registrations.
    fn move_to_new_set(&mut self, common: &mut Common) -> io::Result<()> {
        self.set.replace(&common.waker)?;
        for (fd, watch) in self.watches.iter_mut().enumerate() {
            if watch.registered == 0 {
                continue;
            }
            common.stats.syscalls += 1;
            // Closed by other code: as silent as leaving the old set.
            let (wanted, generation) = (watch.registered, watch.generation);
            if self.set.change(fd as RawFd, 0, wanted, generation).is_err() {
                watch.registered = 0;
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
    pub(crate) fn start_queued(&mut self, common: &mut Common) {
        for _ in 0..self.queued.len() {
            let Some(op) = self.queued.pop_front() else {
                break;
            };
            if common.table.get(op).is_some() {
                self.start(common, op.index());
            }
        }
    }

    /// Bytes of the event array and of the table by descriptor.
    pub(crate) fn queues_bytes(&self) -> u64 {
        (self.set.events_bytes() + self.watches.capacity() * size_of::<Watch>()) as u64
    }

    /// The first attempt of a queued operation.
    fn start(&mut self, common: &mut Common, index: u32) {
        if waits_first(common.table.at(index)) {
            self.wait_for(common, index);
        } else {
            self.attempt(common, index, 0);
        }
    }

    /// The operation waits for readiness.
    fn wait_for(&mut self, common: &mut Common, index: u32) {
        common.table.set_phase(index, OpPhase::Polling);
        let slot = common.table.at(index);
        let is_known = matches!(slot.payload, Payload::EventsAgain(_));
        self.change(slot.fd, !is_known);
    }

    /// Ends the operation.
    fn finish(&mut self, common: &mut Common, index: u32, result: i32) {
        let fd = common.table.at(index).fd;
        common.finish_later(index, result);
        self.change(fd, false);
    }

    /// Requests a check of the descriptor's registration before the next wait.
    fn change(&mut self, fd: RawFd, renew: bool) {
        let Ok(position) = usize::try_from(fd) else {
            return;
        };
        if position >= self.watches.len() {
            self.watches.resize(position + 1, Watch::default());
        }
        let watch = &mut self.watches[position];
        watch.renew |= renew;
        if !std::mem::replace(&mut watch.changed, true) {
            self.changed.push(fd);
        }
    }

    fn update_set(&mut self, common: &mut Common) {
        // The list grows during this loop: operations on a regular file are carried out at once.
        while let Some(fd) = self.changed.pop() {
            self.update(common, fd);
        }
    }

    fn update(&mut self, common: &mut Common, fd: RawFd) {
        let wanted = self.wanted(common, fd);
        let watch = &mut self.watches[fd as usize];
        watch.changed = false;
        let renew = std::mem::replace(&mut watch.renew, false);
        if wanted == watch.registered && (wanted == 0 || !renew) {
            return;
        }
        let was = std::mem::replace(&mut watch.registered, wanted);
        // The counter may wrap: events of a registration arrive while its file is open, and none is 2^32
        // registrations older.
        self.generation = self.generation.wrapping_add(1);
        watch.generation = self.generation;
        common.stats.syscalls += 1;
        let changed = self.set.change(fd, was, wanted, self.generation);
        match (changed, wanted) {
            (Ok(()), _) | (Err(_), 0) => {}
            (Err(Errno(libc::EPERM)), _) => {
                self.watches[fd as usize].registered = 0;
                self.handle_event(common, fd, (libc::EPOLLIN | libc::EPOLLOUT) as u32);
            }
            (Err(errno), _) => {
                self.watches[fd as usize].registered = 0;
                self.fail_all(common, fd, errno);
            }
        }
    }

    /// The events that operations on this descriptor wait for.
    fn wanted(&mut self, common: &mut Common, fd: RawFd) -> u32 {
        let mut indexes = std::mem::take(&mut common.scratch);
        common.table.on_fd(fd, &mut indexes);
        let wanted = indexes
            .iter()
            .map(|&index| direction(common.table.at(index)))
            .fold(0, |all, one| all | one);
        common.scratch = indexes;
        wanted
    }

    /// The descriptor can't be waited for.
    fn fail_all(&mut self, common: &mut Common, fd: RawFd, errno: Errno) {
        let mut indexes = std::mem::take(&mut common.scratch);
        common.table.on_fd(fd, &mut indexes);
        for &index in indexes.iter().rev() {
            if common.table.at(index).phase == OpPhase::Polling {
                common.finish_later(index, -errno.0);
            }
        }
        common.scratch = indexes;
    }

    /// Handles readiness: every operation that waited for it is tried, oldest first.
    fn handle_event(&mut self, common: &mut Common, fd: RawFd, events: u32) {
        let mut indexes = std::mem::take(&mut common.scratch);
        common.table.on_fd(fd, &mut indexes);
        let mut used = false;
        for &index in indexes.iter().rev() {
            let slot = common.table.at(index);
            // The operation is tried when there are buffers, because readable data stays readable.
            used |= slot.phase == OpPhase::Starved;
            if events & (direction(slot) | TROUBLE) != 0 && slot.phase == OpPhase::Polling {
                used = true;
                self.attempt(common, index, events);
            }
        }
        common.scratch = indexes;
        if !used {
            // A registration that outlived its operations.
            self.change(fd, false);
        }
    }

    /// Continues starved receives, oldest first, while there are buffers. This happens before readable descriptors
    /// are handled; otherwise sockets with more to receive would take the buffers each time.
    fn feed_starved(&mut self, common: &mut Common) {
        while common.stream.available() > 0
            && let Some(op) = common.table.next_starved(&mut self.starved_streams)
        {
            self.feed(common, op.index());
        }
        while common.datagram.available() > 0
            && let Some(op) = common.table.next_starved(&mut self.starved_datagrams)
        {
            self.feed(common, op.index());
        }
        if !common.ready.is_empty() {
            return;
        }
        // The others leave the set: readable data that cannot be received would prevent sleeping.
        for position in 0..self.starved_streams.len() {
            self.unregister(common, self.starved_streams[position]);
        }
        for position in 0..self.starved_datagrams.len() {
            self.unregister(common, self.starved_datagrams[position]);
        }
    }

    /// Tries a receive whose socket was readable when the buffers had run out.
    fn feed(&mut self, common: &mut Common, index: u32) {
        let fd = common.table.at(index).fd;
        common.stats.rearms += 1;
        common.table.set_phase(index, OpPhase::Polling);
        self.attempt(common, index, 0);
        // The descriptor is still registered, unless it was starved for longer.
        self.change(fd, false);
    }

    fn unregister(&mut self, common: &mut Common, op: OpId) {
        if let Some(fd) = common.table.get(op).map(|slot| slot.fd)
            && self.watches[fd as usize].registered != 0
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
        OpKind::Poll => attempt::poll_events(slot),
        OpKind::File => attempt::file_events(slot),
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

const TROUBLE: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::completion::Outcome;
    use crate::op::{OpKind, Payload};

    /// The set's events carry 32 bits of a counter.
    #[test]
    fn registrations_are_found_where_their_count_wraps() {
        let config = DriverConfig::default();
        let waker = Waker::new().unwrap();
        let (mut epoll, stream, datagram) = Epoll::new(&config, &waker).unwrap();
        let mut common = Common::new(&config, waker, stream, datagram);
        epoll.generation = u32::MAX - 1;
        let pairs: Vec<_> = (0..4).map(|_| UnixStream::pair().unwrap()).collect();
        for (token, (ours, _)) in (0..).zip(&pairs) {
            let payload = Payload::Events(libc::POLLIN as u32);
            let op = common
                .table
                .insert(OpKind::Poll, ours.as_raw_fd(), token, payload);
            epoll.queue(&mut common, op.unwrap_or_else(|_| unreachable!()));
        }
        epoll.enter(&mut common, Some(Duration::ZERO)).unwrap();
        assert_eq!(
            epoll.generation, 2,
            "four registrations, and two of them behind the wrap"
        );
        for (_, theirs) in &pairs {
            (&*theirs).write_all(b"1").unwrap();
        }
        epoll.enter(&mut common, Some(Duration::ZERO)).unwrap();
        let mut tokens: Vec<_> = common
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
