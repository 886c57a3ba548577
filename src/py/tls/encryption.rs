//! Encrypts the application's writes, keeps those that wait (the backlog), and pauses and resumes writing: the
//! application's, and that of TLS to the transport beneath.

use bytes::Bytes;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView};

use super::protocol::{TlsPhase, TlsProtocol};
use super::ssl_object::Step;
use crate::capi::bytes_like_objects;
use crate::capi::exception_conversion;

impl TlsProtocol {
    /// Writes the bytes of the application: `bytes`, a `bytearray` or a `memoryview`.
    pub(super) fn write(slf: &Bound<'_, Self>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        // The most frequent case: the connection is open, nothing waits, and OpenSSL gets the `bytes` object itself.
        if let Ok(bytes) = data.cast::<PyBytes>() {
            let slice = bytes.as_bytes();
            if slice.is_empty() {
                return Ok(());
            }
            let ready = this.state.with(py, |state| {
                state.phase == TlsPhase::Wrapped
                    && state.backlog.is_empty()
                    && !state.in_ssl
                    && !state.lower_writing_paused
            });
            if ready && slice.len() <= this.piece_bytes_max() {
                this.check_reachable(py)?;
                return match this.in_ssl(py, |ssl| ssl.write(bytes)) {
                    // `write_backlog` and not `after_write`: a callback of OpenSSL may have written to this connection
                    // meanwhile.
                    Ok(Step::Done(_)) => Self::write_backlog(slf),
                    Ok(Step::Again) => {
                        this.push(py, bytes_like_objects::hold_bytes(bytes));
                        Self::after_write(slf)
                    }
                    Err(error) => Self::fatal_error(slf, error, "Fatal error on SSL protocol"),
                };
            }
        }
        Self::write_all(slf, vec![bytes_like_objects::bytes_like(data)?])
    }

    /// Writes several objects of the application. Small ones share a record.
    pub(super) fn writelines(slf: &Bound<'_, Self>, list: &Bound<'_, PyAny>) -> PyResult<()> {
        let pieces = list
            .try_iter()?
            .map(|item| bytes_like_objects::bytes_like(&item?))
            .collect::<PyResult<Vec<_>>>()?;
        Self::write_all(slf, joined(pieces))
    }

    /// Writes several pieces as `writelines` does, for a protocol of this extension. After the end of the connection it
    /// drops them without a warning: the protocol learns of the end later, so that its writes are no mistake.
    pub(super) fn write_pieces(slf: &Bound<'_, Self>, pieces: Vec<Bytes>) -> PyResult<()> {
        let this = slf.get();
        if !this.is_open(slf.py()) || this.lower_has_ended(slf.py()) {
            return Ok(());
        }
        Self::write_all(slf, joined(pieces))
    }

