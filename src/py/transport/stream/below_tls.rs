//! The methods of a stream transport that TLS above it calls: a write of records, and an end after a last alert.
//!
//! TLS has accepted and encrypted the bytes already, so these methods have none of the checks of `write()`.

use pyo3::prelude::*;

use super::StreamTransport;
use crate::capi::buffer::Outgoing;
use crate::transport::base_transport::BaseTransport;

impl StreamTransport {
    /// Writes TLS records.
    pub fn write_records(slf: &Bound<'_, Self>, records: Outgoing<'_>) -> PyResult<()> {
        let base = slf.as_super();
        match base.get().writable(slf.py())? {
            Some(key) => Self::queue(base, key, records),
            None => Ok(()),
        }
    }

    /// Fails if the loop is inside the kernel on another thread, so that the engine cannot be used. Returns false after
    /// the end of the transport or of its loop.
    pub fn check_reachable(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let base = slf.as_super().get();
        match base.key(slf.py()) {
            Some(_) => base.command(slf.py(), |_| true),
            None => Ok(false),
        }
    }

    pub fn write_queue_bytes(slf: &Bound<'_, Self>) -> usize {
        slf.as_super().get().shared.queued()
    }

    /// Closes the connection with `error` when all queued bytes are sent.
    pub fn close_with(slf: &Bound<'_, Self>, error: Option<Py<PyAny>>) -> PyResult<()> {
        let base = slf.as_super();
        BaseTransport::close(base)?;
        let kept = base.get().state.with(slf.py(), |state| {
            let lost_error = &mut state.rare().lost_error;
            if lost_error.is_some() {
                return error;
            }
            *lost_error = error;
            None
        });
        drop(kept);
        Ok(())
    }

    /// Ends the connection with `error` at once.
    pub fn end_with(slf: &Bound<'_, Self>, error: Option<Py<PyAny>>) -> PyResult<()> {
        BaseTransport::force_close(slf.as_super(), error)
    }
}
