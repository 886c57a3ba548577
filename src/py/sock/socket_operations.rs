//! The `sock_*` calls: receives, sends, accepts and connects of Python's own sockets as operations of the ring.
//!
//! Each function here returns one of three values: the result itself, if a system call succeeded at once; a future,
//! if the operation was queued; `None`, if the socket or an argument is unusual (a subclass, an unusual address
//! family, a wrong argument), so that asyncio's own code has to handle the call. The coroutines around these
//! functions are in `_sock_calls.py`. `cancelled_results` has the results of cancelled calls.
//!
//! The result of a future has one form for each kind of socket, so that it can be kept for any later call: `bytes`
//! from a stream, `(bytes, address)` from other sockets, `(socket, address)` from a listener.

use std::io;
use std::os::fd::{OwnedFd, RawFd};

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyTuple};
use uringcore_engine::{OpQueueId, SocketOp};
use uringcore_io::{Errno, Outcome, PeerAddress, ReceivedMessage, net};

use crate::capi::address;
use crate::capi::bytes_like_objects;
use crate::capi::exception_conversion;
use crate::event_loop::loop_core::LoopCore;
use crate::ops::operation_futures::{self, Plan, Subject};
use crate::sock::cancelled_results;
use crate::sock::operation_queues::{self, launch};
use crate::sock::plain_sockets::{
    ACCEPTING, CONNECTING, NO_METHODS, RECEIVING, SENDING, fileno, member, plain,
};
use crate::sock::socket_object_creation::object_with;

static RECEIVE: Plan = Plan {
    convert: received,
    on_cancelled: keep,
};
static ACCEPT: Plan = Plan {
    convert: received,
    on_cancelled: keep,
};
static SEND: Plan = Plan {
    convert: no_result,
    on_cancelled: operation_futures::drop_result,
};
static CONNECT: Plan = Plan {
    convert: connected,
    on_cancelled: keep_connected,
};
static SEND_TO: Plan = Plan {
    convert: operation_futures::count,
    on_cancelled: operation_futures::drop_result,
};

