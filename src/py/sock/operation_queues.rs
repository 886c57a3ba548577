//! The Python side of the operation queues of sockets: makes the futures of `sock_*` calls, checks that each socket
//! object still has its descriptor, and cancels the operations of objects that have not.
//!
//! The engine's `OpQueues` decides which operation of a socket is next, and when the loop checks. The result of a
//! cancelled call goes to the next call before another operation starts, so a socket has at most one such result. The
//! calls are in `socket_operations`, futures and cancellation in `ops::operation_futures`.

use std::os::fd::RawFd;
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use uringcore_engine::{Direction, Key, OpQueueId, OpQueues, SocketOp, Start};

use crate::capi::exception_conversion;
use crate::event_loop::loop_core::LoopCore;
use crate::ops::operation_futures;
use crate::sock::cancelled_results;
use crate::sock::plain_sockets::fileno;

/// Queues an operation and returns its future. The operation starts at the end of the loop iteration.
pub fn launch(
    slf: &Bound<'_, LoopCore>,
    plan: &'static operation_futures::Plan,
    socket: &Bound<'_, PyAny>,
    fd: RawFd,
    op: SocketOp,
) -> PyResult<Py<PyAny>> {
    let py = slf.py();
    let this = slf.get();
    this.check_closed()?;
    let address = socket.as_ptr() as usize;
    // A closed socket object may have had the number that now belongs to `socket`. Its operations must not delay the
    // new ones; with epoll they would even take the new socket's bytes.
    forget_closed(slf, fd, address)?;
    let queue_id = OpQueueId::new(fd, op.direction());
    let (future, key) = operation_futures::reserve(slf, plan, socket, queue_id)?;
    this.op_queues
        .with(py, |op_queues| op_queues.join(key, fd, address, op));
    Ok(future)
}

/// Starts the operations that callbacks of the last loop iteration have queued. Called before the engine is flushed.
pub fn start_operations(slf: &Bound<'_, LoopCore>) -> PyResult<()> {
    let py = slf.py();
    let this = slf.get();
    let looks = this
        .op_queues
        .with(py, |op_queues| op_queues.begin_iteration(Instant::now));
    if !looks.is_empty() {
        let is_wanted = |key| this.waiters.with(py, |waiters| waiters.contains(key));
        this.op_queues
            .with(py, |op_queues| op_queues.drop_unwanted(is_wanted));
    }
    for (key, queue_id) in looks {
        let socket = this.waiters.with(py, |waiters| waiters.subject(py, key));
        if let Some(socket) = socket
            && fileno(socket.bind(py))? != queue_id.fd
        {
            forget(this, py, queue_id, key)?;
        }
    }
    while let Some(start) = this.op_queues.with(py, OpQueues::take_start) {
        begin(slf, start)?;
    }
    Ok(())
}

fn begin(slf: &Bound<'_, LoopCore>, Start { key, queue_id, op }: Start) -> PyResult<()> {
    let py = slf.py();
    let this = slf.get();
    let Some(socket) = this.waiters.with(py, |waiters| waiters.subject(py, key)) else {
        leave(this, py, queue_id, key);
        return Ok(());
    };
    let socket = socket.bind(py);
    if fileno(socket)? != queue_id.fd {
        // The socket was closed before its operation started. The operation is removed, and its future stays pending,
        // as in asyncio.
        return forget(this, py, queue_id, key);
    }
    if queue_id.direction == Direction::Read && cancelled_results::has(this, socket) {
        if operation_futures::is_wanted(slf, key)?
            && let Some(item) = cancelled_results::take(this, socket)
        {
            operation_futures::answer(slf, key, item)?;
        }
        return forget(this, py, queue_id, key);
    }
    this.with_engine(py, |engine| {
        engine
            .operations()
            .start(key, |driver, token| op.queue(driver, queue_id.fd, token))
    })?;
    Ok(())
}

