//! Calls of a transport's protocol: their context, and the exceptions that they raise.
//!
//! A protocol may raise any exception. `SystemExit` and `KeyboardInterrupt` leave the loop; functions here return
//! these two errors only. All others go to the loop's exception handler, which runs outside of the transport's
//! context.
//!
//! Each transport has one context in which the methods of its protocol are called. It is a copy of the context in
//! which the transport was created; for an accepted connection, a copy of the server's context, in which the protocol
//! is made too. From CPython 3.15 on asyncio passes the context (`_start_serving` and the methods that make
//! transports have an argument `context`), and `connection_lost` also runs in it. On older versions,
//! `connection_lost` runs in a copy of the context in which the transport was closed.

use pyo3::call::PyCallArgs;
use pyo3::exceptions::{PyBaseException, PyOSError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::BaseTransport;
use crate::capi::contextvars_context::{CallbackContext, Inside};
use crate::capi::exception_conversion;

/// The name of a protocol's method, and the text with which an exception of that method is reported.
#[derive(Clone, Copy)]
pub struct Method<'a, 'py>(pub &'a Bound<'py, PyString>, pub &'static str);

impl BaseTransport {
    /// Enters the transport's context. Returns the protocol and the entered context; `None` after the transport's end.
    pub fn enter<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Option<(Bound<'py, PyAny>, Inside<'py>)>> {
        let (protocol, context) = self.state.with(py, |state| {
            let context = state.context.as_ref().map(CallbackContext::get);
            (
                state.protocol.as_ref().map(|p| p.bind(py).clone()),
                context.map(|c| c.bind(py).clone()),
            )
        });
        match (protocol, context) {
            (Some(protocol), Some(context)) => Ok(Some((protocol, Inside::of(&context)?))),
            _ => Ok(None),
        }
    }

    /// Calls a method of the protocol and reports its exception.
    pub fn call_protocol<'py>(
        slf: &Bound<'py, Self>,
        method: Method<'_, 'py>,
        args: impl PyCallArgs<'py>,
    ) -> PyResult<()> {
        let Some((protocol, inside)) = slf.get().enter(slf.py())? else {
            return Ok(());
        };
        let called = protocol.call_method1(method.0, args);
        drop(inside);
        match called {
            Ok(_) => Ok(()),
            Err(error) => Self::report(slf, method.1, error, &protocol),
        }
    }

    /// Passes an exception of the protocol to the loop's exception handler. Returns the exception if it must leave the
    /// loop.
    pub fn report(
        slf: &Bound<'_, Self>,
        message: &str,
        error: PyErr,
        protocol: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let py = slf.py();
        let error = exception_conversion::made(py, error);
        if exception_conversion::is_exit(py, &error) {
            return Err(error);
        }
        let owner = slf.get().owner.bind(py);
        owner.call_method1(
            intern!(py, "_report"),
            (message, error.into_value(py), slf, protocol),
        )?;
        Ok(())
    }

    /// asyncio's `_fatal_error`: reports the exception, unless it is an error of the network, and ends the transport.
    pub fn fatal(slf: &Bound<'_, Self>, error: PyErr, message: &str) -> PyResult<()> {
        let py = slf.py();
        let error = exception_conversion::made(py, error);
        if error.is_instance_of::<PyOSError>(py) {
            Self::log_error(slf, message, error.value(py))?;
        } else {
            let protocol = slf.get().protocol(py).into_pyobject(py)?;
            Self::report(slf, message, error.clone_ref(py), &protocol)?;
        }
        Self::force_close(slf, Some(error.into_value(py).into_any()))
    }

    /// Logs an error, in debug mode only.
    pub fn log_error(
        slf: &Bound<'_, Self>,
        message: &str,
        error: &Bound<'_, PyBaseException>,
    ) -> PyResult<()> {
        let owner = &slf.get().owner;
        if owner.get().is_debug() {
            let name = intern!(slf.py(), "_log_transport_error");
            let owner = owner.bind(slf.py());
            owner.call_method1(name, (slf, message, error))?;
        }
        Ok(())
    }

    // Flow control -------------------------------------------------------------------------------

    /// Calls `pause_writing` of the protocol, in the context of the caller whose write has filled the queue.
    pub fn pause_writing(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let Some(protocol) = slf.get().protocol(py) else {
            return Ok(());
        };
        let protocol = protocol.bind(py);
        match protocol.call_method0(intern!(py, "pause_writing")) {
            Ok(_) => Ok(()),
            Err(error) => Self::report(slf, "protocol.pause_writing() failed", error, protocol),
        }
    }

    pub fn resume_writing(slf: &Bound<'_, Self>) -> PyResult<()> {
        let name = intern!(slf.py(), "resume_writing");
        Self::call_protocol(slf, Method(name, "protocol.resume_writing() failed"), ())
    }
}