/// Receives up to `size` bytes. Results: `bytes` from a stream, `(bytes, address)` from other sockets.
#[pyfunction]
#[pyo3(name = "_sock_receive")]
fn receive(
    r#loop: &Bound<'_, LoopCore>,
    sock: &Bound<'_, PyAny>,
    size: &Bound<'_, PyAny>,
) -> PyResult<Option<Py<PyAny>>> {
    let py = r#loop.py();
    let this = r#loop.get();
    let Ok(size @ 1..) = size.extract::<isize>() else {
        return Ok(None);
    };
    let size = size as usize;
    let Some((fd, stream)) = plain(r#loop, sock, RECEIVING)? else {
        return Ok(None);
    };
    if cancelled_results::has(this, sock)
        && operation_queues::current(this, py, OpQueueId::read(fd)).is_none()
        && let Some(item) = cancelled_results::take(this, sock)
    {
        return cut_to_size(r#loop, sock, item, size).map(Some);
    }
    if this
        .op_queues
        .with(py, |op_queues| op_queues.may_try(OpQueueId::read(fd)))
    {
        let tried = if stream {
            bytes_like_objects::received(py, fd, size.min(AT_ONCE_MAX))
                .map(|bytes| PyResult::Ok((bytes.as_bytes(py).len() == size, bytes.into_any())))
        } else {
            net::recv_message(fd, size.min(SIZE_MAX))
                .map(|incoming| Ok((true, pair(py, &incoming)?)))
        };
        match tried {
            Ok(value) => {
                let (full, value) = value?;
                this.op_queues
                    .with(py, |op_queues| op_queues.tried(fd, full));
                return Ok(Some(value));
            }
            Err(error) if is_transient(&error) => {
                this.op_queues
                    .with(py, |op_queues| op_queues.tried(fd, false));
            }
            Err(error) => return Err(exception_conversion::io_error(&error)),
        }
    }
    queue_receive(r#loop, sock, fd, stream, size).map(Some)
}

/// Queues a receive of up to `size` bytes and returns its future.
fn queue_receive(
    r#loop: &Bound<'_, LoopCore>,
    sock: &Bound<'_, PyAny>,
    fd: RawFd,
    stream: bool,
    size: usize,
) -> PyResult<Py<PyAny>> {
    let op = if stream {
        SocketOp::Recv(size.min(AT_ONCE_MAX) as u32)
    } else {
        SocketOp::RecvFrom(size.min(SIZE_MAX))
    };
    r#loop.get().check_no_transport(r#loop.py(), fd, fd)?;
    launch(r#loop, &RECEIVE, sock, fd, op)
}

/// Receives into a buffer. Returns the number of bytes, or a future of `bytes` that `_sock_fill` copies into the
/// buffer.
#[pyfunction]
#[pyo3(name = "_sock_receive_into")]
fn receive_into(
    r#loop: &Bound<'_, LoopCore>,
    sock: &Bound<'_, PyAny>,
    buf: &Bound<'_, PyAny>,
) -> PyResult<Option<Py<PyAny>>> {
    let py = r#loop.py();
    let this = r#loop.get();
    let Some((fd, stream)) = plain(r#loop, sock, RECEIVING)? else {
        return Ok(None);
    };
    let has_orphan = cancelled_results::has(this, sock);
    let may_try = this
        .op_queues
        .with(py, |op_queues| op_queues.may_try(OpQueueId::read(fd)));
    let tried = bytes_like_objects::with_writable(buf, |memory| {
        let result = if may_try && !has_orphan && !memory.is_empty() {
            net::recv(fd, memory)
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        };
        (memory.len(), result)
    });
    let Some((size @ 1.., result)) = tried else {
        return Ok(None);
    };
    match result {
        Ok(count) => {
            let full = count == size || !stream;
            this.op_queues
                .with(py, |op_queues| op_queues.tried(fd, full));
            return Ok(Some(count.into_pyobject(py)?.into_any().unbind()));
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            if may_try && !has_orphan {
                this.op_queues
                    .with(py, |op_queues| op_queues.tried(fd, false));
            }
        }
        Err(error) => return Err(exception_conversion::io_error(&error)),
    }
    queue_receive(r#loop, sock, fd, stream, size).map(Some)
}

/// Copies received bytes into a buffer and returns their number. The buffer may have shrunk since the operation was
/// started; bytes that do not fit are kept for the next call.
#[pyfunction]
#[pyo3(name = "_sock_fill")]
fn fill(
    r#loop: &Bound<'_, LoopCore>,
    sock: &Bound<'_, PyAny>,
    buf: &Bound<'_, PyAny>,
    data: &Bound<'_, PyBytes>,
) -> PyResult<usize> {
    let bytes = data.as_bytes();
    let copied = bytes_like_objects::with_writable(buf, |memory| {
        let count = bytes.len().min(memory.len());
        for (to, from) in memory.iter_mut().zip(bytes) {
            to.write(*from);
        }
        count
    });
    let count = copied.unwrap_or(0);
    if count < bytes.len() {
        let rest = PyBytes::new(r#loop.py(), &bytes[count..]);
        cancelled_results::give_back(r#loop, sock, rest.into_any().unbind())?;
    }
    if copied.is_none() {
        return Err(PyValueError::new_err(
            "the buffer is no longer writable; what was received is kept for the next call",
        ));
    }
    Ok(count)
}

/// Accepts a connection. Result: `(socket, address)`.
#[pyfunction]
#[pyo3(name = "_sock_accept")]
fn accept(r#loop: &Bound<'_, LoopCore>, sock: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
    let py = r#loop.py();
    let this = r#loop.get();
    let Some((fd, true)) = plain(r#loop, sock, ACCEPTING)? else {
        return Ok(None);
    };
    if operation_queues::current(this, py, OpQueueId::read(fd)).is_none()
        && let Some(item) = cancelled_results::take(this, sock)
    {
        return Ok(Some(item));
    }
    if this
        .op_queues
        .with(py, |op_queues| op_queues.may_accept(OpQueueId::read(fd)))
    {
        match net::accept(fd) {
            Ok((accepted, from)) => {
                this.op_queues
                    .with(py, |op_queues| op_queues.tried(fd, true));
                return connection(py, sock, accepted, &from).map(Some);
            }
            Err(error) if is_transient(&error) => {
                this.op_queues
                    .with(py, |op_queues| op_queues.tried(fd, false));
            }
            Err(error) => return Err(exception_conversion::io_error(&error)),
        }
    }
    this.check_no_transport(py, fd, fd)?;
    launch(r#loop, &ACCEPT, sock, fd, SocketOp::Accept).map(Some)
}

/// Sends all of `data`. Returns the number of bytes if a system call has sent them at once, else a future.
#[pyfunction]
#[pyo3(name = "_sock_send_all")]
fn send_all(
    r#loop: &Bound<'_, LoopCore>,
    sock: &Bound<'_, PyAny>,
    data: &Bound<'_, PyAny>,
) -> PyResult<Option<Py<PyAny>>> {
    let py = r#loop.py();
    let this = r#loop.get();
    let Some((fd, _)) = plain(r#loop, sock, SENDING)? else {
        return Ok(None);
    };
    let may_try = this
        .op_queues
        .with(py, |op_queues| op_queues.may_try(OpQueueId::write(fd)));
    let tried = bytes_like_objects::with_readable(data, |bytes| {
        let result = if may_try {
            net::send_to(fd, bytes, None)
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        };
        (bytes.len(), result)
    });
    let Some((size, result)) = tried else {
        return Ok(None);
    };
    let sent = match result {
        Ok(sent) if sent == size => {
            return Ok(Some(sent.into_pyobject(py)?.into_any().unbind()));
        }
        Ok(sent) => sent,
        Err(error) if is_transient(&error) => 0,
        Err(error) => return Err(exception_conversion::io_error(&error)),
    };
    this.check_no_transport(py, fd, fd)?;
    let rest = bytes_like_objects::rest_of(data, sent)?;
    launch(r#loop, &SEND, sock, fd, SocketOp::Send(rest)).map(Some)
}

/// Sends `data` as one message. Result: the number of bytes.
#[pyfunction]
#[pyo3(name = "_sock_send_to")]
fn send_to(
    r#loop: &Bound<'_, LoopCore>,
    sock: &Bound<'_, PyAny>,
    data: &Bound<'_, PyAny>,
    address: &Bound<'_, PyAny>,
) -> PyResult<Option<Py<PyAny>>> {
    let py = r#loop.py();
    let this = r#loop.get();
    let Some((fd, _)) = plain(r#loop, sock, SENDING)? else {
        return Ok(None);
    };
    let Some(to) = address::plain(member(sock, "family")?, address) else {
        return Ok(None);
    };
    let may_try = this
        .op_queues
        .with(py, |op_queues| op_queues.may_try(OpQueueId::write(fd)));
    let tried = bytes_like_objects::with_readable(data, |bytes| {
        if may_try {
            net::send_to(fd, bytes, Some(&to))
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        }
    });
    match tried {
        None => return Ok(None),
        Some(Ok(sent)) => return Ok(Some(sent.into_pyobject(py)?.into_any().unbind())),
        Some(Err(error)) if is_transient(&error) => {}
        Some(Err(error)) => return Err(exception_conversion::io_error(&error)),
    }
    this.check_no_transport(py, fd, fd)?;
    let data = bytes_like_objects::rest_of(data, 0)?;
    launch(r#loop, &SEND_TO, sock, fd, SocketOp::SendTo(data, Some(to))).map(Some)
}

/// Connects to a resolved address. As in asyncio, connect(2) is called at once. Returns 0 if the socket is connected
/// then, a future if the connection is being set up, and `None` if asyncio's own code has to handle the call.
#[pyfunction]
#[pyo3(name = "_sock_connect")]
fn connect(
    r#loop: &Bound<'_, LoopCore>,
    sock: &Bound<'_, PyAny>,
    address: &Bound<'_, PyAny>,
) -> PyResult<Option<Py<PyAny>>> {
    let py = r#loop.py();
    let Some((fd, _)) = plain(r#loop, sock, CONNECTING)? else {
        return Ok(None);
    };
    let Some(to) = address::plain(member(sock, "family")?, address) else {
        return Ok(None);
    };
    let this = r#loop.get();
    let resumed = cancelled_results::take_connected(this, sock);
    match net::connect(fd, &to) {
        Ok(()) => return Ok(Some(0i32.into_pyobject(py)?.into_any().unbind())),
        // The operation of a cancelled call has connected the socket, so this call has succeeded.
        Err(error) if resumed && error.raw_os_error() == Some(libc::EISCONN) => {
            return Ok(Some(0i32.into_pyobject(py)?.into_any().unbind()));
        }
        Err(error) if is_under_way(&error) => {}
        Err(error) => return Err(exception_conversion::io_error(&error)),
    }
    this.check_no_transport(py, fd, fd)?;
    launch(r#loop, &CONNECT, sock, fd, SocketOp::Connect(to)).map(Some)
}

/// Returns a future that is done when the socket can be written to. Also for the socket of a transport that is
/// sending a file.
#[pyfunction]
#[pyo3(name = "_sock_writable")]
fn writable(r#loop: &Bound<'_, LoopCore>, sock: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
    let py = r#loop.py();
    let Some((fd, _)) = plain(r#loop, sock, NO_METHODS)? else {
        return Ok(None);
    };
    r#loop.get().check_no_transport(py, fd, fd)?;
    launch(r#loop, &SEND, sock, fd, SocketOp::Writable).map(Some)
}

/// Cancels the operation of `future`, whose call was cancelled. If the operation has a result already, the result is
/// kept for the next call on `sock`.
#[pyfunction]
#[pyo3(name = "_sock_abandon")]
fn abandon(
    r#loop: &Bound<'_, LoopCore>,
    sock: &Bound<'_, PyAny>,
    future: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = r#loop.py();
    operation_futures::abandon(r#loop, future)?;
    // The future is still pending if the loop or the socket was closed, because the close has removed the operation.
    // There is no result then.
    if !future.call_method0(intern!(py, "done"))?.is_truthy()?
        || future.call_method0(intern!(py, "cancelled"))?.is_truthy()?
        || !future.call_method0(intern!(py, "exception"))?.is_none()
    {
        return Ok(());
    }
    let result = future.call_method0(intern!(py, "result"))?;
    if result.is_instance_of::<PyBool>() {
        return cancelled_results::keep_connected(r#loop, sock);
    }
    if r#loop.get().check_closed().is_err()
        || !(result.is_instance_of::<PyBytes>() || result.is_instance_of::<PyTuple>())
    {
        return Ok(());
    }
    cancelled_results::give_back(r#loop, sock, result.unbind())
}

/// Keeps a result that could not be delivered, for the next call.
#[pyfunction]
#[pyo3(name = "_sock_give_back")]
fn give_back(
    r#loop: &Bound<'_, LoopCore>,
    sock: &Bound<'_, PyAny>,
    result: Py<PyAny>,
) -> PyResult<()> {
    cancelled_results::give_back(r#loop, sock, result)
}

// Functions of the plans -----------------------------------------------------------------------------

fn received(
    slf: &Bound<'_, LoopCore>,
    subject: Subject<'_, '_>,
    outcome: Outcome,
) -> PyResult<Py<PyAny>> {
    let py = slf.py();
    match (outcome, subject) {
        (Outcome::Received(Ok(data)), _) => Ok(PyBytes::new(py, &data).into_any().unbind()),
        (Outcome::ReceivedFrom(Ok(incoming)), _) => pair(py, &incoming),
        (Outcome::AcceptedFrom(Ok((fd, from))), Some(listener)) => {
            connection(py, listener, fd, &from)
        }
        (other, _) => Err(operation_futures::failed(&other)),
    }
}

fn no_result(
    slf: &Bound<'_, LoopCore>,
    _: Subject<'_, '_>,
    outcome: Outcome,
) -> PyResult<Py<PyAny>> {
    match outcome {
        Outcome::Done(Ok(_)) => Ok(slf.py().None()),
        other => Err(operation_futures::failed(&other)),
    }
}

fn connected(
    slf: &Bound<'_, LoopCore>,
    subject: Subject<'_, '_>,
    outcome: Outcome,
) -> PyResult<Py<PyAny>> {
    // EISCONN: the operation of a cancelled call, which was before this one in the queue, has connected the socket.
    if !matches!(outcome, Outcome::Done(Err(Errno(libc::EISCONN)))) {
        no_result(slf, subject, outcome)?;
    }
    // `abandon` recognises the result of a connect by this value.
    Ok(PyBool::new(slf.py(), true).to_owned().into_any().unbind())
}

/// Keeps the success of a connect whose call was cancelled. The next call finds the socket connected and takes that
/// for a success.
fn keep_connected(
    slf: &Bound<'_, LoopCore>,
    subject: Subject<'_, '_>,
    outcome: Outcome,
) -> PyResult<()> {
    match (outcome, subject) {
        (Outcome::Done(Ok(_)), Some(socket)) => cancelled_results::keep_connected(slf, socket),
        _ => Ok(()),
    }
}

/// Keeps the result of a cancelled call. Errors and ends of streams are not kept, because the kernel returns them to
/// the next call again.
fn keep(slf: &Bound<'_, LoopCore>, subject: Subject<'_, '_>, outcome: Outcome) -> PyResult<()> {
    let worth = match &outcome {
        Outcome::Received(Ok(data)) => !data.is_empty(),
        Outcome::ReceivedFrom(Ok(_)) | Outcome::AcceptedFrom(Ok(_)) => true,
        _ => false,
    };
    match subject {
        Some(socket) if worth && fileno(socket)? >= 0 => {
            let item = received(slf, subject, outcome)?;
            cancelled_results::keep(slf, socket, item)
        }
        _ => Ok(()),
    }
}

fn pair(py: Python<'_>, incoming: &ReceivedMessage) -> PyResult<Py<PyAny>> {
    let from = match incoming.from() {
        Some(from) => address::to_python(py, &from)?,
        None => py.None(),
    };
    let data = PyBytes::new(py, incoming.data());
    Ok((data, from).into_pyobject(py)?.into_any().unbind())
}

/// Makes the socket object of an accepted connection, as `socket.accept()` does, and makes it non-blocking.
fn connection(
    py: Python<'_>,
    listener: &Bound<'_, PyAny>,
    fd: OwnedFd,
    from: &PeerAddress,
) -> PyResult<Py<PyAny>> {
    let arguments = PyDict::new(py);
    arguments.set_item(intern!(py, "family"), member(listener, "family")?)?;
    // With this bit in `type`, `socket.socket` is made non-blocking.
    let kind = member(listener, "type")? | libc::SOCK_NONBLOCK;
    arguments.set_item(intern!(py, "type"), kind)?;
    arguments.set_item(intern!(py, "proto"), member(listener, "proto")?)?;
    let made = object_with(arguments, fd)?;
    let from = address::to_python(py, &from.address())?;
    Ok((made, from).into_pyobject(py)?.into_any().unbind())
}

/// Cuts a kept result to the size that the call requests. The remaining bytes of a stream are kept for the next call;
/// those of a datagram are dropped.
fn cut_to_size(
    slf: &Bound<'_, LoopCore>,
    socket: &Bound<'_, PyAny>,
    item: Py<PyAny>,
    size: usize,
) -> PyResult<Py<PyAny>> {
    let py = slf.py();
    let Ok(bytes) = item.bind(py).cast::<PyBytes>() else {
        let pair = item.bind(py).cast::<PyTuple>()?;
        let (data, from) = (pair.get_item(0)?, pair.get_item(1)?);
        let data = data.cast::<PyBytes>()?.as_bytes();
        let data = PyBytes::new(py, &data[..data.len().min(size)]);
        return Ok((data, from).into_pyobject(py)?.into_any().unbind());
    };
    if bytes.as_bytes().len() <= size {
        return Ok(item);
    }
    let (first, rest) = bytes.as_bytes().split_at(size);
    let (first, rest) = (PyBytes::new(py, first), PyBytes::new(py, rest));
    cancelled_results::give_back(slf, socket, rest.into_any().unbind())?;
    Ok(first.into_any().unbind())
}

/// True if the connect continues in the background. EAGAIN: the backlog of a Unix listener is full.
fn is_under_way(error: &io::Error) -> bool {
    is_transient(error)
        || matches!(
            error.raw_os_error(),
            Some(libc::EINPROGRESS | libc::EALREADY)
        )
}

/// True for errors after which asyncio waits until the socket is ready and tries again.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(receive, m)?)?;
    m.add_function(wrap_pyfunction!(receive_into, m)?)?;
    m.add_function(wrap_pyfunction!(fill, m)?)?;
    m.add_function(wrap_pyfunction!(accept, m)?)?;
    m.add_function(wrap_pyfunction!(send_all, m)?)?;
    m.add_function(wrap_pyfunction!(send_to, m)?)?;
    m.add_function(wrap_pyfunction!(connect, m)?)?;
    m.add_function(wrap_pyfunction!(abandon, m)?)?;
    m.add_function(wrap_pyfunction!(give_back, m)?)?;
    m.add_function(wrap_pyfunction!(writable, m)?)
}

/// The largest number of bytes that one receive takes at once, as in asyncio. A buffer of the ring is smaller.
const AT_ONCE_MAX: usize = 256 * 1024;
/// The limit of the size that is passed to the kernel, in bytes. No message is larger.
const SIZE_MAX: usize = 1 << 20;
