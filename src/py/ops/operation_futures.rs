//! Operations of the ring with a Python future each, which gets the operation's one result.
//!
//! `start` queues an operation and returns the future. `done` sets the result when the completion comes. `abandon`
//! cancels the operation of a cancelled waiter. A [`Plan`] describes a kind of operation: it converts the outcome to
//! Python, and handles the outcome of a cancelled operation. The plans are in `sock::socket_operations`,
//! `file_operations` and `process_spawn`.
//!
//! In most cases a short Python coroutine awaits the future. It passes a cancellation on to the ring, which needs no
//! callback of the future:
//!
//!     operation = _uringcore.file_read(loop, fd, size, offset, False)
//!     try:
//!         return await operation.future
//!     except BaseException:
//!         operation.abandon(late)
//!         raise
//!
//! Memory that the kernel may use belongs to the driver's slot of the operation. So the waiter, the future and even
//! the loop may end before the operation.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::os::fd::RawFd;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit, intern};
use uringcore_engine::{Attempt, Direction, Key, OpQueueId, OpQueues, SocketOp};
use uringcore_io::{Driver, Errno, OpId, Outcome, Token};

use crate::capi::exception_conversion;
use crate::event_loop::engine_key_objects::{insert_at, take_at};
use crate::event_loop::loop_core::LoopCore;

/// The object that the caller of `start` passes for the functions of the [`Plan`]: a socket, a path, or a tuple for
/// an error message. It is kept alive until the completion.
pub type Subject<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

