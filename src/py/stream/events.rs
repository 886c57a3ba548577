//! What happens to a stream: engine events into protocol calls, in the transport's context.
//!
//! `dispatch` calls these. What a protocol method raises is reported, and for received data it also
//! ends the connection, as in asyncio.

use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use uringcore_engine::StreamBytes;
use uringcore_io::Errno;

use super::{StreamTransport, fail_waiter};
use crate::context::Entered;
use crate::dispatch::{command, report};
use crate::hosts::host_take;
use crate::tls::TlsProtocol;
use crate::{buffer, error};

impl StreamTransport {
    pub fn connection_made(slf: &Bound<'_, Self>, entered: &mut Entered) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let Some(protocol) = this.protocol(py) else {
            return Ok(());
        };
        this.enter_context(py, entered)?;
        if let Err(error) = protocol
            .bind(py)
            .call_method1(intern!(py, "connection_made"), (slf,))
        {
            report(
                py,
                &this.owner,
                "Exception in protocol.connection_made()",
                error,
                slf,
                &protocol,
                Some(entered),
            )?;
        }
        let read = this.state.with(py, |state| {
            state.started = true;
            !state.paused && !state.closing
        });
        if let (true, Some(key)) = (read, this.key(py)) {
            command(py, &this.owner, |engine| engine.resume_reading(key))?;
        }
        Ok(())
    }

    pub fn data_received(
        slf: &Bound<'_, Self>,
        data: StreamBytes,
        entered: &mut Entered,
    ) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let (protocol, buffered) = this.state.with(py, |state| {
            (
                state.protocol.as_ref().map(|p| p.clone_ref(py)),
                state.buffered,
            )
        });
        let Some(protocol) = protocol else {
            return Ok(());
        };
        this.enter_context(py, entered)?;
        if let Ok(tls) = protocol.bind(py).cast_exact::<TlsProtocol>() {
            let taken = TlsProtocol::take(tls, &data)?;
            drop(data);
            let more_follow = this.data_follows(py)?;
            return if taken {
                TlsProtocol::taken(tls, more_follow)
            } else {
                Ok(())
            };
        }
        if buffered {
            return Self::buffer_updated(slf, &protocol, &data, entered);
        }
        let bytes = PyBytes::new(py, &data);
        // The kernel's buffer goes back before Python code runs.
        drop(data);
        match protocol
            .bind(py)
            .call_method1(intern!(py, "data_received"), (bytes,))
        {
            Ok(_) => Ok(()),
            Err(error) => Self::fatal(
                slf,
                error,
                "Fatal error: protocol.data_received() call failed.",
                Some(entered),
            ),
        }
    }

    /// Whether the next event of the engine is more data of this stream.
    fn data_follows(&self, py: Python<'_>) -> PyResult<bool> {
        match self.key(py) {
            Some(key) => command(py, &self.owner, |engine| engine.next_is_data_of(key)),
            None => Ok(false),
        }
    }

    fn buffer_updated(
        slf: &Bound<'_, Self>,
        protocol: &Py<PyAny>,
        data: &[u8],
        entered: &mut Entered,
    ) -> PyResult<()> {
        let py = slf.py();
        let protocol = protocol.bind(py);
        let mut left = data;
        while !left.is_empty() {
            let copied = protocol
                .call_method1(intern!(py, "get_buffer"), (-1,))
                .and_then(|target| {
                    if target.len()? == 0 {
                        return Err(PyRuntimeError::new_err(
                            "get_buffer() returned an empty buffer",
                        ));
                    }
                    buffer::copy_into(&target, left)
                });
            let count = match copied {
                Ok(count) => count,
                Err(error) => {
                    let message = "Fatal error: protocol.get_buffer() call failed.";
                    return Self::fatal(slf, error, message, Some(entered));
                }
            };
            left = &left[count..];
            if let Err(error) = protocol.call_method1(intern!(py, "buffer_updated"), (count,)) {
                let message = "Fatal error: protocol.buffer_updated() call failed.";
                return Self::fatal(slf, error, message, Some(entered));
            }
            if slf.get().state.with(py, |state| state.closing) {
                break;
            }
        }
        Ok(())
    }

    pub fn eof_received(slf: &Bound<'_, Self>, entered: &mut Entered) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let Some(protocol) = this.protocol(py) else {
            return Ok(());
        };
        this.enter_context(py, entered)?;
        let keep_open = protocol
            .bind(py)
            .call_method0(intern!(py, "eof_received"))
            .and_then(|keep_open| keep_open.is_truthy());
        match keep_open {
            Ok(true) => Ok(()),
            Ok(false) => this.close(py),
            Err(error) => Self::fatal(
                slf,
                error,
                "Fatal error: protocol.eof_received() call failed.",
                Some(entered),
            ),
        }
    }

    pub fn resume_writing(slf: &Bound<'_, Self>, entered: &mut Entered) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let protocol = this.state.with(py, |state| {
            if std::mem::take(&mut state.protocol_paused) {
                state.protocol.as_ref().map(|p| p.clone_ref(py))
            } else {
                None
            }
        });
        let Some(protocol) = protocol else {
            return Ok(());
        };
        this.enter_context(py, entered)?;
        if let Err(error) = protocol
            .bind(py)
            .call_method0(intern!(py, "resume_writing"))
        {
            let message = "protocol.resume_writing() failed";
            report(
                py,
                &this.owner,
                message,
                error,
                slf,
                &protocol,
                Some(entered),
            )?;
        }
        Ok(())
    }

    pub fn drained(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let waiter = slf.get().state.with(py, |state| {
            state
                .drain_waiter
                .as_ref()
                .map(|waiter| waiter.clone_ref(py))
        });
        if let Some(waiter) = waiter {
            let waiter = waiter.bind(py);
            if !waiter.call_method0(intern!(py, "done"))?.is_truthy()? {
                waiter.call_method1(intern!(py, "set_result"), (py.None(),))?;
            }
        }
        Ok(())
    }

    /// The last event: `connection_lost`, then everything is let go.
    pub fn closed(
        slf: &Bound<'_, Self>,
        errno: Option<Errno>,
        entered: &mut Entered,
    ) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let (key, protocol, lost_error, drain_waiter) = this.state.with(py, |state| {
            state.closing = true;
            (
                state.key.take(),
                state.protocol.as_ref().map(|p| p.clone_ref(py)),
                state.lost_error.take(),
                state.drain_waiter.take(),
            )
        });
        if let Some(key) = key {
            let hosted = this
                .owner
                .get()
                .hosts
                .with(py, |hosts| host_take(&mut hosts.streams, key));
            drop(hosted);
        }
        let reason = error::lost_reason(py, lost_error, errno);
        if let Some(waiter) = drain_waiter {
            fail_waiter(waiter.bind(py))?;
        }
        let mut outcome = Ok(());
        if let Some(protocol) = protocol {
            this.enter_context(py, entered)?;
            let called = protocol
                .bind(py)
                .call_method1(intern!(py, "connection_lost"), (reason,));
            if let Err(error) = called {
                let message = "Exception in protocol.connection_lost()";
                outcome = report(
                    py,
                    &this.owner,
                    message,
                    error,
                    slf,
                    &protocol,
                    Some(entered),
                );
            }
        }
        let (protocol, socket, server, extra, context) = this.state.with(py, |state| {
            (
                state.protocol.take(),
                state.socket.take(),
                state.server.take(),
                state.extra.take(),
                state.context.take(),
            )
        });
        if let Some(socket) = socket {
            // A lent socket is closed here; one made for get_extra_info lost its descriptor already.
            let end = if this.state.with(py, |state| state.lent) {
                "close"
            } else {
                "detach"
            };
            socket.bind(py).call_method0(end)?;
        }
        if let Some(server) = server {
            this.owner
                .bind(py)
                .call_method1(intern!(py, "_server_detach"), (server, slf))?;
        }
        entered.leave(py);
        drop((protocol, extra, context));
        outcome
    }

    /// asyncio's `_fatal_error`: report unless it is the network's fault, then end the connection.
    pub(super) fn fatal(
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
        if value.bind(py).is_instance_of::<PyOSError>() {
            if this.owner.get().is_debug(py) {
                this.owner
                    .bind(py)
                    .call_method1(intern!(py, "_log_transport_error"), (slf, message, &value))?;
            }
        } else {
            let protocol = this.protocol(py);
            this.owner
                .bind(py)
                .call_method1(intern!(py, "_report"), (message, &value, slf, protocol))?;
        }
        this.end_with(py, Some(value.into_any()))
    }
}
