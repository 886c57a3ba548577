//! How a transport begins and ends.
//!
//! asyncio's order is exact here: `connection_made` comes before the first byte and before the waiter
//! of `create_connection`; `connection_lost` is scheduled when a transport is closed with an empty
//! queue, aborted or failed, and its socket is open until that call is over.

use pyo3::exceptions::{PyConnectionError, PyOSError};
use pyo3::intern;
use pyo3::prelude::*;
use uringcore_engine::DatagramSize;
use uringcore_io::Errno;

use super::{BaseTransport, Descriptor, HIGH_WATER_BYTES, Kind, Marks, Parts, Receiver, State};
use crate::capi::cell::GilCell;
use crate::capi::context::Entered;
use crate::capi::error;
use crate::event_loop::dispatch::report;
use crate::event_loop::hosts::host_take;
use crate::event_loop::loop_core::{LoopCore, Ready};
use crate::transport::extra_info;

impl BaseTransport {
    /// A transport that is not yet on the engine.
    pub fn build(owner: &Bound<'_, LoopCore>, parts: Parts) -> PyResult<Self> {
        let py = owner.py();
        let protocol = parts.protocol.bind(py);
        let receiver = Receiver::of(protocol)?;
        if receiver != Receiver::Tls {
            check_protocol(protocol)?;
        }
        Ok(Self {
            owner: owner.clone().unbind(),
            kind: parts.kind,
            fd: parts.fd,
            state: GilCell::new(State {
                key: None,
                descriptor: parts.descriptor,
                protocol: Some(parts.protocol),
                context: Some(parts.context),
                receiver,
                gauge: Default::default(),
                server: parts.server,
                extra: parts.extra,
                started: false,
                paused: false,
                closing: false,
                lost: false,
                lost_error: None,
                lost_context: None,
                writes_lost: 0,
                protocol_paused: false,
                marks: Marks::below(HIGH_WATER_BYTES),
                eof_written: false,
                empty_waiter: None,
            }),
        })
    }

    /// Puts the transport on the engine. When this fails nothing of it is left there, and a Python
    /// socket is still the caller's.
    pub fn attach(slf: &Bound<'_, Self>, size: DatagramSize) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let owner = this.owner.bind(py);
        let server = this
            .state
            .with(py, |state| state.server.as_ref().map(|s| s.clone_ref(py)));
        if let Some(server) = &server {
            owner.call_method1(intern!(py, "_server_attach"), (server, slf))?;
        }
        let opened = this.command(py, |engine| match this.kind {
            Kind::Stream => {
                let key = engine.open_stream(this.fd);
                (key, engine.stream(key).map(|s| s.write_queue_gauge()))
            }
            Kind::Datagram => {
                let key = engine.open_datagram(this.fd, size);
                (key, engine.datagram(key).map(|d| d.write_queue_gauge()))
            }
        });
        match opened {
            Ok((key, gauge)) => {
                this.state.with(py, |state| {
                    state.key = Some(key);
                    state.gauge = gauge.unwrap_or_default();
                });
                Ok(())
            }
            Err(error) => {
                if let Some(server) = server {
                    owner.call_method1(intern!(py, "_server_detach"), (server, slf))?;
                }
                Err(error)
            }
        }
    }

