//! Decrypts the peer's records for the application, and pauses and resumes reading: the application's from TLS, and
//! that of TLS from the transport beneath.

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::protocol::{AppState, TlsPhase, TlsProtocol};
use super::ssl_object::Step;
use crate::capi::buffer_exporter::Target;
use crate::capi::bytes_like_objects;
use crate::capi::exception_conversion;
use crate::capi::fresh_bytes::FreshBytes;

/// The reason for which reading from OpenSSL has stopped.
enum End {
    /// OpenSSL has no further whole record, or the application has paused reading.
    Dry,
    CloseNotify,
    /// OpenSSL reported an error. Bytes that were decrypted before it are delivered before it is reported.
    Failed(PyErr),
}

/// Plaintext of the first pieces of a loop iteration, kept until the last piece has come. Each piece is decrypted where
/// the kernel has put it.
#[derive(Default)]
pub struct ReadAhead {
    bytes: Option<FreshBytes>,
    /// Never [`End::Dry`].
    end: Option<End>,
    /// The number of bytes in the last loop iteration that had several pieces. The buffer of the next such loop
    /// iteration gets this capacity.
    expected: usize,
}

impl ReadAhead {
    pub fn len(&self) -> usize {
        self.bytes.as_ref().map_or(0, FreshBytes::len)
    }

    fn is_empty(&self) -> bool {
        self.len() == 0 && self.end.is_none()
    }
}

