//! The awaitables that methods of streams and connections return. They are coroutines too, so that tasks can be made
//! of them.
//!
//! An operation that has to wait has done nothing yet; it is tried again when its future is set. So a cancellation,
//! at any moment, takes nothing from the stream and leaves nothing behind.

use pyo3::prelude::*;
use pyo3::types::PyAny;
use pyo3::{PyTraverseError, PyVisit};
use uringcore_quic::read_on_demand::Key;

use super::connection_base::{ConnectionBase, Opening};
use super::reading::ReadRequest;
use super::sending::Unsent;
use super::stream::Stream;
use super::stream_manager::StreamManager;
use crate::capi::coroutine_methods::coroutine_methods;
use crate::capi::rust_coroutine::{Outcome, RustCoroutine, Work};

/// The awaitable of a method of a stream or a connection.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct StreamAwaitable(RustCoroutine<StreamOperation>);

coroutine_methods!(StreamAwaitable);

impl StreamAwaitable {
    pub fn new(job: StreamOperation) -> Self {
        Self(RustCoroutine::new(job.name(), job))
    }
}

/// The method of a stream or a connection that an awaitable executes, with its arguments.
pub enum StreamOperation {
    Read(Py<Stream>, ReadRequest),
    ReadInto(Py<Stream>, Py<PyAny>),
    Next(Py<Stream>),
    Send(Py<Stream>, Unsent),
    Finish(Py<Stream>),
    WaitFinished(Py<Stream>),
    /// The end of the stream's `async with` block. The flag is true if an exception has left the block.
    Leave(Py<Stream>, bool),
    Itself(Py<Stream>),
    Open(Py<ConnectionBase>, bool),
    Enter(Py<Opening>),
    Accept(Py<ConnectionBase>, bool),
    NextStream(Py<ConnectionBase>, bool),
    Datagram(Py<ConnectionBase>),
    Datagrams(Py<ConnectionBase>),
    NextDatagram(Py<ConnectionBase>),
    WaitAllFinished(Py<ConnectionBase>),
}

/// The result of a step of an operation.
pub enum Polled {
    Ready(Py<PyAny>),
    /// The asynchronous iterator has ended (`StopAsyncIteration`).
    Exhausted,
    Wait(Key),
}

impl Work for StreamOperation {
    #[inline]
    fn run(mut self, py: Python<'_>) -> PyResult<Outcome<Self>> {
        Ok(match self.poll(py)? {
            Polled::Ready(value) => Outcome::Return(value),
            Polled::Exhausted => Outcome::Exhausted,
            Polled::Wait(key) => {
                let future = self.manager(py).get().waiter(py, key)?;
                Outcome::Wait(future.unbind(), self)
            }
        })
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::ReadInto(stream, target) => {
                visit.call(stream)?;
                visit.call(target)
            }
            Self::Send(stream, unsent) => {
                visit.call(stream)?;
                unsent.traverse(visit)
            }
            Self::Read(stream, _)
            | Self::Next(stream)
            | Self::Finish(stream)
            | Self::WaitFinished(stream)
            | Self::Leave(stream, _)
            | Self::Itself(stream) => visit.call(stream),
            Self::Enter(opening) => visit.call(opening),
            Self::Open(connection, _)
            | Self::Accept(connection, _)
            | Self::NextStream(connection, _)
            | Self::Datagram(connection)
            | Self::Datagrams(connection)
            | Self::NextDatagram(connection)
            | Self::WaitAllFinished(connection) => visit.call(connection),
        }
    }
}

impl StreamOperation {
    /// The name of the method that has made the awaitable.
    fn name(&self) -> &'static str {
        match self {
            Self::Read(..) => "read",
            Self::ReadInto(..) => "readinto",
            Self::Next(..) | Self::NextStream(..) | Self::NextDatagram(..) => "__anext__",
            Self::Send(..) => "send",
            Self::Finish(..) => "finish",
            Self::WaitFinished(..) => "wait_finished",
            Self::Leave(..) => "__aexit__",
            Self::Itself(..) | Self::Enter(..) => "__aenter__",
            Self::Open(..) => "open_stream",
            Self::Accept(..) => "accept_stream",
            Self::Datagram(..) => "receive_datagram",
            Self::Datagrams(..) => "receive_datagrams",
            Self::WaitAllFinished(..) => "wait_delivered",
        }
    }

    fn poll(&mut self, py: Python<'_>) -> PyResult<Polled> {
        match self {
            Self::Read(stream, asked) => stream.get().read(py, asked),
            Self::ReadInto(stream, target) => stream.get().read_into(py, target.bind(py)),
            Self::Next(stream) => stream.get().next_piece(py),
            Self::Send(stream, unsent) => stream.get().send(py, unsent),
            Self::Finish(stream) => stream.get().finish(py),
            Self::WaitFinished(stream) => stream.get().wait_finished(py),
            Self::Leave(stream, failed) => stream.get().leave(py, *failed),
            Self::Itself(stream) => Ok(Polled::Ready(stream.clone_ref(py).into_any())),
            Self::Open(connection, unidirectional) => {
                ConnectionBase::open(connection.bind(py), *unidirectional)
            }
            Self::Enter(opening) => opening.get().enter(py),
            Self::Accept(connection, unidirectional) => {
                ConnectionBase::accept(connection.bind(py), *unidirectional, false)
            }
            Self::NextStream(connection, unidirectional) => {
                ConnectionBase::accept(connection.bind(py), *unidirectional, true)
            }
            Self::Datagram(connection) => connection.get().datagram(py, false),
            Self::Datagrams(connection) => connection.get().datagrams_waiting(py),
            Self::NextDatagram(connection) => connection.get().datagram(py, true),
            Self::WaitAllFinished(connection) => connection.get().wait_all_finished(py),
        }
    }

    fn manager(&self, py: Python<'_>) -> Py<StreamManager> {
        match self {
            Self::Read(stream, _)
            | Self::ReadInto(stream, _)
            | Self::Next(stream)
            | Self::Send(stream, _)
            | Self::Finish(stream)
            | Self::WaitFinished(stream)
            | Self::Leave(stream, _)
            | Self::Itself(stream) => stream.get().manager.clone_ref(py),
            Self::Enter(opening) => opening.get().connection.get().manager.clone_ref(py),
            Self::Open(connection, _)
            | Self::Accept(connection, _)
            | Self::NextStream(connection, _)
            | Self::Datagram(connection)
            | Self::Datagrams(connection)
            | Self::NextDatagram(connection)
            | Self::WaitAllFinished(connection) => connection.get().manager.clone_ref(py),
        }
    }
}