    fn is_open(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| {
            matches!(state.phase, TlsPhase::Handshake | TlsPhase::Wrapped)
        })
    }

    fn lower_has_ended(&self, py: Python<'_>) -> bool {
        self.lower(py).is_some_and(|lower| lower.has_ended(py))
    }

    fn write_all(slf: &Bound<'_, Self>, pieces: Vec<Bytes>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        if !this.is_open(py) {
            let before = this.state.with(py, |state| {
                state.writes_lost = state.writes_lost.saturating_add(1);
                state.writes_lost - 1
            });
            if before >= WRITES_LOST_BEFORE_WARNING {
                this.owner
                    .bind(py)
                    .call_method1(intern!(py, "_log_warning"), ("SSL connection is closed",))?;
            }
            return Ok(());
        }
        this.check_reachable(py)?;
        for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
            this.push(py, piece);
        }
        Self::write_backlog(slf)
    }

    /// Fails if the loop's thread is inside the kernel and the caller is another thread, so that the transport beneath
    /// cannot be used. The caller must not have changed anything by then, neither here nor in OpenSSL. Returns false if
    /// the transport beneath or its loop has ended.
    pub(super) fn check_reachable(&self, py: Python<'_>) -> PyResult<bool> {
        match self.lower(py) {
            Some(lower) => lower.check_reachable(py),
            None => Ok(true),
        }
    }

    pub(super) fn push(&self, py: Python<'_>, piece: Bytes) {
        self.state.with(py, |state| {
            state.backlog_bytes += piece.len();
            state.backlog.push_back(piece);
        });
    }

    /// Encrypts as much of the backlog as the transport beneath accepts, and sends the records.
    pub(super) fn write_backlog(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        if Self::may_encrypt(slf, false) {
            let mut written = 0;
            while Self::may_encrypt(slf, written < REFILL_BYTES) {
                match Self::encrypt_piece(slf)? {
                    Some(count) => written += count,
                    None => break,
                }
            }
        }
        if slf.get().state.with(py, |state| state.in_ssl) {
            return Ok(());
        }
        Self::after_write(slf)
    }

    /// Encrypts and sends the whole backlog, because the connection is about to end.
    pub(super) fn flush_backlog(slf: &Bound<'_, Self>) -> PyResult<()> {
        while Self::may_encrypt(slf, true) && Self::encrypt_piece(slf)?.is_some() {}
        Self::send_outgoing(slf, true)
    }

    fn may_encrypt(slf: &Bound<'_, Self>, always: bool) -> bool {
        slf.get().state.with(slf.py(), |state| {
            !state.backlog.is_empty()
                && !state.in_ssl
                && matches!(state.phase, TlsPhase::Wrapped | TlsPhase::Flushing)
                && (always || !state.lower_writing_paused)
        })
    }

    /// Encrypts the next piece of the backlog and passes the records to the transport beneath. Returns `None` if
    /// OpenSSL has to read first or the connection has failed.
    fn encrypt_piece(slf: &Bound<'_, Self>) -> PyResult<Option<usize>> {
        let py = slf.py();
        let this = slf.get();
        let front = this.state.with(py, |state| state.backlog.front().cloned());
        let Some(front) = front else {
            return Ok(None);
        };
        // If a write fails with want-read, OpenSSL requires that it is repeated with the same bytes. So the length of a
        // piece depends on nothing that can change.
        let piece = front.slice(..front.len().min(this.piece_bytes_max()));
        let count = match this.in_ssl(py, |ssl| ssl.write_slice(py, &piece)) {
            Ok(Step::Done(count)) => count,
            Ok(Step::Again) => {
                // OpenSSL has read records for the write. The record boundaries counted so far are no longer true.
                this.state.with(py, |state| state.more_inside = true);
                return Ok(None);
            }
            Err(error) => {
                Self::fatal_error(slf, error, "Fatal error on SSL protocol")?;
                return Ok(None);
            }
        };
        drop((piece, front));
        let spent = this.state.with(py, |state| {
            state.backlog_bytes = state.backlog_bytes.saturating_sub(count);
            match state.backlog.front_mut() {
                Some(front) if count < front.len() => Some(front.split_to(count)),
                Some(_) => state.backlog.pop_front(),
                None => None, // The connection was lost meanwhile.
            }
        });
        drop(spent);
        Self::send_outgoing(slf, true)?;
        Ok(Some(count))
    }

    /// The largest number of bytes that are encrypted at once. It is constant for a connection, because a write that
    /// failed with want-read is repeated with the same bytes.
    fn piece_bytes_max(&self) -> usize {
        if self.ssl.is_past_the_module() {
            REFILL_BYTES
        } else {
            PIECE_BYTES_MAX
        }
    }

    fn after_write(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::send_outgoing(slf, false)?;
        Self::control_app_writing(slf)
    }

    /// Passes OpenSSL's records to the transport beneath. While that transport has paused writing, records are only
    /// passed on if `always` is true.
    pub(super) fn send_outgoing(slf: &Bound<'_, Self>, always: bool) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let lower = this.state.with(py, |state| {
            if state.lower_writing_paused && !always {
                return None;
            }
            state.lower.as_ref().map(|lower| lower.clone_ref(py))
        });
        let Some(lower) = lower else {
            return Ok(());
        };
        if this.ssl.outgoing_bytes(py)? == 0 {
            return Ok(());
        }
        let mut records = this.ssl.take_outgoing(py)?;
        let written = lower.write(py, &mut records);
        this.ssl.reuse(records);
        match written {
            Err(error) if !exception_conversion::is_exit(py, &error) => {
                Self::fatal_error(slf, error, "Fatal error on SSL protocol")
            }
            written => written,
        }
    }

    // Writing, paused and resumed ------------------------------------------------------------------

    /// The transport beneath has called `resume_writing`: continues to write the backlog.
    pub(super) fn lower_resumed(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.get()
            .state
            .with(slf.py(), |state| state.lower_writing_paused = false);
        Self::write_backlog(slf)
    }

    pub(super) fn write_buffer_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.ssl.outgoing_bytes(py)? + self.state.with(py, |state| state.backlog_bytes))
    }

    /// The number of unsent bytes for `get_write_buffer_size`. After `close()` everything is encrypted at once and
    /// waits in the transport beneath, so its bytes are counted then.
    pub(super) fn unsent_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        let own = self.write_buffer_bytes(py)?;
        let beneath = match self.phase(py) {
            TlsPhase::Flushing | TlsPhase::Shutdown | TlsPhase::Lingering => self.lower(py),
            TlsPhase::Unwrapped | TlsPhase::Handshake | TlsPhase::Wrapped => None,
        };
        Ok(own + beneath.map_or(0, |lower| lower.queued_bytes(py)))
    }

    /// Calls the application's `pause_writing()` or `resume_writing()` if the backlog has crossed a mark.
    pub(super) fn control_app_writing(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let (nothing_waits, high) = this.state.with(py, |state| {
            let waits =
                state.writing_paused || state.backlog_bytes > 0 || state.lower_writing_paused;
            (!waits, state.write_marks.high)
        });
        if nothing_waits && high > 0 {
            return Ok(());
        }
        let size = this.write_buffer_bytes(py)?;
        let (pause, look_again) = this.state.with(py, |state| {
            let (marks, paused) = (&state.write_marks, &mut state.writing_paused);
            let pause = if !*paused && size >= marks.high {
                true
            } else if *paused && size <= marks.low {
                false
            } else {
                return (None, false);
            };
            *paused = pause;
            (Some(pause), pause && size <= marks.low)
        });
        if look_again {
            // As in asyncio, an empty backlog reaches a high-water mark of 0. The pause ends with this loop iteration;
            // in asyncio it may never end (CPython's gh-102792).
            let look = slf.getattr(intern!(py, "_control_app_writing"))?;
            let owner = this.owner.bind(py);
            owner.call_method1(intern!(py, "call_soon"), (look,))?;
        }
        let (Some(pause), Some(app)) = (pause, this.app(py)) else {
            return Ok(());
        };
        let name = if pause {
            "pause_writing"
        } else {
            "resume_writing"
        };
        match app.call_method0(name) {
            Ok(_) => Ok(()),
            Err(error) => {
                let app_transport = this.app_transport(py);
                let message = format!("protocol.{name}() failed");
                Self::report(
                    slf,
                    &message,
                    error,
                    app_transport
                        .as_ref()
                        .map(|app_transport| app_transport.as_any()),
                )
            }
        }
    }
}