/// A kind of operation: the functions that handle its outcome. Each kind has one, as a `static`.
pub struct Plan {
    /// Converts an outcome to the future's result or its exception.
    pub convert: fn(&Bound<'_, LoopCore>, Subject<'_, '_>, Outcome) -> PyResult<Py<PyAny>>,
    /// Handles the outcome of an operation whose waiter was cancelled. [`drop_result`] drops the outcome and so
    /// releases its resources. Operations whose result must not be lost keep the outcome.
    pub on_cancelled: fn(&Bound<'_, LoopCore>, Subject<'_, '_>, Outcome) -> PyResult<()>,
}

/// The Python objects of an operation in flight.
pub struct Waiter {
    future: Py<PyAny>,
    subject: Option<Py<PyAny>>,
    plan: &'static Plan,
    /// The operation queue of the socket, for a `sock_*` call. `None` for other operations.
    queue_id: Option<OpQueueId>,
}

impl Waiter {
    /// True if the future is not done, so that the result is still needed.
    fn is_wanted(&self, py: Python<'_>) -> PyResult<bool> {
        let done = self.future.bind(py).call_method0(intern!(py, "done"))?;
        Ok(!done.is_truthy()?)
    }
}

/// The operations of a loop that have futures. There are at most as many as the driver has slots.
#[derive(Default)]
pub struct Waiters {
    list: Vec<Option<(Key, Waiter)>>,
    /// The engine's key of each operation, by the address of the operation's future. `list` keeps the future alive.
    by_future: HashMap<usize, Key, BuildHasherDefault<AddressHasher>>,
}

impl Waiters {
    pub fn insert(&mut self, key: Key, waiter: Waiter) {
        self.by_future.insert(waiter.future.as_ptr() as usize, key);
        insert_at(&mut self.list, key, waiter);
    }

    pub fn contains(&self, key: Key) -> bool {
        self.get(key).is_some()
    }

    /// The object that belongs to an operation (see [`Subject`]).
    pub fn subject(&self, py: Python<'_>, key: Key) -> Option<Py<PyAny>> {
        let subject = self.get(key)?.subject.as_ref()?;
        Some(subject.clone_ref(py))
    }

    fn get(&self, key: Key) -> Option<&Waiter> {
        let (at, waiter) = self.list.get(key.index as usize)?.as_ref()?;
        (*at == key).then_some(waiter)
    }

    pub fn take(&mut self, key: Key) -> Option<Waiter> {
        let waiter = take_at(&mut self.list, key)?;
        self.by_future.remove(&(waiter.future.as_ptr() as usize));
        Some(waiter)
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.list.iter().flatten().try_for_each(|(_, waiter)| {
            visit.call(&waiter.future)?;
            visit.call(&waiter.subject)
        })
    }
}

/// Queues an operation and returns its future. `queue` is called once, with the token of the operation.
///
/// Fails if the loop is closed, or if another thread runs it and is inside the kernel. Nothing is queued then.
pub fn start(
    slf: &Bound<'_, LoopCore>,
    plan: &'static Plan,
    subject: Option<Py<PyAny>>,
    queue: impl FnOnce(&mut Driver, Token) -> OpId,
) -> PyResult<Py<PyAny>> {
    let py = slf.py();
    let this = slf.get();
    this.check_closed()?;
    let future = slf.call_method0(intern!(py, "create_future"))?.unbind();
    let key = this.with_engine(py, |engine| {
        let key = engine.operations().reserve();
        engine.operations().start(key, queue);
        key
    })?;
    let waiter = Waiter {
        future: future.clone_ref(py),
        subject,
        plan,
        queue_id: None,
    };
    this.waiters.with(py, |waiters| waiters.insert(key, waiter));
    Ok(future)
}

/// Makes the future and the key of an operation that waits in a socket's queue and is started later.
pub fn reserve(
    slf: &Bound<'_, LoopCore>,
    plan: &'static Plan,
    subject: &Bound<'_, PyAny>,
    queue_id: OpQueueId,
) -> PyResult<(Py<PyAny>, Key)> {
    let py = slf.py();
    let this = slf.get();
    let future = slf.call_method0(intern!(py, "create_future"))?.unbind();
    let key = this.with_engine(py, |engine| engine.operations().reserve())?;
    let waiter = Waiter {
        future: future.clone_ref(py),
        subject: Some(subject.clone().unbind()),
        plan,
        queue_id: Some(queue_id),
    };
    this.waiters.with(py, |waiters| waiters.insert(key, waiter));
    Ok((future, key))
}

/// True if the future of this operation is not done.
pub fn is_wanted(slf: &Bound<'_, LoopCore>, key: Key) -> PyResult<bool> {
    let py = slf.py();
    let future = slf.get().waiters.with(py, |waiters| {
        waiters.get(key).map(|waiter| waiter.future.clone_ref(py))
    });
    match future {
        Some(future) => Ok(!future
            .call_method0(py, intern!(py, "done"))?
            .is_truthy(py)?),
        None => Ok(false),
    }
}

/// Sets the result of an operation's future without starting the operation.
pub fn answer(slf: &Bound<'_, LoopCore>, key: Key, value: Py<PyAny>) -> PyResult<()> {
    let py = slf.py();
    if let Some(waiter) = slf.get().waiters.with(py, |waiters| waiters.take(key)) {
        waiter
            .future
            .call_method1(py, intern!(py, "set_result"), (value,))?;
    }
    Ok(())
}

/// Handles the completion of an operation. The result goes to the future, or to [`Plan::on_cancelled`] if the waiter
/// was cancelled.
pub fn done(slf: &Bound<'_, LoopCore>, key: Key, mut outcome: Outcome) -> PyResult<()> {
    let py = slf.py();
    let waiter = slf.get().waiters.with(py, |waiters| waiters.take(key));
    let Some(waiter) = waiter else {
        return Ok(());
    };
    let is_wanted = waiter.is_wanted(py);
    if let Some(queue_id) = waiter.queue_id {
        if let Ok(true) = is_wanted {
            if let Some(rest) = rest_of(slf.get(), py, queue_id, key, &outcome) {
                return continue_with(slf, waiter, queue_id, SocketOp::Send(rest));
            }
            match attempted(slf, &waiter, queue_id, key, outcome)? {
                Attempted::Outcome(made) => outcome = made,
                Attempted::InVain(attempt) => {
                    return continue_with(slf, waiter, queue_id, attempt.into_op());
                }
                // The program has closed the socket meanwhile. The future stays pending, as in asyncio.
                Attempted::Closed(ended) => {
                    leave_queue(slf.get(), py, queue_id, key, &ended);
                    return Ok(());
                }
            }
        }
        leave_queue(slf.get(), py, queue_id, key, &outcome);
    }
    let future = waiter.future.bind(py);
    let subject = waiter.subject.as_ref().map(|subject| subject.bind(py));
    if !is_wanted? {
        return (waiter.plan.on_cancelled)(slf, subject, outcome);
    }
    match (waiter.plan.convert)(slf, subject, outcome) {
        Ok(value) => future.call_method1(intern!(py, "set_result"), (value,))?,
        Err(error) => future.call_method1(intern!(py, "set_exception"), (error.into_value(py),))?,
    };
    Ok(())
}

/// The result of trying a `sock_*` operation after its socket has become ready.
enum Attempted {
    Outcome(Outcome),
    /// Another process has taken the data or the connection, so the operation waits again.
    InVain(Attempt),
    /// The program has closed the socket object. Its descriptor's number may have a new owner, so nothing was received.
    Closed(Outcome),
}

/// Executes the receive or the accept of an operation that has waited for its socket. If the completion is of another
/// kind, it is the outcome itself.
fn attempted(
    slf: &Bound<'_, LoopCore>,
    waiter: &Waiter,
    queue_id: OpQueueId,
    key: Key,
    outcome: Outcome,
) -> PyResult<Attempted> {
    let py = slf.py();
    let op_queues = &slf.get().op_queues;
    let attempt = op_queues.with(py, |op_queues| {
        op_queues.attempt_of(queue_id, key, &outcome)
    });
    let (Some(attempt), Some(socket)) = (attempt, &waiter.subject) else {
        return Ok(Attempted::Outcome(outcome));
    };
    let number = socket.call_method0(py, intern!(py, "fileno"))?;
    if number.extract::<RawFd>(py)? != queue_id.fd {
        return Ok(Attempted::Closed(outcome));
    }
    Ok(match attempt.make(queue_id.fd) {
        Some(outcome) => Attempted::Outcome(outcome),
        None => Attempted::InVain(attempt),
    })
}

/// Continues an operation with `op`. The future stays the same, and the operation stays in front of its queue.
fn continue_with(
    slf: &Bound<'_, LoopCore>,
    waiter: Waiter,
    queue_id: OpQueueId,
    op: SocketOp,
) -> PyResult<()> {
    let py = slf.py();
    let this = slf.get();
    let key = this.with_engine(py, |engine| engine.operations().reserve())?;
    this.waiters.with(py, |waiters| waiters.insert(key, waiter));
    this.op_queues
        .with(py, |op_queues| op_queues.go_on(queue_id, key, op));
    Ok(())
}

/// The bytes that a short send has not sent. `None` if the send is complete.
fn rest_of(
    this: &LoopCore,
    py: Python<'_>,
    queue_id: OpQueueId,
    key: Key,
    outcome: &Outcome,
) -> Option<Bytes> {
    // Receives are frequent, so only sends do this look-up.
    let is_send = queue_id.direction == Direction::Write;
    let rest = |op_queues: &mut OpQueues| op_queues.rest_of(queue_id, key, outcome);
    is_send.then(|| this.op_queues.with(py, rest)).flatten()
}

/// Removes an operation that has ended from its queue, which starts the next one.
fn leave_queue(this: &LoopCore, py: Python<'_>, queue_id: OpQueueId, key: Key, outcome: &Outcome) {
    let is_wanted = |key| this.waiters.with(py, |waiters| waiters.contains(key));
    this.op_queues.with(py, |op_queues| {
        op_queues.complete(queue_id, key, outcome, is_wanted)
    });
}

/// A function for [`Plan::on_cancelled`]: drops the outcome, which closes or returns its resources.
pub fn drop_result(_: &Bound<'_, LoopCore>, _: Subject<'_, '_>, outcome: Outcome) -> PyResult<()> {
    drop(outcome);
    Ok(())
}

/// A function for [`Plan::convert`]: converts a count of bytes, or another number.
pub fn count(
    slf: &Bound<'_, LoopCore>,
    _: Subject<'_, '_>,
    outcome: Outcome,
) -> PyResult<Py<PyAny>> {
    match outcome {
        Outcome::Done(Ok(count)) => Ok(count.into_pyobject(slf.py())?.into_any().unbind()),
        other => Err(failed(&other)),
    }
}

/// The exception for an outcome that is an error. An outcome of an unexpected kind, which would be a fault of the
/// plan, becomes EIO.
pub fn failed(outcome: &Outcome) -> PyErr {
    let errno = match outcome {
        Outcome::Done(Err(errno))
        | Outcome::Accepted(Err(errno))
        | Outcome::Received(Err(errno))
        | Outcome::Datagram(Err(errno))
        | Outcome::AcceptedFrom(Err(errno))
        | Outcome::ReceivedFrom(Err(errno)) => *errno,
        _ => {
            debug_assert!(false, "an outcome of another kind");
            Errno(libc::EIO)
        }
    };
    exception_conversion::os_error(errno)
}

/// Cancels the operation of `future`, whose waiter was cancelled. Does nothing if the operation has ended or the loop
/// is closed.
pub fn abandon(r#loop: &Bound<'_, LoopCore>, future: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = r#loop.py();
    let this = r#loop.get();
    let address = future.as_ptr() as usize;
    let Some(key) = this
        .waiters
        .with(py, |waiters| waiters.by_future.get(&address).copied())
    else {
        return Ok(());
    };
    if this.with_engine(py, |engine| engine.operations().cancel(key))? {
        let waiter = this.waiters.with(py, |waiters| waiters.take(key));
        drop(waiter);
    }
    // The future is cancelled as well, because no completion will end it.
    if !future.call_method0(intern!(py, "done"))?.is_truthy()? {
        future.call_method0(intern!(py, "cancel"))?;
    }
    Ok(())
}

/// Hashes the address of an object. Addresses differ in their middle bits; a multiplication spreads these to the bits
/// that the table uses.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
