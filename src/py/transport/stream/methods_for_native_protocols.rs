//! The methods of a stream transport that protocols of this extension call: TLS, which writes records and ends the
//! stream after a last alert, and HTTP/1.1.
//!
//! These methods have none of the checks of `write()`: TLS has accepted and encrypted the bytes already, and an
//! HTTP/1.1 connection writes nothing after its end.

use pyo3::prelude::*;
use uringcore_engine::{Piece, WriteOutcome};
use uringcore_io::SentFile;

use super::StreamTransport;
use crate::capi::bytes_like_objects::Outgoing;
use crate::transport::base_transport::{BaseTransport, Receiver};
use crate::transport::native_protocol::NativeReceive;

impl StreamTransport {
    /// Writes TLS records.
    pub fn write_records(slf: &Bound<'_, Self>, records: Outgoing<'_>) -> PyResult<()> {
        let base = slf.as_super();
        match base.get().writable(slf.py())? {
            Some(key) => Self::queue(base, key, records),
            None => Ok(()),
        }
    }

    /// From now on, received bytes are passed to `receive`.
    pub fn receive_natively(slf: &Bound<'_, Self>, receive: NativeReceive) {
        let state = &slf.as_super().get().state;
        state.with(slf.py(), |state| state.receiver = Receiver::Native(receive));
    }

    /// Writes several pieces together. No Python code runs: the caller calls
    /// [`apply_write_outcome`](Self::apply_write_outcome) afterwards.
    pub fn write_pieces<'a>(
        slf: &Bound<'_, Self>,
        pieces: impl Iterator<Item = Piece<'a>>,
    ) -> PyResult<WriteOutcome> {
        let base = slf.as_super().get();
        match base.key(slf.py()).filter(|_| !base.is_ending()) {
            Some(key) => base.command(slf.py(), |engine| {
                engine.transports().write_pieces(key, pieces)
            }),
            None => Ok(WriteOutcome::Lost),
        }
    }

    /// Sends a part of a file without a copy, and returns the number of sent bytes. It is 0 if the part has to be written
    /// as bytes. No Python code runs.
    pub fn send_file(
        slf: &Bound<'_, Self>,
        file: &SentFile,
        offset: u64,
        length: usize,
    ) -> PyResult<usize> {
        let base = slf.as_super().get();
        match base.key(slf.py()).filter(|_| !base.is_ending()) {
            Some(key) => base.command(slf.py(), |engine| {
                engine.transports().send_file(key, file, offset, length)
            }),
            None => Ok(0),
        }
    }

    /// Ends the connection at once. No Python code runs.
    pub fn end_at_once(slf: &Bound<'_, Self>) -> PyResult<()> {
        BaseTransport::force_close(slf.as_super(), None)
    }

    /// Pauses the protocol if a write has filled the queue.
    pub fn apply_write_outcome(slf: &Bound<'_, Self>, outcome: WriteOutcome) -> PyResult<()> {
        Self::apply_outcome(slf.as_super(), outcome)
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

    /// True if the connection is closing or has failed, so that writes are dropped.
    pub fn is_ending(slf: &Bound<'_, Self>) -> bool {
        slf.as_super().get().is_ending()
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
