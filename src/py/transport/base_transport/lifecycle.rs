//! The start and the end of a transport, in asyncio's exact order.
//!
//! `connection_made` comes before the first byte and before the waiter of `create_connection`. `connection_lost`
//! comes when the loop handles the engine's event, so it has the position of the command or failure among the other
//! callbacks. The socket stays open until `connection_lost` returns.

use pyo3::exceptions::PyConnectionError;
use pyo3::intern;
use pyo3::prelude::*;
use uringcore_engine::{Engine, Key, SharedState};
use uringcore_io::Errno;

use super::{
    BaseTransport, Descriptor, Method, OriginalMarks, Receiver, TransportArguments, TransportState,
    extra_info,
};
use crate::capi::contextvars_context::Inside;
use crate::capi::exception_conversion;
use crate::capi::gil_cell::GilCell;
use crate::event_loop::engine_key_objects::{insert_at, take_at};
use crate::event_loop::loop_core::LoopCore;

impl BaseTransport {
    /// Makes a transport that is not in the engine yet.
    pub fn build(owner: &Bound<'_, LoopCore>, parts: TransportArguments) -> PyResult<Self> {
        let py = owner.py();
        let protocol = parts.protocol.bind(py);
        let receiver = Receiver::of(protocol)?;
        if !matches!(receiver, Receiver::Tls) {
            check_protocol(protocol)?;
        }
        // Imports `_transport_extra_info` now: a program may read extra info while the interpreter ends, when
        // `sys.modules` is empty.
        extra_info::module(py)?;
        Ok(Self {
            owner: owner.clone().unbind(),
            fd: parts.fd,
            class: parts.class,
            shared: SharedState::default(),
            state: GilCell::new(TransportState {
                key: None,
                descriptor: parts.descriptor,
                protocol: Some(parts.protocol),
                context: Some(parts.context),
                receiver,
                server: parts.server,
                extra: parts.extra,
                writes_lost: 0,
                given_marks: OriginalMarks::default(),
                rare: None,
            }),
        })
    }

