//! The HTTP/3 connection after its control and QPACK streams are open: passes QUIC events to `uringcore_h3`, and
//! executes the commands of `uringcore_h3` on the QUIC connection object. Not here: the methods that Python calls
//! (`connection`), and the event objects (`event_objects`).
//!
//! Python opens the connection (`_init_connection`) so that the SETTINGS are those of a subclass's
//! `_get_local_settings`. From then on everything is done in Rust, except for a subclass that overrides
//! `_validate_settings` or `_handle_request_or_push_frame`: its events pass through Python before the program gets
//! them. A subclass over a QUIC object of another library gets one call for each frame, as in aioquic, because such
//! programs and their tests count the calls.
//!
//! When a program resets or stops a stream through the QUIC connection, the QUIC connection calls the HTTP/3
//! connection, which drops the state of the stream.

use pyo3::exceptions::{PyConnectionResetError, PyRuntimeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyList};
use rustc_hash::FxHashSet;
use uringcore_h3::{Event, Logged, Output, QueuedConnection};

use super::H3ConnectionCore;
use crate::capi::bytes_like_objects;
use crate::capi::gil_cell::GilCell;
use crate::h3::qlog_trace;
use crate::h3::quic_event_kinds::EventKinds;

/// The connection while its control and QPACK streams are open.
pub(super) struct OpenConnection {
    pub(super) quic: GilCell<Option<Py<PyAny>>>,
    pub(super) core: GilCell<QueuedConnection>,
    pub(super) kinds: EventKinds,
    pub(super) close_on_malformed: bool,
    pub(super) hooks: Hooks,
    /// Request streams that have got 0-RTT data and whose header section was not reported yet. QUIC limits their
    /// number: it is at most the number of streams that the client may open.
    pub(super) early: GilCell<FxHashSet<u64>>,
    /// Entries for the connection's qlog trace, until the trace exists, which is when the QUIC connection starts.
    /// `None` without a trace.
    pub(super) unreported: Option<GilCell<Vec<Logged>>>,
}

/// Differences to the usual course, which a subclass or the QUIC connection object requires.
#[derive(Clone, Copy)]
pub(super) struct Hooks {
    /// `_check_received_settings` of the subclass checks the peer's settings.
    pub(super) settings: bool,
    /// `_hand_frame` of the subclass gets each event that a frame of a request or push causes, and returns the events
    /// to report.
    pub(super) frames: bool,
    /// If true, each frame is written by a separate call (see [`Settings::separate_writes`]).
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
        let data = bytes_like_objects::contiguous(&object, "data")?;
        // aioquic's event has no attribute `early_data`.
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
            // Only the request's header section is reported as early data, so the mark is removed afterwards.
            let (early, core) = (&self.early, &self.core);
            if !core.with(py, |core| core.awaits_headers(stream_id)) {
                early.with(py, |early| early.remove(&stream_id));
            }
        }
        reported
    }

    /// Passes the negotiated size of DATAGRAM frames to `uringcore_h3` before SETTINGS are read, for the check of RFC
    /// 9297 section 2.1.1.
    pub(super) fn learn_peer_datagrams(&self, py: Python<'_>) -> PyResult<()> {
        if self
            .core
            .with(py, |core| core.received_settings().is_some())
        {
            return Ok(());
        }
        let quic = self.quic(py)?;
        // aioquic's connection has this attribute. If the QUIC object lacks it, the size is not checked.
        if let Some(size) = quic.getattr_opt(intern!(py, "_remote_max_datagram_frame_size"))? {
            self.core
                .with(py, |core| core.set_peer_quic_datagrams(!size.is_none()));
        }
        Ok(())
    }

    /// Executes the commands that an input has caused on the QUIC connection, and collects the events.
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

    /// Executes the commands of `uringcore_h3`. All are executed even if one fails; the first exception is returned.
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

    /// Writes the pending entries to the qlog trace, if the trace exists.
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

/// Ignores a ConnectionResetError: the stream has ended meanwhile.
fn unless_over(py: Python<'_>, ended: PyResult<Bound<'_, PyAny>>) -> PyResult<()> {
    match ended {
        Err(error) if error.is_instance_of::<PyConnectionResetError>(py) => Ok(()),
        ended => ended.map(drop),
    }
}

pub(super) fn is_unidirectional(stream_id: u64) -> bool {
    stream_id & 2 != 0
}
