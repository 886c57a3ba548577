//! The handshake: from `connection_made` of the transport beneath to `connection_made` of the application's protocol.

use pyo3::exceptions::{PyConnectionAbortedError, PyConnectionResetError};
use pyo3::intern;
use pyo3::prelude::*;

use super::protocol::{AppState, TlsPhase, TlsProtocol, cancel_timer};
use super::ssl_object::{SslObject, Step, is_certificate_error};
use crate::capi::exception_conversion;
use crate::event_loop::clock;

impl TlsProtocol {
    pub(super) fn start_handshake(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        if this.owner.get().is_debug() {
            this.log(slf, "%r starts SSL handshake", None)?;
            let now = clock::monotonic();
            this.state
                .with(py, |state| state.handshake_began = Some(now));
        }
        this.set_phase(py, TlsPhase::Handshake);
        let timer = Self::start_timer(slf, &this.handshake_timeout, "_check_handshake_timeout")?;
        let old = this
            .state
            .with(py, |state| state.handshake_timer.replace(timer));
        drop(old);
        Self::do_handshake(slf)
    }

    pub(super) fn do_handshake(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let step = this.in_ssl(py, |ssl| ssl.do_handshake(py));
        if this.phase(py) != TlsPhase::Handshake {
            // A callback of the SSL context (for SNI) has closed the connection.
            return step_exit(py, step);
        }
        match step {
            Ok(Step::Again) => Self::send_outgoing(slf, false),
            Ok(Step::Done(())) => Self::handshake_complete(slf),
            Err(error) => Self::handshake_failed(slf, error),
        }
    }

    fn handshake_complete(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let (timer, began) = this.state.with(py, |state| {
            (state.handshake_timer.take(), state.handshake_began.take())
        });
        cancel_timer(py, timer)?;
        if let Err(error) = this.note_extra_info(py) {
            return Self::handshake_failed(slf, error);
        }
        if let Some(began) = began {
            let milliseconds = (clock::monotonic() - began) * 1e3;
            this.log(slf, "%r: SSL handshake took %.1f ms", Some(milliseconds))?;
        }
        let unreported = this.state.with(py, |state| {
            state.phase = TlsPhase::Wrapped;
            let unreported = state.reported == AppState::Nothing;
            if unreported {
                state.reported = AppState::ConnectionMade;
            }
            unreported
        });
        if unreported
            && let (Some(app), Some(app_transport)) = (this.app(py), this.app_transport(py))
        {
            let made = app.call_method1(intern!(py, "connection_made"), (app_transport,));
            if let Err(error) = made {
                let message = "Fatal error: protocol.connection_made() call failed.";
                let (error, value) = shared(py, error);
                Self::fatal_error(slf, error, message)?;
                return this.wake_waiter(slf, Some(value));
            }
        }
        this.wake_waiter(slf, None)?;
        Self::do_read(slf)
    }

    /// Stores the results of the handshake for `get_extra_info`.
    fn note_extra_info(&self, py: Python<'_>) -> PyResult<()> {
        let object = SslObject::public(&self.ssl, py);
        let extra = self.extra(py);
        for (key, method) in [
            (intern!(py, "peercert"), intern!(py, "getpeercert")),
            (intern!(py, "cipher"), intern!(py, "cipher")),
            (intern!(py, "compression"), intern!(py, "compression")),
        ] {
            extra.set_item(key, object.call_method0(method)?)?;
        }
        extra.set_item(intern!(py, "ssl_object"), object)
    }

    fn handshake_failed(slf: &Bound<'_, Self>, error: PyErr) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        if exception_conversion::is_exit(py, &error) {
            return Err(error);
        }
        let timer = this.state.with(py, |state| {
            state.phase = TlsPhase::Unwrapped;
            state.handshake_timer.take()
        });
        cancel_timer(py, timer)?;
        let message = if is_certificate_error(py, &error)? {
            "SSL handshake failed on verifying the certificate"
        } else {
            "SSL handshake failed"
        };
        let (error, value) = shared(py, error);
        Self::fatal_error(slf, error, message)?;
        this.wake_waiter(slf, Some(value))
    }

    /// Fails the handshake, because the transport beneath has reported the end of file.
    pub(super) fn handshake_cut_off(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::handshake_failed(slf, PyConnectionResetError::new_err(()))
    }

    pub(super) fn handshake_timed_out(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        if this.phase(py) != TlsPhase::Handshake {
            return Ok(());
        }
        let error = PyConnectionAbortedError::new_err(format!(
            "SSL handshake is taking longer than {} seconds: aborting the connection",
            this.handshake_timeout.bind(py).str()?
        ));
        Self::fatal_error(slf, error, "Fatal error on transport")
    }

    /// Sets the result of the future that waits for the connection: the error of the handshake, or success.
    pub(super) fn wake_waiter(
        &self,
        slf: &Bound<'_, Self>,
        failure: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let py = slf.py();
        let first = self
            .state
            .with(py, |state| std::mem::take(&mut state.report_failure));
        if let Some(failure) = &failure
            && first
            && self.owner.get().is_debug()
        {
            let message = "Error on transport creation for incoming connection";
            self.owner.bind(py).call_method1(
                intern!(py, "_report"),
                (message, failure, self.app_transport(py), self.app(py)),
            )?;
        }
        let waiter = self.state.with(py, |state| state.waiter.take());
        let Some(waiter) = waiter else {
            return Ok(());
        };
        let waiter = waiter.bind(py);
        if waiter.call_method0(intern!(py, "done"))?.is_truthy()? {
            return Ok(());
        }
        match failure {
            Some(failure) => waiter.call_method1(intern!(py, "set_exception"), (failure,))?,
            None => waiter.call_method1(intern!(py, "set_result"), (py.None(),))?,
        };
        Ok(())
    }

    /// Writes a line to asyncio's debug log.
    pub(super) fn log(
        &self,
        slf: &Bound<'_, Self>,
        message: &str,
        number: Option<f64>,
    ) -> PyResult<()> {
        let py = slf.py();
        self.owner
            .bind(py)
            .call_method1(intern!(py, "_log_tls"), (message, slf, number))?;
        Ok(())
    }
}

/// Returns the exception as an error to return and as an object to pass on.
pub(super) fn shared(py: Python<'_>, error: PyErr) -> (PyErr, Py<PyAny>) {
    let value = error.clone_ref(py).into_value(py).into_any();
    (error, value)
}

/// Drops the result of a step of OpenSSL if the connection has ended meanwhile. Returns only exceptions that must
/// leave the loop.
pub(super) fn step_exit<T>(py: Python<'_>, step: PyResult<T>) -> PyResult<()> {
    match step {
        Err(error) if exception_conversion::is_exit(py, &error) => Err(error),
        _ => Ok(()),
    }
}
