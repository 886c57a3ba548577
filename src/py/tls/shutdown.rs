//! The end of a TLS connection: close_notify, ends of file, failures, and `connection_lost`.

use pyo3::exceptions::PyOSError;
use pyo3::intern;
use pyo3::prelude::*;

use super::protocol::{AppState, TlsPhase, TlsProtocol, TlsState, cancel_timer};
use super::ssl_object::{Step, is_ssl_error};
use crate::capi::exception_conversion;
use crate::transport::half_close::SendingEnd;

impl TlsProtocol {
    /// Handles `close()`: delivers and sends the remaining bytes, then exchanges close_notify with the peer.
    pub(super) fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        let this = slf.get();
        let py = slf.py();
        let reachable = this.check_reachable(py)?;
        if this.mark_closed(py) {
            this.mark_unneeded(py);
            return Ok(());
        }
        if !reachable {
            return Ok(());
        }
        let stuck = this.state.with(py, |state| {
            state.phase == TlsPhase::Flushing && state.eof_received && !state.in_ssl
        });
        if stuck {
            // The end of file was received while reading was paused. After `close()` reading is not resumed, so the
            // connection ends now.
            return Self::do_flush(slf);
        }
        Self::start_shutdown(slf)
    }

    /// Closes as `close` does, but without a reset if the peer continues to send. A reset could destroy the last bytes
    /// that the peer has not read (RFC 9112 section 9.6). Up to `bytes` of the peer's records are dropped instead. The
    /// caller limits the time.
    pub(super) fn close_lingering(slf: &Bound<'_, Self>, bytes: usize) -> PyResult<()> {
        let state = &slf.get().state;
        state.with(slf.py(), |state| state.linger_bytes = Some(bytes));
        Self::close(slf)
    }

    /// Begins to drop records. The peer has sent data after our close_notify, so OpenSSL reads nothing more from it.
    fn linger(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        this.set_phase(py, TlsPhase::Lingering);
        Self::send_outgoing(slf, true)?;
        let end = this.lower(py).map(|lower| lower.close_sending(py));
        match end.transpose()? {
            // Nothing more can arrive.
            Some(SendingEnd::Reset) => Self::force_close(slf, None),
            Some(SendingEnd::Ended | SendingEnd::Unsupported) | None => Ok(()),
        }
    }

    /// Closes the connection when the number of bytes that may be dropped is used up.
    pub(super) fn linger_on(slf: &Bound<'_, Self>) -> PyResult<()> {
        let left = |state: &mut TlsState| state.linger_bytes.unwrap_or(0);
        match slf.get().state.with(slf.py(), left) {
            0 => Self::force_close(slf, None),
            _ => Ok(()),
        }
    }

    /// Handles `abort()` or an error from outside. Unsent bytes are lost.
    pub(super) fn force_close(slf: &Bound<'_, Self>, error: Option<Py<PyAny>>) -> PyResult<()> {
        let this = slf.get();
        let py = slf.py();
        this.check_reachable(py)?;
        this.mark_closed(py);
        this.set_phase(py, TlsPhase::Unwrapped);
        match this.lower(py) {
            Some(lower) => lower.fail(py, None, error),
            None => Ok(()),
        }
    }

    /// Records that the application does not need its transport any more. The transport then drops the connection's
    /// memory when the connection is lost.
    fn mark_unneeded(&self, py: Python<'_>) {
        self.state.with(py, |state| state.is_unneeded = true);
    }

    /// Marks the application's transport as closing. Returns whether it was marked before.
    fn mark_closed(&self, py: Python<'_>) -> bool {
        self.state
            .with(py, |state| std::mem::replace(&mut state.closed, true))
    }

    pub(super) fn start_shutdown(slf: &Bound<'_, Self>) -> PyResult<()> {
        let this = slf.get();
        let py = slf.py();
        match this.phase(py) {
            TlsPhase::Flushing | TlsPhase::Shutdown | TlsPhase::Lingering | TlsPhase::Unwrapped => {
                return Ok(());
            }
            TlsPhase::Handshake => return Self::force_close(slf, None),
            TlsPhase::Wrapped => {}
        }
        this.mark_closed(py);
        let timer = Self::start_timer(slf, &this.shutdown_timeout, "_check_shutdown_timeout")?;
        let (later, old) = this.state.with(py, |state| {
            state.phase = TlsPhase::Flushing;
            (state.in_ssl, state.shutdown_timer.replace(timer))
        });
        drop(old);
        if later {
            // OpenSSL has made this call (through a callback) and must not be entered again, so the work is done in the
            // next loop iteration.
            let resume = slf.getattr(intern!(py, "_resume"))?;
            this.owner
                .bind(py)
                .call_method1(intern!(py, "call_soon"), (resume,))?;
            return Ok(());
        }
        Self::do_flush(slf)
    }

    pub(super) fn do_flush(slf: &Bound<'_, Self>) -> PyResult<()> {
        let this = slf.get();
        let py = slf.py();
        Self::do_read(slf)?;
        if this.phase(py) == TlsPhase::Flushing {
            Self::flush_backlog(slf)?;
        }
        if this.phase(py) == TlsPhase::Flushing {
            this.set_phase(py, TlsPhase::Shutdown);
            return Self::do_shutdown(slf);
        }
        Ok(())
    }

    pub(super) fn do_shutdown(slf: &Bound<'_, Self>) -> PyResult<()> {
        let this = slf.get();
        let py = slf.py();
        if !this.state.with(py, |state| state.eof_received) {
            let step = this.in_ssl(py, |ssl| ssl.shut_down(py));
            if this.phase(py) != TlsPhase::Shutdown {
                return super::handshake::step_exit(py, step);
            }
            match step {
                Ok(Step::Done(())) => {}
                Ok(Step::Again) => return Self::send_outgoing(slf, false),
                Err(error)
                    if is_ssl_error(py, &error)?
                        && this.state.with(py, |state| state.linger_bytes.is_some()) =>
                {
                    return Self::linger(slf);
                }
                // A peer that continues to send does not delay the end. Bytes written before `close()` are still sent;
                // the shutdown time-out keeps running, in case the peer does not accept them.
                Err(error) => {
                    return Self::end_with(slf, error, "Fatal error on transport", true);
                }
            }
        }
        // Records are sent even during a pause of writing, because the transport beneath is about to close and would
        // not end the pause.
        Self::send_outgoing(slf, true)?;
        Self::report_eof(slf)?;
        // If the peer does not accept the last bytes, they would keep the transport beneath alive for ever. So the
        // time-out runs until that transport is lost, even if the peer has sent close_notify first.
        if !this.state.with(py, |state| state.shutdown_timer.is_some()) {
            let timer = Self::start_timer(slf, &this.shutdown_timeout, "_check_shutdown_timeout")?;
            let old = this
                .state
                .with(py, |state| state.shutdown_timer.replace(timer));
            drop(old);
        }
        if let Some(lower) = this.lower(py) {
            let close = lower.as_any(py).getattr(intern!(py, "close"))?;
            this.owner
                .bind(py)
                .call_method1(intern!(py, "call_soon"), (close,))?;
        }
        Ok(())
    }

    pub(super) fn shutdown_timed_out(slf: &Bound<'_, Self>) -> PyResult<()> {
        let this = slf.get();
        let py = slf.py();
        if !matches!(this.phase(py), TlsPhase::Flushing | TlsPhase::Shutdown) {
            return Ok(());
        }
        let class = py
            .import(intern!(py, "asyncio.exceptions"))?
            .getattr(intern!(py, "TimeoutError"))?;
        let error = class.call1((intern!(py, "SSL shutdown timed out"),))?;
        match this.lower(py) {
            Some(lower) => lower.fail(py, None, Some(error.unbind())),
            None => Ok(()),
        }
    }

    /// Handles the end of file of the transport beneath. Returns true if that transport must stay open.
    pub(super) fn lower_eof(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let this = slf.get();
        let py = slf.py();
        Self::read_the_unread(slf)?;
        this.state.with(py, |state| state.eof_received = true);
        if this.owner.get().is_debug() {
            this.log(slf, "%r received EOF", None)?;
        }
        match this.phase(py) {
            TlsPhase::Handshake => Self::handshake_cut_off(slf)?,
            TlsPhase::Wrapped => {
                let paused = this.state.with(py, |state| {
                    state.phase = TlsPhase::Flushing;
                    state.reading_paused
                });
                if paused {
                    return Ok(true);
                }
                Self::do_flush(slf)?;
            }
            TlsPhase::Flushing => {
                Self::flush_backlog(slf)?;
                if this.phase(py) == TlsPhase::Flushing {
                    this.set_phase(py, TlsPhase::Shutdown);
                    Self::do_shutdown(slf)?;
                }
            }
            TlsPhase::Shutdown => Self::do_shutdown(slf)?,
            // The transport beneath closes the connection itself.
            TlsPhase::Lingering | TlsPhase::Unwrapped => {}
        }
        Ok(false)
    }

    /// Handles the loss of the transport beneath.
    pub(super) fn lower_lost(slf: &Bound<'_, Self>, reason: Option<Py<PyAny>>) -> PyResult<()> {
        let this = slf.get();
        let py = slf.py();
        Self::read_the_unread(slf)?;
        this.mark_closed(py);
        if this.ssl.outgoing_bytes(py)? > 0 {
            drop(this.ssl.take_outgoing(py)?);
        }
        let (tell, backlog, ahead) = this.state.with(py, |state| {
            state.backlog_bytes = 0;
            state.writes_lost = state.writes_lost.saturating_add(1);
            let tell = state.phase != TlsPhase::Handshake
                && matches!(
                    state.reported,
                    AppState::ConnectionMade | AppState::EofReceived
                );
            if tell {
                state.reported = AppState::ConnectionLost;
            }
            state.phase = TlsPhase::Unwrapped;
            let (backlog, ahead) = (&mut state.backlog, &mut state.ahead);
            (tell, std::mem::take(backlog), std::mem::take(ahead))
        });
        drop((backlog, ahead));
        if tell && let Some(app) = this.app(py) {
            let lost = app.getattr(intern!(py, "connection_lost"))?;
            this.owner
                .bind(py)
                .call_method1(intern!(py, "call_soon"), (lost, &reason))?;
        }
        this.wake_waiter(slf, reason)?;
        let (lower, app_transport, app, handshake_timer, shutdown_timer) =
            this.state.with(py, |state| {
                (
                    state.lower.take(),
                    state.app_transport.take(),
                    state.app.take(),
                    state.handshake_timer.take(),
                    state.shutdown_timer.take(),
                )
            });
        cancel_timer(py, handshake_timer)?;
        cancel_timer(py, shutdown_timer)?;
        if let Some(app_transport) = &app_transport
            && this.state.with(py, |state| state.is_unneeded)
        {
            app_transport.get().drop_protocol(py);
        }
        drop((lower, app_transport, app));
        Ok(())
    }

    /// Ends the connection with `error`, and reports the error unless it is one of the network.
    pub(super) fn fatal_error(slf: &Bound<'_, Self>, error: PyErr, message: &str) -> PyResult<()> {
        Self::end_with(slf, error, message, false)
    }

    /// Ends the connection as `fatal_error` does. With `flush`, the transport beneath first sends the bytes that it has
    /// accepted.
    fn end_with(slf: &Bound<'_, Self>, error: PyErr, message: &str, flush: bool) -> PyResult<()> {
        let this = slf.get();
        let py = slf.py();
        if exception_conversion::is_exit(py, &error) {
            return Err(error);
        }
        let lower = this.lower(py);
        let value = error.clone_ref(py).into_value(py).into_any();
        if let Some(lower) = &lower {
            // OpenSSL has made an alert that describes the failure, for the peer (RFC 8446 section 6.2).
            let mut alert = if is_ssl_error(py, &error)? && this.ssl.outgoing_bytes(py)? > 0 {
                Some(this.ssl.take_outgoing(py)?)
            } else {
                None
            };
            if flush {
                lower.finish(py, alert.as_mut(), Some(value.clone_ref(py)))?;
            } else {
                lower.fail(py, alert.as_mut(), Some(value.clone_ref(py)))?;
            }
        }
        let transport = lower.as_ref().map(|lower| lower.as_any(py));
        if value.bind(py).is_instance_of::<PyOSError>() {
            if this.owner.get().is_debug() {
                this.owner
                    .bind(py)
                    .call_method1(intern!(py, "_log_transport_error"), (slf, message, value))?;
            }
            return Ok(());
        }
        let cancelled = py
            .import(intern!(py, "asyncio.exceptions"))?
            .getattr(intern!(py, "CancelledError"))?;
        if value.bind(py).is_instance(&cancelled)? {
            return Ok(());
        }
        Self::report(slf, message, error, transport)
    }
}
