//! Passes an event of the engine to the Python object that handles it.
//!
//! A callback may raise any exception. `SystemExit` and `KeyboardInterrupt` leave the loop; functions here return
//! these two errors only. All others go to the loop's exception handler.

use pyo3::prelude::*;
use uringcore_engine::{Direction, EngineEvent, Key};

use crate::event_loop::accepted_connections;
use crate::event_loop::iteration;
use crate::event_loop::loop_core::LoopCore;
use crate::ops::operation_futures;
use crate::transport::base_transport::BaseTransport;
use crate::transport::datagram::DatagramTransport;
use crate::transport::stream::StreamTransport;

pub fn event(slf: &Bound<'_, LoopCore>, event: EngineEvent) -> PyResult<()> {
    match event {
        EngineEvent::StreamData { stream, data } => {
            with_transport(slf, stream, |one| StreamTransport::data_received(one, data))
        }
        EngineEvent::StreamReadable { stream, fd } => {
            with_transport(slf, stream, |one| StreamTransport::readable(one, fd))
        }
        EngineEvent::StreamEof { stream } => {
            with_transport(slf, stream, StreamTransport::eof_received)
        }
        EngineEvent::DatagramReceived { socket, datagram } => with_transport(slf, socket, |one| {
            DatagramTransport::received(one.cast()?, datagram)
        }),
        EngineEvent::DatagramError { socket, error } => with_transport(slf, socket, |one| {
            DatagramTransport::error_received(one, error)
        }),
        EngineEvent::Writable { transport } => {
            with_transport(slf, transport, BaseTransport::resume_writing)
        }
        EngineEvent::Flushed { transport } => {
            with_transport(slf, transport, StreamTransport::flushed)
        }
        EngineEvent::Failed {
            transport,
            side,
            error,
        } => with_transport(slf, transport, |one| {
            StreamTransport::failed(one, side, error)
        }),
        EngineEvent::Lost { transport } => with_transport(slf, transport, BaseTransport::lose),
        EngineEvent::Closed { transport } => {
            with_transport(slf, transport, |one| BaseTransport::closed(one, transport))
        }
        EngineEvent::PollReady(ready) => {
            let py = slf.py();
            let at = (ready.fd, ready.direction == Direction::Write);
            let handle = slf.get().objects.with(py, |objects| {
                let watcher = objects.watchers.get(&at)?;
                (watcher.serial == ready.serial).then(|| watcher.handle.clone_ref(py))
            });
            handle.map_or(Ok(()), |handle| iteration::run_handle(slf, handle))
        }
        EngineEvent::Accepted { listener, fd } => accepted_connections::accepted(slf, listener, fd),
        EngineEvent::AcceptFailed { listener, error } => {
            accepted_connections::failed(slf, listener, error)
        }
        EngineEvent::OpDone { op, outcome } => operation_futures::done(slf, op, outcome),
        EngineEvent::QuicReady { socket } => crate::quic::ready(slf, socket),
        EngineEvent::QuicClosed { socket } => crate::quic::closed(slf, socket),
    }
}

/// Calls `run` with the transport of `key`, unless the transport has ended.
fn with_transport(
    slf: &Bound<'_, LoopCore>,
    key: Key,
    run: impl FnOnce(&Bound<'_, BaseTransport>) -> PyResult<()>,
) -> PyResult<()> {
    let py = slf.py();
    let found = slf
        .get()
        .objects
        .with(py, |objects| objects.transport(py, key));
    found.map_or(Ok(()), |transport| run(&transport))
}
