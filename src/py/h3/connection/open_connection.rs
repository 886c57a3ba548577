//! The HTTP/3 connection once its streams are open: input to `uringcore_h3`, and the commands of `uringcore_h3` to
//! the QUIC connection object. Not here: the methods that Python calls (`connection`), and the event
//! objects (`object`).
//!
//! Python opens the connection (`_init_connection`), so that SETTINGS are those of a subclass's
//! `_get_local_settings`. After that everything is Rust, unless a subclass overrides `_validate_settings` or
//! `_handle_request_or_push_frame`: only then events pass through Python before the program gets them. A subclass
//! over a QUIC object of another library gets one call for each frame, as from aioquic, because such programs and
//! their tests count the calls.
//!
//! When a program resets or stops a stream through the QUIC connection, that calls the HTTP/3 connection on top,
//! which drops the stream's state.

use pyo3::exceptions::{PyConnectionResetError, PyRuntimeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyList};
use rustc_hash::FxHashSet;
use uringcore_h3::{Event, Logged, Output, QueuedConnection};

use super::H3ConnectionCore;
use crate::capi::buffer;
use crate::capi::gil_cell::GilCell;
use crate::h3::qlog_trace;
use crate::h3::quic_event_kinds::EventKinds;

/// The connection from the moment its streams are opened.
pub(super) struct OpenConnection {
    pub(super) quic: GilCell<Option<Py<PyAny>>>,
    pub(super) core: GilCell<QueuedConnection>,
    pub(super) kinds: EventKinds,
    pub(super) close_on_malformed: bool,
    pub(super) hooks: Hooks,
    /// Request streams with bytes of 0-RTT data whose header section was not reported yet. QUIC bounds them: the client
    /// opens no more streams than that.
    pub(super) early: GilCell<FxHashSet<u64>>,
    /// Entries for the connection's trace, if it has one. The trace begins with the connection.
    pub(super) unreported: Option<GilCell<Vec<Logged>>>,
}

/// Deviations from the usual course, because of a subclass or of the QUIC connection object.
#[derive(Clone, Copy)]
pub(super) struct Hooks {
    /// `_check_received_settings` checks the peer's settings.
    pub(super) settings: bool,
    /// `_hand_frame` gets each event that a frame of a request or push makes, and returns the events to report.
    pub(super) frames: bool,
    /// See [`Settings::separate_writes`].
    pub(super) separate_writes: bool,
}

