//! Decrypts the peer's records for the application, and pauses and resumes reading on both sides.

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::protocol::{Reported, TlsPhase, TlsProtocol};
use super::ssl_object::Step;
use crate::capi::buffer;
use crate::capi::error;
use crate::capi::fresh_bytes::FreshBytes;
use crate::capi::lent_memory::Target;

/// The reason why a round of reading ended.
enum End {
    /// OpenSSL has no more whole records, or the application paused reading.
    Dry,
    CloseNotify,
    /// Bytes that were decrypted before the failure are delivered before it is reported.
    Failed(PyErr),
}

/// Plaintext of a turn's first pieces, while the last ones have not come yet. Each piece is decrypted where the
/// kernel put it.
#[derive(Default)]
pub struct ReadAhead {
    bytes: Option<FreshBytes>,
    /// Never [`End::Dry`].
    end: Option<End>,
    /// The number of bytes that the last turn of several pieces brought. The buffer of the next turn gets that
    /// capacity.
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
    /// Passes bytes of the peer to OpenSSL, possibly from a buffer of the kernel. Nothing is delivered yet.
    /// `more_follow` is the argument of `taken`.
    pub fn take(slf: &Bound<'_, Self>, data: &[u8], more_follow: bool) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
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

    /// Decrypts everything that is available, into one object for the pieces of a turn.
    fn read_ahead(&self, py: Python<'_>, more_follow: bool) -> PyResult<()> {
        let (mut gathered, expected) = self
            .state
            .with(py, |state| (state.ahead.bytes.take(), state.ahead.expected));
        let mut end = None;
        loop {
            let incoming = self.ssl.incoming_bytes(py)?;
            let length = gathered.as_ref().map_or(0, FreshBytes::len);
            // OpenSSL buffers the beginning of a record. That is cheaper than to copy it twice.
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

    /// An upper bound of the plaintext. Records shrink when they are decrypted, but OpenSSL may hold the beginning of
    /// one.
    fn bound(&self, py: Python<'_>, incoming: usize) -> usize {
        let inside = self.state.with(py, |state| {
            state.more_inside || state.records.is_inside_record(incoming)
        });
        incoming + if inside { RECORD_BYTES_MAX } else { 0 }
    }

    /// The number of the peer's bytes that the application did not get.
    pub(super) fn unread_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        let ahead = self.state.with(py, |state| state.ahead.len());
        Ok(self.ssl.incoming_bytes(py)? + ahead)
    }

    /// Acts on the result of `take`. If `more_follow` is set, this turn brings more, and it is better to decrypt and
    /// deliver all at once.
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
        if wait { Ok(()) } else { Self::go_on(slf) }
    }

    /// Reads the bytes that were left for the next piece of the turn, if that piece never came.
    pub(super) fn read_the_unread(slf: &Bound<'_, Self>) -> PyResult<()> {
        let unread = slf
            .get()
            .state
            .with(slf.py(), |state| std::mem::take(&mut state.unread));
        if unread { Self::go_on(slf) } else { Ok(()) }
    }

    /// Continues as the phase requires, after new bytes or when the application resumes reading.
    pub(super) fn go_on(slf: &Bound<'_, Self>) -> PyResult<()> {
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
                    Self::tell_eof(slf)?;
                    Self::start_shutdown(slf)?;
                }
                Ok(End::Failed(error)) | Err(error) => {
                    Self::fatal_error(slf, error, "Fatal error on SSL protocol")?;
                }
            }
        }
        // This also happens while reading is paused, because the last flight of the handshake is among these bytes.
        Self::write_backlog(slf)?;
        Self::control_lower_reading(slf)
    }

    /// `(the application paused reading, its protocol has get_buffer())`, or None if nothing may be read now.
    fn readable(&self, py: Python<'_>) -> Option<(bool, bool)> {
        self.state.with(py, |state| {
            let open = matches!(state.phase, TlsPhase::Wrapped | TlsPhase::Flushing);
            (open && !state.in_ssl).then_some((state.reading_paused, state.buffered))
        })
    }

    /// True if a read of OpenSSL can return data. A read without data costs an exception.
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
            // Another round is useful only if the application's buffers were the limit.
            match this.readable(py) {
                Some((false, false)) => {}
                _ => return Ok(End::Dry),
            }
        }
    }

    /// All that can be decrypted now, in one object. `ended` is set if nothing is left.
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

    /// The number of bytes of a read into `space`, and an end if no further read can bring more now.
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

    /// The bytes that were read ahead, if any. `ended` is as in `read_round`.
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

    /// Delivers the bytes that were read ahead to a protocol that has become a `BufferedProtocol`.
    fn deliver_ahead(&self, py: Python<'_>, ended: &mut Option<End>) -> PyResult<()> {
        let (Some(bytes), Some(app)) = (self.take_ahead(py, ended)?, self.app(py)) else {
            return Ok(());
        };
        let mut rest = bytes.as_bytes();
        while !rest.is_empty() {
            let target = app.call_method1(intern!(py, "get_buffer"), (rest.len(),))?;
            let count = buffer::copy_into(&target, rest)?;
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

    /// Decrypts into the application's buffer until it is full or nothing is left.
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

    /// Calls the application's `eof_received()`, once.
    pub(super) fn tell_eof(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let unreported = this.state.with(py, |state| {
            let unreported = state.reported == Reported::ConnectionMade;
            if unreported {
                state.reported = Reported::EofReceived;
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

    /// Pauses the transport beneath while its bytes are not read.
    pub(super) fn control_lower_reading(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let incoming = this.ssl.incoming_bytes(py)?;
        let pause = this.state.with(py, |state| {
            // The beginning of a record waits for its rest, which must not be held back.
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
            Err(error) if !error::is_exit(py, &error) => {
                Self::fatal_error(slf, error, "Fatal error on SSL protocol")
            }
            reported => reported,
        }
    }
}

/// Bytes of one turn that are decrypted together: as many as asyncio reads from a socket at once.
const GATHER_BYTES_MAX: usize = 256 * 1024;
/// The maximum number of bytes that one `data_received` gets.
const ROUND_BYTES_MAX: usize = 1024 * 1024;
/// Up to this size, the object that OpenSSL filled is passed on. Above it, several records share one object.
const ONE_READ_BYTES_MAX: usize = 4 * 1024;
/// An incomplete record of at least this size is passed to OpenSSL at once.
const PART_BYTES: usize = 2 * 1024;
/// Space that stays free after a read, which shows that OpenSSL has no more of the last record.
const SPARE_BYTES: usize = 64;
const EMPTY_BUFFER: &str = "get_buffer() returned an empty buffer";
/// The longest plaintext of a record (RFC 8446, section 5.1).
const RECORD_BYTES_MAX: usize = 1 << 14;