pub(super) fn check_bytes_like(data: &Bound<'_, PyAny>) -> PyResult<()> {
    if data.is_instance_of::<PyBytes>()
        || data.is_instance_of::<PyByteArray>()
        || data.is_instance_of::<PyMemoryView>()
    {
        return Ok(());
    }
    Err(PyTypeError::new_err(format!(
        "data: expecting a bytes-like instance, got {}",
        data.get_type().name()?
    )))
}

/// Joins adjacent small pieces up to the size of a record, so that not every small piece becomes a record.
fn joined(pieces: Vec<Bytes>) -> Vec<Bytes> {
    let mut joined: Vec<Bytes> = Vec::with_capacity(pieces.len());
    let mut small: Vec<u8> = Vec::new();
    for piece in pieces {
        if small.len() + piece.len() <= RECORD_BYTES_MAX {
            small.extend_from_slice(&piece);
            continue;
        }
        if !small.is_empty() {
            joined.push(std::mem::take(&mut small).into());
        }
        if piece.len() <= RECORD_BYTES_MAX {
            small.extend_from_slice(&piece);
        } else {
            joined.push(piece);
        }
    }
    if !small.is_empty() {
        joined.push(small.into());
    }
    joined
}

/// The longest plaintext of a record in bytes (RFC 8446 section 5.1).
const RECORD_BYTES_MAX: usize = 1 << 14;
/// The number of bytes that are encrypted at once through CPython's memory BIOs: four records, which stay in the
/// processor's cache. Direct calls have no such limit, because they write records where the records wait for the
/// kernel.
const PIECE_BYTES_MAX: usize = 4 * RECORD_BYTES_MAX;
/// The smallest number of bytes that are encrypted at once after the transport beneath has resumed writing, so that
/// the send of a loop iteration is worth its system call. Our stream pauses writing at a quarter of this.
const REFILL_BYTES: usize = 256 * 1024;
/// The number of writes after the end of the connection from which on each one is logged. In asyncio:
/// LOG_THRESHOLD_FOR_CONNLOST_WRITES.
const WRITES_LOST_BEFORE_WARNING: u32 = 5;