impl OpenConnection {
    pub(super) fn quic<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.quic
            .with(py, |quic| quic.as_ref().map(|quic| quic.clone_ref(py)))
            .map(|quic| quic.into_bound(py))
            .ok_or_else(|| PyRuntimeError::new_err("the H3Connection was collected"))
    }

    pub(super) fn handle_stream_data<'py>(
        &self,
        host: &Bound<'py, H3ConnectionCore>,
        event: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = event.py();
        let stream_id: u64 = event.getattr(intern!(py, "stream_id"))?.extract()?;
        let object = event.getattr(intern!(py, "data"))?;
        let fin = event.getattr(intern!(py, "end_stream"))?.is_truthy()?;
        let data = buffer::contiguous(&object, "data")?;
        // aioquic's event does not have this attribute.
        let is_early = match event.getattr_opt(intern!(py, "early_data"))? {
            Some(early) => early.is_truthy()?,
            None => false,
        };
        if is_early {
            self.early.with(py, |early| early.insert(stream_id));
        }
        if is_unidirectional(stream_id) {
            self.learn_peer_datagrams(py)?;
        }
        self.core
            .with(py, |core| core.handle_stream_data(stream_id, data, fin));
        let whole = object
            .cast_into::<PyBytes>()
            .ok()
            .map(|data| (stream_id, data));
        let reported = self.finish(host, whole.as_ref());
        if is_early {
            // Content that follows needs no check.
            let (early, core) = (&self.early, &self.core);
            if !core.with(py, |core| core.awaits_headers(stream_id)) {
                early.with(py, |early| early.remove(&stream_id));
            }
        }
        reported
    }

    /// Passes QUIC's negotiated DATAGRAM size to `uringcore_h3`, for the check of RFC 9297 section 2.1.1, before
    /// SETTINGS are read.
    pub(super) fn learn_peer_datagrams(&self, py: Python<'_>) -> PyResult<()> {
        if self
            .core
            .with(py, |core| core.received_settings().is_some())
        {
            return Ok(());
        }
        let quic = self.quic(py)?;
        // aioquic's name. For an object without it, the check is skipped.
        if let Some(size) = quic.getattr_opt(intern!(py, "_remote_max_datagram_frame_size"))? {
            self.core
                .with(py, |core| core.set_peer_quic_datagrams(!size.is_none()));
        }
        Ok(())
    }

    /// After input: executes the commands for the QUIC connection and collects the events.
    pub(super) fn finish<'py>(
        &self,
        host: &Bound<'py, H3ConnectionCore>,
        whole: Option<&(u64, Bound<'py, PyBytes>)>,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = host.py();
        self.flush(py)?;
        let list = PyList::empty(py);
        while let Some(event) = self.core.with(py, |core| core.poll_event()) {
            if self.hooks.settings && matches!(event, Event::SettingsReceived) {
                host.call_method0(intern!(py, "_check_received_settings"))?;
                continue;
            }
            let is_frame = matches!(
                event,
                Event::Headers { .. } | Event::Data { .. } | Event::PushPromise { .. }
            );
            let Some(object) = self.object(py, event, whole)? else {
                continue;
            };
            if self.hooks.frames && is_frame {
                let events = host.call_method1(intern!(py, "_hand_frame"), (object,))?;
                for event in events.try_iter()? {
                    list.append(event?)?;
                }
            } else {
                list.append(object)?;
            }
        }
        Ok(list)
    }

    /// Executes the commands of `uringcore_h3`. All are attempted; the first exception is raised at the end.
    pub(super) fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let mut result = self.log(py);
        while let Some(output) = self.core.with(py, QueuedConnection::poll_output) {
            let done = self.perform(py, output);
            if result.is_ok() {
                result = done;
            }
        }
        result
    }

    /// Writes the pending entries once a trace exists.
    pub(super) fn log(&self, py: Python<'_>) -> PyResult<()> {
        let Some(unreported) = &self.unreported else {
            return Ok(());
        };
        let logged = self.core.with(py, |core| core.take_log());
        let Some(trace) = qlog_trace::of(&self.quic(py)?)? else {
            return unreported.with(py, |unreported| {
                let room = qlog_trace::WAITING_MAX.saturating_sub(unreported.len());
                unreported.extend(logged.into_iter().take(room));
                Ok(())
            });
        };
        let before = unreported.with(py, std::mem::take);
        let mut all = before.into_iter().chain(logged);
        all.try_for_each(|logged| qlog_trace::write(&trace, logged))
    }

    pub(super) fn perform(&self, py: Python<'_>, output: Output) -> PyResult<()> {
        match output {
            Output::Write {
                stream_id,
                data,
                fin,
            } => {
                return self.write(py, stream_id, &PyBytes::new(py, &data), fin);
            }
            Output::Datagram { data } => self.quic(py)?.call_method1(
                intern!(py, "send_datagram_frame"),
                (PyBytes::new(py, &data),),
            )?,
            Output::ResetStream { stream_id, code } => {
                let reset = intern!(py, "reset_stream");
                return unless_over(py, self.quic(py)?.call_method1(reset, (stream_id, code.0)));
            }
            Output::StopSending { stream_id, code } => {
                let stop = intern!(py, "stop_stream");
                return unless_over(py, self.quic(py)?.call_method1(stop, (stream_id, code.0)));
            }
            Output::CloseConnection { code, reason } => self
                .quic(py)?
                .call_method1(intern!(py, "close"), (code.0, py.None(), reason.as_ref()))?,
        };
        Ok(())
    }

    pub(super) fn write(
        &self,
        py: Python<'_>,
        stream_id: u64,
        data: &Bound<'_, PyBytes>,
        fin: bool,
    ) -> PyResult<()> {
        let fin = PyBool::new(py, fin);
        self.quic(py)?
            .call_method1(intern!(py, "send_stream_data"), (stream_id, data, fin))?;
        Ok(())
    }
}

/// Ignores the error of a stream that has ended meanwhile.
fn unless_over(py: Python<'_>, ended: PyResult<Bound<'_, PyAny>>) -> PyResult<()> {
    match ended {
        Err(error) if error.is_instance_of::<PyConnectionResetError>(py) => Ok(()),
        ended => ended.map(drop),
    }
}

pub(super) fn is_unidirectional(stream_id: u64) -> bool {
    stream_id & 2 != 0
}
