//! Connections of a listening socket: makes a protocol and a transport for each accepted descriptor.

use std::os::fd::{AsRawFd, OwnedFd};

use pyo3::intern;
use pyo3::prelude::*;
use uringcore_engine::Key;
use uringcore_io::Errno;

use crate::capi::contextvars_context::{CallbackContext, Inside};
use crate::capi::exception_conversion;
use crate::event_loop::loop_core::LoopCore;
use crate::event_loop::ready_queue::Ready;
use crate::sock::operation_queues;
use crate::sock::plain_sockets::{STREAMING, replaced_methods};
use crate::sock::socket_object_creation;
use crate::transport::base_transport::Descriptor;
use crate::transport::native_protocol::is_admitted;
use crate::transport::stream::StreamTransport;

/// Makes a protocol and a transport for a new connection, whose descriptor is `fd`.
pub fn accepted(slf: &Bound<'_, LoopCore>, key: Key, fd: OwnedFd) -> PyResult<()> {
    let py = slf.py();
    let this = slf.get();
    let host = this.objects.with(py, |objects| {
        objects
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
    // The listener was closed after the accept. The descriptor is dropped, which resets the connection.
    let Some((factory, tls, server, context)) = host else {
        return Ok(());
    };
    operation_queues::forget_descriptor(this, py, fd.as_raw_fd())?;
    let context = context.fork(py)?;
    let inside = Inside::of(context.get().bind(py))?;
    let mut protocol = None;
    let made = match tls {
        tls if replaced_methods(py)? & STREAMING != 0 => socket_object_creation::object(py, fd)
            .and_then(|socket| {
                let arguments = (socket, factory, tls, server, context.get());
                slf.call_method1(intern!(py, "_serve_in_python"), arguments)
                    .map(drop)
            }),
        tls => factory.bind(py).call0().and_then(|made| {
            protocol = Some(made.clone());
            match tls {
                // The connection is refused: `fd` is dropped here, which closes it.
                _ if !is_admitted(&made, fd.as_raw_fd()) => Ok(()),
                Some(tls) => crate::tls::accepted(slf, fd, &made, tls.bind(py), server, context),
                None => begin(slf, fd, made.unbind(), server, context),
            }
        }),
    };
    drop(inside);
    match made {
        Ok(()) => Ok(()),
        Err(error) if exception_conversion::is_exit(py, &error) => Err(error),
        Err(error) => {
            slf.call_method1(
                intern!(py, "_report"),
                (
                    "Error on transport creation for incoming connection",
                    error.into_value(py),
                    py.None(),
                    protocol,
                ),
            )?;
            Ok(())
        }
    }
}

fn begin(
    slf: &Bound<'_, LoopCore>,
    fd: OwnedFd,
    protocol: Py<PyAny>,
    server: Py<PyAny>,
    context: CallbackContext,
) -> PyResult<()> {
    let py = slf.py();
    let (number, fd) = (fd.as_raw_fd(), Descriptor::Owned(fd));
    let opened = StreamTransport::open(slf, number, fd, protocol, None, Some(server), context)?;
    let base = opened.bind(py).as_super().clone().unbind();
    slf.get().push_ready(py, Ready::Start(base, None));
    Ok(())
}

/// Reports that accepting has failed, for instance for want of descriptors. The engine has stopped to accept; the
/// loop calls `_relisten` after a while.
pub fn failed(slf: &Bound<'_, LoopCore>, key: Key, errno: Errno) -> PyResult<()> {
    let py = slf.py();
    let fd = slf.get().objects.with(py, |objects| {
        objects
            .listeners
            .iter()
            .find(|(_, host)| host.key == key)
            .map(|(fd, _)| *fd)
    });
    if let Some(fd) = fd {
        let error = exception_conversion::os_error(errno).into_value(py);
        slf.call_method1(intern!(py, "_accept_failed"), (fd, error))?;
    }
    Ok(())
}