/// Removes the operations of closed sockets that had the number `fd`. The operations of the socket object at the
/// address `address` stay.
pub fn forget_closed(slf: &Bound<'_, LoopCore>, fd: RawFd, address: usize) -> PyResult<()> {
    let py = slf.py();
    let this = slf.get();
    let heads = this
        .op_queues
        .with(py, |op_queues| op_queues.current_of_both(fd));
    if heads.iter().flatten().all(|&(_, socket)| socket == address) {
        return Ok(());
    }
    for queue_id in both_queues(fd) {
        while let Some((key, socket)) = current(this, py, queue_id)
            && socket != address
        {
            let other = this.waiters.with(py, |waiters| waiters.subject(py, key));
            if let Some(other) = other
                && fileno(other.bind(py))? == fd
            {
                // Two socket objects with the same descriptor, both open, share the queues of the descriptor.
                break;
            }
            forget(this, py, queue_id, key)?;
        }
    }
    Ok(())
}

/// Removes all operations on the number `fd`, which has a new owner. They belong to closed socket objects.
pub fn forget_descriptor(this: &LoopCore, py: Python<'_>, fd: RawFd) -> PyResult<()> {
    for queue_id in both_queues(fd) {
        while let Some((key, _)) = current(this, py, queue_id) {
            forget(this, py, queue_id, key)?;
        }
    }
    Ok(())
}

fn both_queues(fd: RawFd) -> [OpQueueId; 2] {
    [OpQueueId::read(fd), OpQueueId::write(fd)]
}

/// Returns the first operation of a queue, and the address of the socket object that the operation keeps alive.
pub fn current(this: &LoopCore, py: Python<'_>, queue_id: OpQueueId) -> Option<(Key, usize)> {
    this.op_queues
        .with(py, |op_queues| op_queues.current(queue_id))
}

/// Cancels an operation and starts the next one of its queue. The future of the cancelled operation stays pending, as
/// in asyncio.
fn forget(this: &LoopCore, py: Python<'_>, queue_id: OpQueueId, key: Key) -> PyResult<()> {
    let waiter = this.waiters.with(py, |waiters| waiters.take(key));
    drop(waiter);
    leave(this, py, queue_id, key);
    this.with_engine(py, |engine| engine.operations().cancel(key))?;
    Ok(())
}

fn leave(this: &LoopCore, py: Python<'_>, queue_id: OpQueueId, key: Key) {
    let is_wanted = |key| this.waiters.with(py, |waiters| waiters.contains(key));
    this.op_queues
        .with(py, |op_queues| op_queues.leave(queue_id, key, is_wanted));
}

/// Cancels the receives from `socket` now, because a transport is about to read from it. Results of completed receives
/// are kept as cancelled results.
pub fn cancel_receives(slf: &Bound<'_, LoopCore>, socket: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = slf.py();
    let this = slf.get();
    let queue_id = OpQueueId::read(fileno(socket)?);
    while let Some((key, _)) = current(this, py, queue_id) {
        let outcome = this
            .with_engine(py, |engine| engine.end_operation(key, Instant::now()))?
            .map_err(|error| exception_conversion::io_error(&error))?;
        match outcome {
            Some(outcome) => operation_futures::done(slf, key, outcome)?,
            None => forget(this, py, queue_id, key)?,
        }
    }
    Ok(())
}

/// Passes the cancelled results of a socket to its new transport, which delivers them before other bytes.
pub fn pass_results(
    slf: &Bound<'_, LoopCore>,
    socket: &Bound<'_, PyAny>,
    stream: Key,
) -> PyResult<()> {
    let py = slf.py();
    let mut data = Vec::new();
    while let Some(item) = cancelled_results::take(slf.get(), socket) {
        if let Ok(bytes) = item.bind(py).cast::<PyBytes>() {
            data.extend_from_slice(bytes.as_bytes());
        }
    }
    if data.is_empty() {
        return Ok(());
    }
    slf.get().with_engine(py, |engine| {
        engine.transports().put_back(stream, data.into())
    })
}
