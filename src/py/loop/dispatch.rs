//! From an engine event to the Python callback that waits for it.
//!
//! A callback may raise anything: `SystemExit` and `KeyboardInterrupt` leave the loop (the only errors
//! that functions here return), the rest goes to the loop's exception handler.

use pyo3::intern;
use pyo3::prelude::*;
use uringcore_engine::{Direction, Event, Key};
use uringcore_io::Errno;

use crate::capi::context::Entered;
use crate::capi::error;
use crate::event_loop::loop_core::{LoopCore, Ready};
use crate::event_loop::turn;
use crate::ops::waiting;
use crate::sock::lanes;
use crate::sock::plain_socket::{self, STREAMING, replaced_methods};
use crate::transport::base::{BaseTransport, Descriptor};
use crate::transport::datagram::DatagramTransport;
use crate::transport::stream::StreamTransport;

pub fn event(slf: &Bound<'_, LoopCore>, event: Event, entered: &mut Entered) -> PyResult<()> {
    let py = slf.py();
    let this = slf.get();
    let transport = |key: Key| this.hosts.with(py, |hosts| hosts.transport(py, key));
    match event {
        Event::StreamData { stream, data } => match transport(stream) {
            Some(one) => StreamTransport::data_received(&one, data, entered),
            None => Ok(()),
        },
        Event::StreamEof { stream } => match transport(stream) {
            Some(one) => StreamTransport::eof_received(&one, entered),
            None => Ok(()),
        },
        Event::DatagramReceived { socket, datagram } => match transport(socket) {
            Some(one) => DatagramTransport::received(one.cast()?, datagram, entered),
            None => Ok(()),
        },
        Event::DatagramError { socket, error } => match transport(socket) {
            Some(one) => DatagramTransport::error_received(&one, error, entered),
            None => Ok(()),
        },
        Event::Writable { transport: key } => match transport(key) {
            Some(one) => BaseTransport::resume_writing(&one, entered),
            None => Ok(()),
        },
        Event::Flushed { transport: key } => match transport(key) {
            Some(one) => StreamTransport::flushed(&one),
            None => Ok(()),
        },
        Event::Failed {
            transport: key,
            side,
            error,
        } => match transport(key) {
            Some(one) => StreamTransport::failed(&one, side, error),
            None => Ok(()),
        },
        Event::Lost { transport: key } => match transport(key) {
            Some(one) => BaseTransport::lose(&one, entered),
            None => Ok(()),
        },
        Event::Closed { transport: key } => match transport(key) {
            Some(one) => one.get().closed(py, key),
            None => Ok(()),
        },
        Event::PollReady(ready) => {
            let at = (ready.fd, ready.direction == Direction::Write);
            let handle = this.hosts.with(py, |hosts| {
                let watcher = hosts.watchers.get(&at)?;
                (watcher.serial == ready.serial).then(|| watcher.handle.clone_ref(py))
            });
            match handle {
                Some(handle) => turn::run_handle(slf, handle, entered),
                None => Ok(()),
            }
        }
        Event::Accepted { listener, fd } => accepted(slf, listener, fd, entered),
        Event::AcceptFailed { listener, error } => accept_failed(slf, listener, error, entered),
        Event::OpDone { op, outcome } => waiting::done(slf, op, outcome),
        Event::QuicReady { endpoint } => crate::quic::ready(slf, endpoint, entered),
        Event::QuicClosed { endpoint } => crate::quic::closed(slf, endpoint, entered),
    }
}

fn accepted(
    slf: &Bound<'_, LoopCore>,
    key: Key,
    fd: std::os::fd::OwnedFd,
    entered: &mut Entered,
) -> PyResult<()> {
    use std::os::fd::AsRawFd;

    let py = slf.py();
    let this = slf.get();
    let host = this.hosts.with(py, |hosts| {
        hosts
            .listeners
            .values()
            .find(|host| host.key == key)
            .map(|host| {
                (
                    host.protocol_factory.clone_ref(py),
                    host.tls.as_ref().map(|tls| tls.clone_ref(py)),
                    host.server.clone_ref(py),
                    host.context.clone_ref(py),
                )
            })
    });
    // The listener was closed between the accept and now: dropping the descriptor resets the peer.
    let Some((factory, tls, server, context)) = host else {
        return Ok(());
    };
    lanes::forget_descriptor(this, py, fd.as_raw_fd())?;
    let context = context.fork(py)?;
    entered.switch(py, context.get())?;
    let made = match tls {
        tls if replaced_methods(py)? & STREAMING != 0 => {
            plain_socket::object(py, fd).and_then(|socket| {
                let arguments = (socket, factory, tls, server, context.get());
                slf.call_method1(intern!(py, "_serve_in_python"), arguments)
                    .map(drop)
            })
        }
        None => factory.bind(py).call0().and_then(|protocol| {
            let transport = StreamTransport::open(
                slf,
                fd.as_raw_fd(),
                Descriptor::Owned(fd),
                protocol.unbind(),
                None,
                Some(server),
                context,
            )?;
            let base = transport.bind(py).as_super().clone().unbind();
            this.push_ready(py, Ready::Start(base, None));
            Ok(())
        }),
        Some(tls) => crate::tls::accepted(slf, fd, factory.bind(py), tls.bind(py), server, context),
    };
    match made {
        Ok(()) => Ok(()),
        Err(error) if error::is_exit(py, &error) => Err(error),
        Err(error) => {
            entered.leave(py);
            slf.call_method1(
                intern!(py, "_report"),
                (
                    "Error on transport creation for incoming connection",
                    error.into_value(py),
                ),
            )?;
            Ok(())
        }
    }
}

fn accept_failed(
    slf: &Bound<'_, LoopCore>,
    key: Key,
    errno: Errno,
    entered: &mut Entered,
) -> PyResult<()> {
    let py = slf.py();
    let fd = slf.get().hosts.with(py, |hosts| {
        hosts
            .listeners
            .iter()
            .find(|(_, host)| host.key == key)
            .map(|(fd, _)| *fd)
    });
    if let Some(fd) = fd {
        entered.leave(py);
        let error = error::os_error(errno).into_value(py);
        slf.call_method1(intern!(py, "_accept_failed"), (fd, error))?;
    }
    Ok(())
}

/// Hands `error` of a protocol callback to the exception handler, unless it has to leave the loop.
pub fn report(
    py: Python<'_>,
    owner: &Py<LoopCore>,
    message: &str,
    error: PyErr,
    transport: &Bound<'_, PyAny>,
    protocol: &Py<PyAny>,
    entered: Option<&mut Entered>,
) -> PyResult<()> {
    if error::is_exit(py, &error) {
        return Err(error);
    }
    if let Some(entered) = entered {
        entered.leave(py);
    }
    owner.bind(py).call_method1(
        intern!(py, "_report"),
        (message, error.into_value(py), transport, protocol),
    )?;
    Ok(())
}