    /// `connection_made`, then reading, then the waiter: what asyncio schedules as three callbacks.
    pub fn start(
        slf: &Bound<'_, Self>,
        waiter: Option<&Py<PyAny>>,
        entered: &mut Entered,
    ) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let mut made = Ok(());
        if let Some(protocol) = this.enter(py, entered)?
            && let Err(error) = protocol
                .bind(py)
                .call_method1(intern!(py, "connection_made"), (slf,))
        {
            let message = "Exception in protocol.connection_made()";
            made = report(
                py,
                &this.owner,
                message,
                error,
                slf,
                &protocol,
                Some(entered),
            );
        }
        // What leaves the loop here leaves it after the rest, which asyncio would run next time.
        let key = this.state.with(py, |state| {
            state.started = true;
            state.key.filter(|_| !state.paused && !state.closing)
        });
        if let Some(key) = key {
            this.command(py, |engine| this.kind.resume_reading(engine, key))?;
        }
        if let Some(waiter) = waiter {
            let waiter = waiter.bind(py);
            if !waiter.call_method0(intern!(py, "done"))?.is_truthy()? {
                waiter.call_method1(intern!(py, "set_result"), (py.None(),))?;
            }
        }
        made
    }

    pub(super) fn context_at_the_end(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let context = self.state.with(py, |state| {
            state.context.as_ref().map(|context| context.clone_ref(py))
        });
        context.map_or(Ok(None), |context| context.at_the_end(py))
    }

    pub(super) fn schedule_lost(&self, slf: &Bound<'_, Self>) {
        let item = Ready::Lost(slf.clone().unbind());
        self.owner.get().push_ready(slf.py(), item);
    }

    /// Ends the transport with `error` (None: it was aborted) unless that is under way.
    pub fn force_close(slf: &Bound<'_, Self>, error: Option<Py<PyAny>>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let (lost, key) = this.state.with(py, |state| (state.lost, state.key));
        let (false, Some(key)) = (lost, key) else {
            return Ok(());
        };
        let context = this.context_at_the_end(py)?;
        this.command(py, |engine| match this.kind {
            Kind::Stream => engine.abort_stream(key),
            Kind::Datagram => engine.abort_datagram(key),
        })?;
        let old = this.state.with(py, |state| {
            state.closing = true;
            state.lost = true;
            (
                std::mem::replace(&mut state.lost_error, error),
                std::mem::replace(&mut state.lost_context, context),
            )
        });
        drop(old);
        this.schedule_lost(slf);
        Ok(())
    }

    /// asyncio's `_fatal_error`: report unless it is the network's fault, then end the connection.
    pub fn fatal(
        slf: &Bound<'_, Self>,
        error: PyErr,
        message: &str,
        entered: Option<&mut Entered>,
    ) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        if error::is_exit(py, &error) {
            return Err(error);
        }
        if let Some(entered) = entered {
            entered.leave(py);
        }
        let value = error.into_value(py);
        let owner = this.owner.bind(py);
        if value.bind(py).is_instance_of::<PyOSError>() {
            if this.owner.get().is_debug() {
                owner.call_method1(intern!(py, "_log_transport_error"), (slf, message, &value))?;
            }
        } else {
            let protocol = this.protocol(py);
            owner.call_method1(intern!(py, "_report"), (message, &value, slf, protocol))?;
        }
        Self::force_close(slf, Some(value.into_any()))
    }

    /// The engine's word that receiving or sending failed.
    pub fn socket_failed(
        slf: &Bound<'_, Self>,
        errno: Errno,
        message: &str,
        entered: &mut Entered,
    ) -> PyResult<()> {
        Self::fatal(slf, error::os_error(errno), message, Some(entered))
    }

    /// The queue of a closed transport is with the kernel.
    pub fn flushed(slf: &Bound<'_, Self>, entered: &mut Entered) -> PyResult<()> {
        let py = slf.py();
        let waits = slf.get().state.with(py, |state| {
            state.closing && !std::mem::replace(&mut state.lost, true)
        });
        if waits {
            Self::lose(slf, entered)
        } else {
            Ok(())
        }
    }

    /// The turn has come for what `close`, `abort` or a failure scheduled.
    pub fn run_lost(slf: &Bound<'_, Self>, entered: &mut Entered) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let (key, lost) = this.state.with(py, |state| (state.key, state.lost));
        let Some(key) = key else {
            return Ok(());
        };
        if lost {
            return Self::lose(slf, entered);
        }
        let flushed = this.command(py, |engine| match this.kind {
            Kind::Stream => engine.stream(key).is_some_and(|s| s.is_flushed()),
            Kind::Datagram => engine.datagram(key).is_some_and(|d| d.is_flushed()),
        })?;
        // Else the engine tells when it is.
        if flushed {
            Self::flushed(slf, entered)
        } else {
            Ok(())
        }
    }

    /// `connection_lost`, then everything is let go.
    fn lose(slf: &Bound<'_, Self>, entered: &mut Entered) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let (protocol, error, context) = this.state.with(py, |state| {
            let usual = state.context.as_ref().map(|c| c.get().clone_ref(py));
            (
                state
                    .key
                    .and(state.protocol.as_ref().map(|p| p.clone_ref(py))),
                state.lost_error.take(),
                state.lost_context.take().or(usual),
            )
        });
        let Some(protocol) = protocol else {
            return Ok(());
        };
        if let Some(context) = context {
            entered.switch(py, &context)?;
        }
        let error = error.unwrap_or_else(|| py.None());
        let called = protocol
            .bind(py)
            .call_method1(intern!(py, "connection_lost"), (error,));
        let outcome = match called {
            Ok(_) => Ok(()),
            Err(error) => {
                let message = "Exception in protocol.connection_lost()";
                report(
                    py,
                    &this.owner,
                    message,
                    error,
                    slf,
                    &protocol,
                    Some(entered),
                )
            }
        };
        entered.leave(py);
        drop(protocol);
        outcome.and(Self::let_go(slf))
    }

    fn let_go(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let dropped = this
            .state
            .with(py, |state| (state.protocol.take(), state.context.take()));
        drop(dropped);
        extra_info::keep_addresses(slf)?;
        let (key, descriptor, server, waiter) = this.state.with(py, |state| {
            (
                state.key.take(),
                std::mem::replace(&mut state.descriptor, Descriptor::Gone),
                state.server.take(),
                state.empty_waiter.take(),
            )
        });
        if let Some(key) = key {
            this.release(py, key, descriptor)?;
        }
        if let Some(server) = server {
            this.owner
                .bind(py)
                .call_method1(intern!(py, "_server_detach"), (server, slf))?;
        }
        match waiter {
            Some(waiter) => fail_waiter(waiter.bind(py), connection_error(py)),
            None => Ok(()),
        }
    }

    /// Closes the descriptor: the engine on the ring, or the Python socket, as soon as no operation
    /// is in flight on it.
    fn release(
        &self,
        py: Python<'_>,
        key: uringcore_engine::Key,
        descriptor: Descriptor,
    ) -> PyResult<()> {
        let (fd, socket) = match descriptor {
            Descriptor::Owned(fd) => (Some(fd), None),
            Descriptor::Socket(socket) => (None, Some(socket)),
            Descriptor::Gone => (None, None),
        };
        let ended = self.command(py, |engine| match self.kind {
            Kind::Stream => engine.release_stream(key, fd),
            Kind::Datagram => engine.release_datagram(key, fd),
        });
        // A loop that is closed has no operation in flight.
        let ended = ended.unwrap_or(true);
        match socket {
            Some(socket) if !ended => {
                self.state
                    .with(py, |state| state.descriptor = Descriptor::Socket(socket));
                return Ok(());
            }
            Some(socket) => {
                self.forget(py, key);
                socket.bind(py).call_method0(intern!(py, "close"))?;
            }
            None => self.forget(py, key),
        }
        Ok(())
    }

    /// The engine's last word: no operation is in flight on the descriptor.
    pub fn closed(&self, py: Python<'_>, key: uringcore_engine::Key) -> PyResult<()> {
        self.forget(py, key);
        self.close_socket(py)
    }

    /// The loop is closed: a socket that waited for the engine is closed now.
    pub fn loop_closed(&self, py: Python<'_>) -> PyResult<()> {
        if self.state.with(py, |state| state.protocol.is_none()) {
            self.close_socket(py)
        } else {
            Ok(())
        }
    }

    fn close_socket(&self, py: Python<'_>) -> PyResult<()> {
        let descriptor = self.state.with(py, |state| {
            std::mem::replace(&mut state.descriptor, Descriptor::Gone)
        });
        if let Descriptor::Socket(socket) = descriptor {
            socket.bind(py).call_method0(intern!(py, "close"))?;
        }
        Ok(())
    }

    fn forget(&self, py: Python<'_>, key: uringcore_engine::Key) {
        let hosts = &self.owner.get().hosts;
        match self.kind {
            Kind::Stream => drop(hosts.with(py, |hosts| host_take(&mut hosts.streams, key))),
            Kind::Datagram => drop(hosts.with(py, |hosts| host_take(&mut hosts.datagrams, key))),
        }
    }
}

/// A factory that made no protocol is heard of where a transport is made, as in asyncio, and not in a
/// later turn. The method is looked up again when its time comes: there may be another protocol by then.
pub fn check_protocol(protocol: &Bound<'_, PyAny>) -> PyResult<()> {
    protocol
        .getattr(intern!(protocol.py(), "connection_made"))
        .map(drop)
}

pub fn fail_waiter(waiter: &Bound<'_, PyAny>, error: Py<PyAny>) -> PyResult<()> {
    let py = waiter.py();
    if !waiter.call_method0(intern!(py, "done"))?.is_truthy()? {
        waiter.call_method1(intern!(py, "set_exception"), (error,))?;
    }
    Ok(())
}

fn connection_error(py: Python<'_>) -> Py<PyAny> {
    PyConnectionError::new_err("Connection is closed by peer")
        .into_value(py)
        .into_any()
}