    /// Adds the transport to the engine by calling `open`. If this fails, the engine has nothing of the transport, and
    /// the caller still owns a Python socket.
    pub fn attach(
        slf: &Bound<'_, Self>,
        open: impl FnOnce(&mut Engine, SharedState) -> Key,
    ) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let owner = this.owner.bind(py);
        let server = this
            .state
            .with(py, |state| state.server.as_ref().map(|s| s.clone_ref(py)));
        if let Some(server) = &server {
            owner.call_method1(intern!(py, "_server_attach"), (server, slf))?;
        }
        match this.command(py, |engine| open(engine, this.shared.clone())) {
            Ok(key) => {
                this.state.with(py, |state| state.key = Some(key));
                let hosted = slf.clone().unbind();
                this.owner.get().objects.with(py, |objects| {
                    insert_at(&mut objects.transports, key, hosted)
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

    /// Calls `connection_made`, begins to read, and wakes the waiter. asyncio schedules these steps as three callbacks.
    pub fn start(slf: &Bound<'_, Self>, waiter: Option<&Py<PyAny>>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let name = intern!(py, "connection_made");
        let method = Method(name, "Exception in protocol.connection_made()");
        let made = Self::call_protocol(slf, method, (slf,));
        // If `connection_made` raises an exception that must end the loop (`KeyboardInterrupt`), the other steps are
        // executed first. In asyncio they are executed in the next loop iteration.
        if let Some(key) = this.key(py) {
            this.command(py, |engine| engine.transports().start(key))?;
        }
        if let Some(waiter) = waiter {
            let waiter = waiter.bind(py);
            if !waiter.call_method0(intern!(py, "done"))?.is_truthy()? {
                waiter.call_method1(intern!(py, "set_result"), (py.None(),))?;
            }
        }
        made
    }

    /// Ends the transport at once, unless it is ending already. `connection_lost` gets `error`, or None for an abort.
    pub fn force_close(slf: &Bound<'_, Self>, error: Option<Py<PyAny>>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        match this.key(py) {
            Some(key) if !this.shared.is_quiet() => {
                this.end(py, error, |engine| engine.transports().abort(key))
            }
            _ => Ok(()),
        }
    }

    /// Executes a command that ends the transport. The engine's events of the end come after the callbacks that are
    /// ready now. `connection_lost` gets `error`; it runs in a copy of the current context, unless the transport has a
    /// context for all callbacks (see `CallbackContext`).
    pub(super) fn end(
        &self,
        py: Python<'_>,
        error: Option<Py<PyAny>>,
        command: impl FnOnce(&mut Engine),
    ) -> PyResult<()> {
        let context = self.state.with(py, |state| {
            state.context.as_ref().map(|context| context.clone_ref(py))
        });
        let context = context.map_or(Ok(None), |context| context.at_the_end(py))?;
        let events = self.command(py, |engine| {
            command(engine);
            engine.events_ready()
        })?;
        let ready = &self.owner.get().ready;
        ready.with(py, |ready| ready.note_events(events));
        let old = self.state.with(py, |state| {
            let rare = state.rare();
            (
                std::mem::replace(&mut rare.lost_error, error),
                std::mem::replace(&mut rare.lost_context, context),
            )
        });
        drop(old);
        Ok(())
    }

    /// Ends the transport because a receive or a send has failed, and logs the error.
    pub fn socket_failed(slf: &Bound<'_, Self>, errno: Errno, message: &str) -> PyResult<()> {
        let py = slf.py();
        let error = exception_conversion::os_error(errno).into_value(py);
        let kept = error.clone_ref(py).into_any();
        slf.get().end(py, Some(kept), |_| ())?;
        Self::log_error(slf, message, error.bind(py))
    }

    /// Calls `connection_lost` and releases everything that the transport holds.
    pub fn lose(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let (protocol, error, context) = slf.get().state.with(py, |state| {
            let usual = state.context.as_ref().map(|c| c.get().clone_ref(py));
            let lost = state.rare.as_mut();
            let (error, context) = lost.map_or((None, None), |rare| {
                (rare.lost_error.take(), rare.lost_context.take())
            });
            (
                state
                    .key
                    .and(state.protocol.as_ref().map(|p| p.bind(py).clone())),
                error,
                context.or(usual),
            )
        });
        let Some(protocol) = protocol else {
            return Ok(());
        };
        let inside = context.map(|context| Inside::of(context.bind(py)));
        let inside = inside.transpose()?;
        let called = protocol.call_method1(intern!(py, "connection_lost"), (error,));
        drop(inside);
        let outcome = match called {
            Ok(_) => Ok(()),
            Err(error) => {
                let message = "Exception in protocol.connection_lost()";
                Self::report(slf, message, error, &protocol)
            }
        };
        // The close of a Python socket may fail, and the report of that names the protocol. Without a Python socket,
        // the protocol is dropped first.
        let reported = slf.get().has_python_socket(py).then_some(protocol);
        let ended = Self::release_all(slf);
        let ended = match (ended, reported) {
            (Err(error), Some(protocol)) => Self::report(slf, CLOSE_FAILED, error, &protocol),
            (ended, _) => ended,
        };
        outcome.and(ended)
    }

    fn has_python_socket(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| {
            matches!(state.descriptor, Descriptor::Socket(_))
        })
    }

    fn release_all(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let dropped = this
            .state
            .with(py, |state| (state.protocol.take(), state.context.take()));
        drop(dropped);
        let kept = extra_info::keep_addresses(slf);
        let (key, descriptor, server, waiter) = this.state.with(py, |state| {
            (
                state.key.take(),
                std::mem::replace(&mut state.descriptor, Descriptor::Gone),
                state.server.take(),
                state.take_empty_waiter(),
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
        if let Some(waiter) = waiter {
            fail_waiter(waiter.bind(py), connection_error(py))?;
        }
        kept
    }

    /// Closes the descriptor. The engine closes its own descriptors by an operation of the ring. A Python socket is
    /// closed when no operation is in flight on it.
    fn release(&self, py: Python<'_>, key: Key, descriptor: Descriptor) -> PyResult<()> {
        let (fd, socket) = match descriptor {
            Descriptor::Owned(fd) => (Some(fd), None),
            Descriptor::Socket(socket) => (None, Some(socket)),
            Descriptor::Gone => (None, None),
        };
        let ended = self.command(py, |engine| engine.transports().release(key, fd));
        // The command fails only on a closed loop, which has no operation in flight.
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

    /// Handles the engine's last event for this transport: no operation is in flight on the descriptor, so it can be
    /// closed.
    pub fn closed(slf: &Bound<'_, Self>, key: Key) -> PyResult<()> {
        let py = slf.py();
        slf.get().forget(py, key);
        match slf.get().close_socket(py) {
            Err(error) => Self::report(slf, CLOSE_FAILED, error, &py.None().into_bound(py)),
            closed => closed,
        }
    }

    /// Closes a socket whose close was waiting for the engine. Called when the loop has closed.
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

    fn forget(&self, py: Python<'_>, key: Key) {
        let objects = &self.owner.get().objects;
        drop(objects.with(py, |objects| take_at(&mut objects.transports, key)));
    }
}

/// Fails if the factory has returned an object that is no protocol. As in asyncio, this fails when the transport is
/// made and not in a later loop iteration. The method is looked up again when it is called, because the program may
/// have replaced the protocol by then.
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

/// The most frequent cause: the program has closed the descriptor by `os.close`.
const CLOSE_FAILED: &str = "Exception when a transport closed its socket";

fn connection_error(py: Python<'_>) -> Py<PyAny> {
    PyConnectionError::new_err("Connection is closed by peer")
        .into_value(py)
        .into_any()
}
