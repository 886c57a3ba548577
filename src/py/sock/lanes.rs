//! What a loop knows about the sockets of its `sock_*` calls: whose turn it is, what is held.
//!
//! - **Lanes.** In each direction a socket has at most one operation in flight; the others wait their
//!   turn. Two sends in the kernel could overtake each other, and a receive that is being cancelled may
//!   still bring bytes, which the next one must get first.
//! - **Late starts.** An operation is started at the end of the turn, after a look whether its socket
//!   still has its descriptor: a number that was closed and given away within the turn must not cost
//!   its new owner a byte.
//! - **Held results.** What a receive or an accept brought for a waiter that was cancelled is kept for
//!   the Python socket object (weakly, by the object; a descriptor's number says nothing) and goes to
//!   the next call. It is at most what one operation brings, for nothing is asked of the kernel while
//!   something is held.
//!
//! The calls themselves are in `calls`, held results in `orphans`, futures and cancelling in `ops::waiting`.

use std::collections::{HashMap, VecDeque};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3::{PyTraverseError, PyVisit};
use uringcore_engine::Key;
use uringcore_io::{Driver, Interest, OpId, Outcome, SendMsg, SockAddr, Token};

use crate::capi::error;
use crate::event_loop::hosts::{host_at, host_take};
use crate::event_loop::loop_core::LoopCore;
use crate::ops::waiting;
use crate::sock::orphans::{Held, take_held};
use crate::sock::plain_socket::fileno;

/// A direction of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    In = 0,
    Out = 1,
}

/// What is to be asked of the driver.
pub enum Request {
    Recv(u32),
    RecvFrom(usize),
    Accept,
    Send(Bytes),
    SendTo(Bytes, Option<SockAddr>),
    Connect(SockAddr),
    /// Room for more; nothing is sent.
    Writable,
}

impl Request {
    pub fn way(&self) -> Way {
        match self {
            Self::Recv(_) | Self::RecvFrom(_) | Self::Accept => Way::In,
            Self::Send(_) | Self::SendTo(..) | Self::Connect(_) | Self::Writable => Way::Out,
        }
    }

    fn queue(self, driver: &mut Driver, fd: RawFd, token: Token) -> OpId {
        match self {
            Self::Recv(most) => driver.recv_once(fd, most, token),
            Self::RecvFrom(size) => driver.recv_from(fd, size, token),
            Self::Accept => driver.accept_once(fd, token),
            Self::Send(data) => driver.send(fd, data, token),
            Self::SendTo(data, to) => {
                let message = SendMsg {
                    data,
                    to,
                    segment_size: None,
                    ecn: None,
                    src_ip: None,
                };
                driver.send_msg(fd, message, token)
            }
            Self::Connect(address) => driver.connect(fd, address, token),
            Self::Writable => driver.poll(fd, Interest::Write, token),
        }
    }
}

/// One direction of one descriptor.
#[derive(Default)]
struct Lane {
    current: Option<Key>,
    /// The address of the socket object that `current` belongs to, which it keeps alive.
    socket: usize,
    waiting: VecDeque<(Key, Request)>,
}

/// How often a system call tried at once found nothing: then the next ones are left to the ring.
#[derive(Default, Clone, Copy)]
struct Hint {
    /// Operations to go before the next try.
    skip: u8,
    /// What `skip` becomes after a vain try.
    backoff: u8,
}

#[derive(Default)]
struct Descriptor {
    lanes: [Lane; 2],
    hint: Hint,
    /// Calls answered without waiting in turn `turn`.
    turn: u64,
    answered: u32,
}

/// An operation that was started or waits for its turn.
pub struct Flight {
    fd: RawFd,
    way: Way,
    /// What a receive from a stream asked for.
    most: usize,
    /// What a send was given, to go on after a short one.
    data: Option<Bytes>,
}

#[derive(Default)]
pub struct Sockets {
    descriptors: Vec<Descriptor>,
    flights: Vec<Option<(Key, Flight)>>,
    starting: VecDeque<(Key, RawFd, Request)>,
    pub held: HashMap<usize, Held>,
    turn: u64,
    /// Entries of `flights`, or more: counted anew at each look.
    flying: usize,
    /// When sockets are looked at again, see `find_closed`.
    next_look: Option<Instant>,
    /// Callbacks ran since the last look.
    look_is_due: bool,
}

impl Sockets {
    fn descriptor(&mut self, fd: RawFd) -> &mut Descriptor {
        let index = fd.max(0) as usize;
        if index >= self.descriptors.len() {
            self.descriptors.resize_with(index + 1, Descriptor::default);
        }
        &mut self.descriptors[index]
    }