impl TlsProtocol {
    /// Passes bytes of the peer, which may be in a buffer of the ring, to OpenSSL. Nothing is delivered to the
    /// application yet. `more_follow` is true if this loop iteration brings more bytes of this connection (see
    /// `taken`).
    pub fn take(slf: &Bound<'_, Self>, data: &[u8], more_follow: bool) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        if this.drops_records(py, data.len()) {
            return Ok(());
        }
        let reads_ahead = this.state.with(py, |state| {
            state.records.push(data);
            state.phase == TlsPhase::Wrapped
                && !state.in_ssl
                && !state.reading_paused
                && !state.buffered
                && state.ahead.end.is_none()
        });
        let loan = if reads_ahead {
            this.ssl.lend(data)
        } else {
            None
        };
        match loan {
            Some(loan) => {
                let read = this.read_ahead(py, more_follow);
                drop(loan);
                read
            }
            None => this.ssl.feed(py, data),
        }
    }

    /// Counts `bytes` of the peer's records. Returns true if the connection lingers, so that the caller drops them.
    fn drops_records(&self, py: Python<'_>, bytes: usize) -> bool {
        self.state.with(py, |state| {
            let is_lingering = state.phase == TlsPhase::Lingering;
            if is_lingering {
                let left = state.linger_bytes.unwrap_or(0);
                state.linger_bytes = Some(left.saturating_sub(bytes));
            }
            is_lingering
        })
    }

    /// Decrypts everything that OpenSSL can decrypt now, into one object for all pieces of a loop iteration.
    fn read_ahead(&self, py: Python<'_>, more_follow: bool) -> PyResult<()> {
        let (mut gathered, expected) = self
            .state
            .with(py, |state| (state.ahead.bytes.take(), state.ahead.expected));
        let mut end = None;
        loop {
            let incoming = self.ssl.incoming_bytes(py)?;
            let length = gathered.as_ref().map_or(0, FreshBytes::len);
            // OpenSSL is called if it can decrypt a whole record, or if a large part of the next record has arrived:
            // then it takes the part into its own buffer. Otherwise the part would be copied to our buffer first, and
            // from there to OpenSSL's.
            let is_worth_a_call =
                self.has_more(py, incoming) || (gathered.is_some() && incoming >= PART_BYTES);
            if !is_worth_a_call || length >= GATHER_BYTES_MAX {
                break;
            }
            let bound = incoming + RECORD_BYTES_MAX;
            let mut target = match gathered.take() {
                Some(bytes) if bytes.space() > 0 => bytes,
                Some(bytes) => {
                    let mut larger = FreshBytes::with_capacity(py, length * 2 + bound)?;
                    larger.append(bytes.filled());
                    larger
                }
                None if more_follow => FreshBytes::with_capacity(py, bound.max(expected))?,
                None => FreshBytes::with_capacity(py, self.bound(py, incoming))?,
            };
            let space = target.space();
            let step = self.in_ssl(py, |ssl| ssl.read_to(py, &mut target));
            gathered = Some(target);
            match step {
                Ok(Step::Done(0)) => end = Some(End::CloseNotify),
                Ok(Step::Done(count)) => {
                    self.state
                        .with(py, |state| state.more_inside = count == space);
                    continue;
                }
                Ok(Step::Again) => self.state.with(py, |state| state.more_inside = false),
                Err(error) => end = Some(End::Failed(error)),
            }
            break;
        }
        self.state.with(py, |state| {
            state.ahead.bytes = gathered.filter(|bytes| bytes.len() > 0);
            state.ahead.end = end;
        });
        Ok(())
    }

    /// An upper bound of the plaintext that can be read now, in bytes. Records shrink when they are decrypted, but
    /// OpenSSL may already hold the beginning of one.
    fn bound(&self, py: Python<'_>, incoming: usize) -> usize {
        let inside = self.state.with(py, |state| {
            state.more_inside || state.records.is_inside_record(incoming)
        });
        incoming + if inside { RECORD_BYTES_MAX } else { 0 }
    }

    /// The number of bytes of the peer that the application has not got.
    pub(super) fn unread_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        let ahead = self.state.with(py, |state| state.ahead.len());
        Ok(self.ssl.incoming_bytes(py)? + ahead)
    }

    /// Delivers what `take` has decrypted, or reports its error. If `more_follow` is true, the delivery waits for the
    /// next piece of the loop iteration, because one delivery costs less than several.
    pub fn taken(slf: &Bound<'_, Self>, taken: PyResult<()>, more_follow: bool) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        if let Err(error) = taken {
            return Self::fatal_error(slf, error, "Fatal error on SSL protocol");
        }
        let wait = more_follow
            && this.phase(py) == TlsPhase::Wrapped
            && this.unread_bytes(py)? < GATHER_BYTES_MAX;
        this.state.with(py, |state| state.unread = wait);
        if wait {
            Ok(())
        } else {
            Self::continue_phase(slf)
        }
    }

    /// Reads and delivers bytes that were kept for the next piece of the loop iteration, if that piece has not come.
    pub(super) fn read_the_unread(slf: &Bound<'_, Self>) -> PyResult<()> {
        let unread = slf
            .get()
            .state
            .with(slf.py(), |state| std::mem::take(&mut state.unread));
        if unread {
            Self::continue_phase(slf)
        } else {
            Ok(())
        }
    }

    /// Continues with the handshake, with reading or with the shutdown, as the phase requires. Called after new bytes
    /// and when the application resumes reading.
    pub(super) fn continue_phase(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (phase, in_ssl) = slf
            .get()
            .state
            .with(slf.py(), |state| (state.phase, state.in_ssl));
        if in_ssl {
            return Ok(());
        }
        match phase {
            TlsPhase::Handshake => Self::do_handshake(slf),
            TlsPhase::Wrapped => Self::do_read(slf),
            TlsPhase::Flushing => Self::do_flush(slf),
            TlsPhase::Shutdown => Self::do_shutdown(slf),
            TlsPhase::Lingering => Self::linger_on(slf),
            TlsPhase::Unwrapped => Ok(()),
        }
    }

    pub(super) fn do_read(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let Some((paused, buffered)) = this.readable(py) else {
            return Ok(());
        };
        if !paused {
            let read = if buffered {
                Self::read_buffered(slf)
            } else {
                Self::read_copied(slf)
            };
            match read {
                Ok(End::Dry) => {}
                Ok(End::CloseNotify) => {
                    Self::report_eof(slf)?;
                    Self::start_shutdown(slf)?;
                }
                Ok(End::Failed(error)) | Err(error) => {
                    Self::fatal_error(slf, error, "Fatal error on SSL protocol")?;
                }
            }
        }
        // The bytes are processed even while the application has paused reading, because the last flight of the
        // handshake may be among them.
        Self::write_backlog(slf)?;
        Self::control_lower_reading(slf)
    }

    /// Returns `(the application has paused reading, its protocol has get_buffer())`. `None` in phases in which nothing
    /// may be read.
    fn readable(&self, py: Python<'_>) -> Option<(bool, bool)> {
        self.state.with(py, |state| {
            let open = matches!(state.phase, TlsPhase::Wrapped | TlsPhase::Flushing);
            (open && !state.in_ssl).then_some((state.reading_paused, state.buffered))
        })
    }

    /// True if a read from OpenSSL can return data. Without this check, each read without data would cost an exception.
    fn has_more(&self, py: Python<'_>, incoming: usize) -> bool {
        self.state.with(py, |state| {
            state.more_inside || state.records.has_whole_record(incoming)
        })
    }

    fn read_copied(slf: &Bound<'_, Self>) -> PyResult<End> {
        let py = slf.py();
        let this = slf.get();
        loop {
            let mut ended = None;
            let data = this.read_round(py, &mut ended)?;
            let gone = !matches!(this.phase(py), TlsPhase::Wrapped | TlsPhase::Flushing);
            if let Some(data) = data
                && !gone
                && let Some(app) = this.app(py)
            {
                app.call_method1(intern!(py, "data_received"), (data,))?;
            }
            if let Some(end) = ended {
                return Ok(end);
            }
            // The round has reached its limit. Another one follows, unless the application has paused reading or has
            // replaced its protocol.
            match this.readable(py) {
                Some((false, false)) => {}
                _ => return Ok(End::Dry),
            }
        }
    }

    /// Reads everything that can be decrypted now, up to [`ROUND_BYTES_MAX`], into one object. Sets `ended` if OpenSSL
    /// has no more or the stream has ended.
    fn read_round<'py>(
        &self,
        py: Python<'py>,
        ended: &mut Option<End>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        if let Some(ahead) = self.take_ahead(py, ended)? {
            return Ok(Some(ahead));
        }
        if ended.is_some() {
            return Ok(None);
        }
        let mut incoming = self.ssl.incoming_bytes(py)?;
        if !self.has_more(py, incoming) {
            *ended = Some(End::Dry);
            return Ok(None);
        }
        let bound = self.bound(py, incoming);
        let mut first = None;
        if bound <= ONE_READ_BYTES_MAX && !self.ssl.is_past_the_module() {
            let step = self.in_ssl(py, |ssl| ssl.read(py, bound));
            let data = match step? {
                Step::Again => {
                    self.state.with(py, |state| state.more_inside = false);
                    *ended = Some(End::Dry);
                    return Ok(None);
                }
                Step::Done(data) => data,
            };
            if data.as_bytes().is_empty() {
                *ended = Some(End::CloseNotify);
                return Ok(None);
            }
            let full = data.as_bytes().len() == bound;
            self.state.with(py, |state| state.more_inside = full);
            incoming = self.ssl.incoming_bytes(py)?;
            if !self.has_more(py, incoming) {
                *ended = Some(End::Dry);
                return Ok(Some(data));
            }
            first = Some(data);
        }
        let first = first.as_ref().map_or(&[][..], |data| data.as_bytes());
        let capacity = (first.len() + bound).min(ROUND_BYTES_MAX);
        let mut gathered = FreshBytes::with_capacity(py, capacity)?;
        gathered.append(first);
        while gathered.space() > 0 {
            let space = gathered.space();
            let step = self.in_ssl(py, |ssl| ssl.read_to(py, &mut gathered));
            *ended = self.after_read(py, step, space)?.1;
            if ended.is_some() {
                break;
            }
        }
        if gathered.len() == 0 {
            return Ok(None);
        }
        gathered.finish(py).map(Some)
    }

    /// Returns the number of bytes that a read into `space` bytes has returned. Sets an end if no further read can
    /// return bytes now.
    fn after_read(
        &self,
        py: Python<'_>,
        read: PyResult<Step<usize>>,
        space: usize,
    ) -> PyResult<(usize, Option<End>)> {
        let (count, end) = match read {
            Ok(Step::Done(0)) => return Ok((0, Some(End::CloseNotify))),
            Ok(Step::Done(count)) => (count, None),
            Ok(Step::Again) => (0, Some(End::Dry)),
            Err(error) => return Ok((0, Some(End::Failed(error)))),
        };
        let is_full = count == space;
        self.state.with(py, |state| state.more_inside = is_full);
        let is_dry = end.is_none() && !self.has_more(py, self.ssl.incoming_bytes(py)?);
        Ok((count, end.or(is_dry.then_some(End::Dry))))
    }

    /// Takes the bytes that were read ahead, if there are any. Sets `ended` as `read_round` does.
    fn take_ahead<'py>(
        &self,
        py: Python<'py>,
        ended: &mut Option<End>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let (bytes, end) = self.state.with(py, |state| {
            if state.ahead.is_empty() {
                return (None, None);
            }
            state.ahead.expected = state.ahead.len() + SPARE_BYTES;
            (state.ahead.bytes.take(), state.ahead.end.take())
        });
        *ended = end;
        match bytes {
            Some(bytes) if bytes.len() > 0 => {
                if ended.is_none() && !self.has_more(py, self.ssl.incoming_bytes(py)?) {
                    *ended = Some(End::Dry);
                }
                bytes.finish(py).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Delivers the bytes that were read ahead to a protocol that has become a `BufferedProtocol` since.
    fn deliver_ahead(&self, py: Python<'_>, ended: &mut Option<End>) -> PyResult<()> {
        let (Some(bytes), Some(app)) = (self.take_ahead(py, ended)?, self.app(py)) else {
            return Ok(());
        };
        let mut rest = bytes.as_bytes();
        while !rest.is_empty() {
            let target = app.call_method1(intern!(py, "get_buffer"), (rest.len(),))?;
            let count = bytes_like_objects::copy_into(&target, rest)?;
            if count == 0 {
                return Err(PyRuntimeError::new_err(EMPTY_BUFFER));
            }
            rest = &rest[count..];
            app.call_method1(intern!(py, "buffer_updated"), (count,))?;
        }
        Ok(())
    }

    fn read_buffered(slf: &Bound<'_, Self>) -> PyResult<End> {
        let py = slf.py();
        let this = slf.get();
        let mut ended = None;
        this.deliver_ahead(py, &mut ended)?;
        if let Some(end) = ended {
            return Ok(end);
        }
        loop {
            let incoming = this.ssl.incoming_bytes(py)?;
            if !this.has_more(py, incoming) {
                return Ok(End::Dry);
            }
            let Some(app) = this.app(py) else {
                return Ok(End::Dry);
            };
            let target = app.call_method1(intern!(py, "get_buffer"), (incoming,))?;
            let mut end = None;
            let filled = this.fill_buffer(&target, &mut end)?;
            drop(target);
            if filled > 0 {
                app.call_method1(intern!(py, "buffer_updated"), (filled,))?;
            }
            if let Some(end) = end {
                return Ok(end);
            }
            match this.readable(py) {
                Some((false, true)) => {}
                Some((false, false)) => return Self::read_copied(slf),
                _ => return Ok(End::Dry),
            }
        }
    }

    /// Decrypts into the application's buffer until the buffer is full or OpenSSL has no more.
    fn fill_buffer(&self, target: &Bound<'_, PyAny>, end: &mut Option<End>) -> PyResult<usize> {
        let py = target.py();
        let target = Target::get(target)?;
        let size = target.len();
        if size == 0 {
            return Err(PyRuntimeError::new_err(EMPTY_BUFFER));
        }
        let mut filled = 0;
        while filled < size {
            let space = size - filled;
            let read = self.in_ssl(py, |ssl| ssl.read_into(py, &target, filled));
            let (count, ended) = self.after_read(py, read, space)?;
            filled += count;
            *end = ended;
            if end.is_some() {
                break;
            }
        }
        Ok(filled)
    }

    /// Calls the application's `eof_received()`, at most once.
    pub(super) fn report_eof(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let unreported = this.state.with(py, |state| {
            let unreported = state.reported == AppState::ConnectionMade;
            if unreported {
                state.reported = AppState::EofReceived;
            }
            unreported
        });
        let (true, Some(app)) = (unreported, this.app(py)) else {
            return Ok(());
        };
        let answer = app
            .call_method0(intern!(py, "eof_received"))
            .and_then(|keep_open| keep_open.is_truthy());
        match answer {
            Ok(false) => Ok(()),
            Ok(true) => {
                this.owner.bind(py).call_method1(
                    intern!(py, "_log_warning"),
                    ("returning true from eof_received() has no effect when using ssl",),
                )?;
                Ok(())
            }
            Err(error) => Self::fatal_error(slf, error, "Error calling eof_received()"),
        }
    }

    // Reading, paused and resumed ------------------------------------------------------------------

    pub(super) fn resume_reading(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let was_paused = this
            .state
            .with(py, |state| std::mem::take(&mut state.reading_paused));
        if was_paused {
            let resume = slf.getattr(intern!(py, "_resume"))?;
            this.owner
                .bind(py)
                .call_method1(intern!(py, "call_soon"), (resume,))?;
        }
        Ok(())
    }

    /// Pauses reading from the transport beneath when the bytes that wait here reach the high-water mark. Resumes it at
    /// the low-water mark.
    pub(super) fn control_lower_reading(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let incoming = this.ssl.incoming_bytes(py)?;
        let pause = this.state.with(py, |state| {
            // Only whole records count. The beginning of a record waits for its end, which a pause would hold back.
            let size = state.records.whole_bytes(incoming) + state.ahead.len();
            let pause = if size >= state.read_marks.high && !state.lower_reading_paused {
                true
            } else if size <= state.read_marks.low && state.lower_reading_paused {
                false
            } else {
                return None;
            };
            state.lower_reading_paused = pause;
            Some(pause)
        });
        let (Some(pause), Some(lower)) = (pause, this.lower(py)) else {
            return Ok(());
        };
        let reported = if pause {
            lower.pause_reading(py)
        } else {
            lower.resume_reading(py)
        };
        match reported {
            Err(error) if !exception_conversion::is_exit(py, &error) => {
                Self::fatal_error(slf, error, "Fatal error on SSL protocol")
            }
            reported => reported,
        }
    }
}

/// The largest number of bytes of one loop iteration that are decrypted together: as many as asyncio reads from a
/// socket at once.
const GATHER_BYTES_MAX: usize = 256 * 1024;
/// The largest number of bytes that one `data_received` gets.
const ROUND_BYTES_MAX: usize = 1024 * 1024;
/// Up to this number of bytes, the object that OpenSSL has filled is delivered itself. Above it, several records
/// share one object.
const ONE_READ_BYTES_MAX: usize = 4 * 1024;
/// An incomplete record of this number of bytes or more is passed to OpenSSL at once.
const PART_BYTES: usize = 2 * 1024;
/// The free space in bytes after a read that shows that OpenSSL has no more of the last record.
const SPARE_BYTES: usize = 64;
const EMPTY_BUFFER: &str = "get_buffer() returned an empty buffer";
/// The longest plaintext of a record in bytes (RFC 8446 section 5.1).
const RECORD_BYTES_MAX: usize = 1 << 14;
