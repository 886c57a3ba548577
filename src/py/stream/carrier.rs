//! The stream transport as TLS sees it from above: bytes that were accepted there already, and an end
//! that lets a last alert out. Not here: the transport's own write() and its checks.

use bytes::Bytes;
use pyo3::prelude::*;

use super::StreamTransport;
use crate::dispatch::command;

impl StreamTransport {
    /// Takes bytes of TLS on top. They were accepted there, so no more questions are asked.
    pub fn write_bytes(slf: &Bound<'_, Self>, bytes: Bytes) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        if let Some(key) = this.writable_key(py)? {
            let outcome = command(py, &this.owner, |engine| engine.write(key, bytes))?;
            Self::after_write(slf, outcome)?;
        }
        Ok(())
    }

    /// Fails when the engine is out of reach (another thread, a closed loop).
    pub fn check_reachable(&self, py: Python<'_>) -> PyResult<()> {
        command(py, &self.owner, |_| ())
    }

    pub fn write_queue_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        self.get_write_buffer_size(py)
    }

    /// Sends what is queued, then ends the connection with `error`.
    pub fn close_with(&self, py: Python<'_>, error: Option<Py<PyAny>>) -> PyResult<()> {
        let kept = self.state.with(py, |state| {
            if state.lost_error.is_some() {
                return error;
            }
            state.lost_error = error;
            None
        });
        drop(kept);
        self.close(py)
    }
}