    /// Whether a system call may be tried at once, and counts it: nothing of that direction may be in
    /// flight, a try must be likely to succeed, and a task whose calls never wait must let others run.
    pub fn may_try(&mut self, fd: RawFd, way: Way) -> bool {
        let turn = self.turn;
        let descriptor = self.descriptor(fd);
        if descriptor.lanes[way as usize].current.is_some() {
            return false;
        }
        if descriptor.turn != turn {
            (descriptor.turn, descriptor.answered) = (turn, 0);
        }
        if descriptor.answered >= ANSWERS_PER_TURN || way == Way::In && descriptor.hint.skip > 0 {
            return false;
        }
        descriptor.answered += 1;
        true
    }

    /// What a try in the inward direction found.
    pub fn tried(&mut self, fd: RawFd, something: bool) {
        let hint = &mut self.descriptor(fd).hint;
        if something {
            *hint = Hint::default();
        } else {
            hint.backoff = (hint.backoff * 2 + 1).min(BACKOFF_MAX);
            hint.skip = hint.backoff;
        }
    }

    /// An inward operation came back; `full` if it brought as much as was asked for.
    fn came(&mut self, fd: RawFd, full: bool) {
        let hint = &mut self.descriptor(fd).hint;
        hint.skip = if full { 0 } else { hint.skip.saturating_sub(1) };
    }

    pub fn is_busy(&mut self, fd: RawFd, way: Way) -> bool {
        self.descriptor(fd).lanes[way as usize].current.is_some()
    }

    /// Takes an operation's entry when it has ended; the next of its lane is up.
    fn land(&mut self, key: Key, ops: &waiting::Ops) -> Option<Flight> {
        let flight = host_take(&mut self.flights, key)?;
        self.flying = self.flying.saturating_sub(1);
        self.advance(flight.fd, flight.way, key, ops);
        Some(flight)
    }

    /// Gives the lane to the next one that still waits, if `key` had it.
    fn advance(&mut self, fd: RawFd, way: Way, key: Key, ops: &waiting::Ops) {
        let lane = &mut self.descriptor(fd).lanes[way as usize];
        if lane.current != Some(key) {
            return;
        }
        lane.current = None;
        lane.socket = 0;
        let mut waiting = std::mem::take(&mut lane.waiting);
        while let Some((next, request)) = waiting.pop_front() {
            if ops.contains(next) {
                self.starting.push_back((next, fd, request));
                let lane = &mut self.descriptor(fd).lanes[way as usize];
                lane.current = Some(next);
                lane.waiting = waiting;
                return;
            }
            host_take(&mut self.flights, next);
        }
    }

    /// How long the loop may sleep before it looks for closed sockets.
    /// True if a turn has nothing to start or to look at; it is counted as one.
    pub fn skip_turn(&mut self) -> bool {
        let is_idle = self.flying == 0 && self.starting.is_empty();
        self.turn += u64::from(is_idle);
        is_idle
    }

    pub fn idle_limit(&self) -> Option<Duration> {
        let next = self.next_look.filter(|_| self.look_is_due)?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// The loop starts again: what it took back from the kernel will be armed by number, and a number
    /// may have changed its owner since.
    pub fn look_now(&mut self) {
        if self.flying > 0 {
            self.next_look = Some(Instant::now());
        }
    }

    /// The operations to look at now, if it is time.
    fn take_due_looks(&mut self) -> Vec<(Key, RawFd, Way)> {
        if self.flying == 0 {
            self.look_is_due = false;
            return Vec::new();
        }
        let now = Instant::now();
        let next = *self.next_look.get_or_insert(now + LOOK_INTERVAL);
        self.look_is_due = now < next;
        if self.look_is_due {
            return Vec::new();
        }
        self.next_look = Some(now + LOOK_INTERVAL);
        let flights = self.flights.iter().flatten();
        let found: Vec<_> = flights
            .map(|(key, flight)| (*key, flight.fd, flight.way))
            .collect();
        self.flying = found.len();
        found
    }

    pub fn has_held(&self, socket: &Bound<'_, PyAny>) -> bool {
        !self.held.is_empty()
            && self
                .held
                .get(&(socket.as_ptr() as usize))
                .is_some_and(|held| !held.items.is_empty())
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.held
            .values()
            .try_for_each(|held| held.items.iter().try_for_each(|item| visit.call(item)))
    }
}

/// Queues a request and returns its future. The operation starts at the end of the turn.
pub fn launch(
    slf: &Bound<'_, LoopCore>,
    plan: &'static waiting::Plan,
    socket: &Bound<'_, PyAny>,
    fd: RawFd,
    request: Request,
) -> PyResult<Py<PyAny>> {
    let py = slf.py();
    let this = slf.get();
    this.check_closed()?;
    let way = request.way();
    forget_predecessor(slf, socket, fd)?;
    let (future, key) = waiting::reserve(slf, plan, socket)?;
    let (most, data) = match &request {
        Request::Send(data) => (0, Some(data.clone())),
        Request::Recv(most) => (*most as usize, None),
        _ => (usize::MAX, None),
    };
    let flight = Flight {
        fd,
        way,
        most,
        data,
    };
    this.sockets.with(py, |sockets| {
        host_at(&mut sockets.flights, key, flight);
        sockets.flying += 1;
        let lane = &mut sockets.descriptor(fd).lanes[way as usize];
        if lane.current.is_some() {
            return lane.waiting.push_back((key, request));
        }
        lane.current = Some(key);
        lane.socket = socket.as_ptr() as usize;
        sockets.starting.push_back((key, fd, request));
    });
    Ok(future)
}

/// Starts what the last turn's callbacks asked for. Called before the engine is flushed.
pub fn start_requests(slf: &Bound<'_, LoopCore>) -> PyResult<()> {
    let py = slf.py();
    let this = slf.get();
    this.sockets.with(py, |sockets| sockets.turn += 1);
    find_closed(this, py)?;
    while let Some((key, fd, request)) = this
        .sockets
        .with(py, |sockets| sockets.starting.pop_front())
    {
        let way = request.way();
        let Some(socket) = this.ops.with(py, |ops| ops.subject(py, key)) else {
            retire(this, py, fd, way, key);
            continue;
        };
        let socket = socket.bind(py);
        if fileno(socket)? != fd {
            // Closed since. Nothing was asked of the kernel, and nobody is told, as in asyncio.
            forget(this, py, fd, way, key)?;
        } else if way == Way::In && this.sockets.with(py, |sockets| sockets.has_held(socket)) {
            if waiting::is_wanted(slf, key)?
                && let Some(item) = take_held(slf, socket)
            {
                waiting::answer(slf, key, item)?;
            }
            forget(this, py, fd, way, key)?;
        } else {
            this.with_engine(py, |engine| {
                engine.start_op(key, |driver, token| request.queue(driver, fd, token))
            })?;
        }
    }
    Ok(())
}

/// A socket that is closed while an operation of it is in the ring stays open in the kernel, and its
/// peer sees no end. Nothing tells of a `close()`, so the loop looks from time to time, and once more
/// before it sleeps for long. The operation is cancelled then; its future is left pending, as asyncio
/// leaves it.
fn find_closed(this: &LoopCore, py: Python<'_>) -> PyResult<()> {
    for (key, fd, way) in this.sockets.with(py, Sockets::take_due_looks) {
        let socket = this.ops.with(py, |ops| ops.subject(py, key));
        if let Some(socket) = socket
            && fileno(socket.bind(py))? != fd
        {
            forget(this, py, fd, way, key)?;
        }
    }
    Ok(())
}

/// An operation has ended. `None` if it was none of ours. The next one of its lane is up.
pub fn land(this: &LoopCore, py: Python<'_>, key: Key) -> Option<Flight> {
    this.sockets.with(py, |sockets| {
        this.ops.with(py, |ops| sockets.land(key, ops))
    })
}

/// What an operation's outcome says about the next try.
pub fn note(slf: &Bound<'_, LoopCore>, flight: &Flight, outcome: &Outcome) {
    if flight.way == Way::In {
        let full = matches!(outcome, Outcome::Received(Ok(data)) if data.len() >= flight.most);
        slf.get()
            .sockets
            .with(slf.py(), |sockets| sockets.came(flight.fd, full));
    }
}

/// The tail of a send that came back short: it goes on under the same future, before others.
pub fn go_on(
    slf: &Bound<'_, LoopCore>,
    flight: &Flight,
    outcome: &Outcome,
    waiting: waiting::Waiting,
) -> PyResult<Option<waiting::Waiting>> {
    let py = slf.py();
    let (Some(data), Outcome::Done(Ok(sent))) = (&flight.data, outcome) else {
        return Ok(Some(waiting));
    };
    if *sent as usize >= data.len() || !waiting.is_wanted(py)? {
        return Ok(Some(waiting));
    }
    let this = slf.get();
    let rest = data.slice(*sent as usize..);
    let socket = waiting.subject().map_or(0, |s| s.as_ptr() as usize);
    let key = this.with_engine(py, |engine| engine.reserve_op())?;
    this.ops.with(py, |ops| ops.insert(key, waiting));
    this.sockets.with(py, |sockets| {
        let (fd, way) = (flight.fd, flight.way);
        let again = Flight {
            fd,
            way,
            most: 0,
            data: Some(rest.clone()),
        };
        host_at(&mut sockets.flights, key, again);
        sockets.flying += 1;
        let lane = &mut sockets.descriptor(fd).lanes[way as usize];
        if let Some(next) = lane.current.replace(key) {
            // It was about to start; it has to wait again.
            let starting = &mut sockets.starting;
            if let Some(at) = starting.iter().position(|(key, ..)| *key == next)
                && let Some((key, _, request)) = starting.remove(at)
            {
                let lane = &mut sockets.descriptor(fd).lanes[way as usize];
                lane.waiting.push_front((key, request));
            }
        }
        sockets.descriptor(fd).lanes[way as usize].socket = socket;
        sockets.starting.push_back((key, fd, Request::Send(rest)));
    });
    Ok(None)
}

/// Operations of a socket object that is closed while its number belongs to `socket` now must not
/// stand in the new one's way, and on epoll would take its bytes.
fn forget_predecessor(
    slf: &Bound<'_, LoopCore>,
    socket: &Bound<'_, PyAny>,
    fd: RawFd,
) -> PyResult<()> {
    forget_closed(slf, fd, socket.as_ptr() as usize)
}

/// Forgets the operations of closed sockets that had the number `fd`; those of the socket object at
/// `address` are not looked at.
pub fn forget_closed(slf: &Bound<'_, LoopCore>, fd: RawFd, address: usize) -> PyResult<()> {
    let py = slf.py();
    let this = slf.get();
    for way in [Way::In, Way::Out] {
        let other = |sockets: &mut Sockets| {
            let descriptor = sockets.descriptors.get(fd.max(0) as usize)?;
            let lane = &descriptor.lanes[way as usize];
            lane.current.filter(|_| lane.socket != address)
        };
        while let Some(key) = this.sockets.with(py, other) {
            let old = this.ops.with(py, |ops| ops.subject(py, key));
            if let Some(old) = old
                && fileno(old.bind(py))? == fd
            {
                // Two objects over one descriptor: they share its lanes.
                break;
            }
            forget(this, py, fd, way, key)?;
        }
    }
    Ok(())
}

/// Every operation on `fd` belongs to a socket object that is closed: the number has a new owner.
pub fn forget_descriptor(this: &LoopCore, py: Python<'_>, fd: RawFd) -> PyResult<()> {
    for way in [Way::In, Way::Out] {
        let current = |sockets: &mut Sockets| {
            let descriptor = sockets.descriptors.get(fd.max(0) as usize)?;
            descriptor.lanes[way as usize].current
        };
        while let Some(key) = this.sockets.with(py, current) {
            forget(this, py, fd, way, key)?;
        }
    }
    Ok(())
}

/// Cancels an operation and lets the next one of its lane have its turn. The future, if it still
/// waits, is left as it is: pending, as asyncio leaves it.
fn forget(this: &LoopCore, py: Python<'_>, fd: RawFd, way: Way, key: Key) -> PyResult<()> {
    let waiting = this.ops.with(py, |ops| ops.take(key));
    drop(waiting);
    retire(this, py, fd, way, key);
    this.with_engine(py, |engine| engine.cancel_op(key))?;
    Ok(())
}

/// Takes an operation off its lane, also one whose key is somebody else's by now.
fn retire(this: &LoopCore, py: Python<'_>, fd: RawFd, way: Way, key: Key) {
    this.sockets.with(py, |sockets| {
        host_take(&mut sockets.flights, key);
        this.ops.with(py, |ops| sockets.advance(fd, way, key, ops));
    });
}

/// Ends what receives from `socket` now, before a transport reads from it. What that brings is held.
pub fn settle(slf: &Bound<'_, LoopCore>, socket: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = slf.py();
    let this = slf.get();
    let fd = fileno(socket)?;
    let current = |sockets: &mut Sockets| {
        let descriptor = sockets.descriptors.get(fd.max(0) as usize)?;
        descriptor.lanes[Way::In as usize].current
    };
    while let Some(key) = this.sockets.with(py, current) {
        let outcome = this
            .with_engine(py, |engine| engine.settle_op(key, Instant::now()))?
            .map_err(|error| error::io_error(&error))?;
        match outcome {
            Some(outcome) => waiting::done(slf, key, outcome)?,
            None => forget(this, py, fd, Way::In, key)?,
        }
    }
    Ok(())
}

/// Gives a new transport what is held for its socket: it is received first.
pub fn hand_over(
    slf: &Bound<'_, LoopCore>,
    socket: &Bound<'_, PyAny>,
    stream: Key,
) -> PyResult<()> {
    let py = slf.py();
    let mut data = Vec::new();
    while let Some(item) = take_held(slf, socket) {
        if let Ok(bytes) = item.bind(py).cast::<PyBytes>() {
            data.extend_from_slice(bytes.as_bytes());
        }
    }
    if data.is_empty() {
        return Ok(());
    }
    slf.get()
        .with_engine(py, |engine| engine.put_back(stream, data.into()))
}

/// A task that is answered without waiting this often in a turn waits once, so that the others run.
const ANSWERS_PER_TURN: u32 = 16;
/// The longest pause between vain tries, in operations.
const BACKOFF_MAX: u8 = 31;
/// How long a closed socket may stay open in the kernel.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
