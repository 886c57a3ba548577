//! Files as content: `http.response.pathsend` and `http.response.zerocopysend`.
//!
//! A file's bytes go from the page cache to the connection without being a Python object; what the cache does
//! not have is read by a thread of the loop's executor. A slow client keeps one part of the file in memory, and a
//! descriptor open; of a path only while there is a [`Permit`] for it among the client's, else the file is opened
//! again for each part.
//!
//! Ranges are the application's: it says Content-Range and sends a part.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;
use uringcore_io::{Errno, FileIdentity, SentFile};
use uringcore_proto::permits::Permit;

use super::message::{is_true, optional, required};
use super::request::Request;
use super::response::{PART_BYTES, Sent};
use super::service::Blame;
use super::wire::{Ending, Wire};
use crate::capi::cell::GilCell;
use crate::capi::error;

/// What is still to be sent of a file.
pub(super) struct FileBody {
    /// `None` while it waits for the client without a permit.
    file: Option<Arc<SentFile>>,
    /// Where it is found again, and how it is known then.
    source: Option<(PathBuf, FileIdentity)>,
    permit: Option<Permit>,
    /// As the log names it.
    name: String,
    offset: u64,
    left: u64,
    /// Nothing of the response follows.
    last: bool,
    /// What a thread was asked to read.
    reading: Option<Py<Reading>>,
}

/// A read that a thread carries out: to be called there.
#[pyclass(frozen, module = "uringcore._uringcore")]
struct Reading {
    file: Arc<SentFile>,
    offset: u64,
    length: usize,
    outcome: GilCell<Option<io::Result<Vec<u8>>>>,
}

#[pymethods]
impl Reading {
    fn __call__(&self, py: Python<'_>) {
        let outcome = py.detach(|| self.file.read(self.length, self.offset));
        self.outcome.with(py, |kept| *kept = Some(outcome));
    }
}

impl FileBody {
    /// The next part, or `None` if a thread has to read it.
    fn next_part(&mut self, py: Python<'_>) -> io::Result<Option<Vec<u8>>> {
        if let Some(reading) = self.reading.take()
            && let Some(outcome) = reading.get().outcome.with(py, Option::take)
        {
            return outcome.map(Some);
        }
        match &self.file {
            Some(file) => file.read_now(self.part_length(), self.offset),
            None => Ok(None),
        }
    }

    /// It waits for the client.
    fn set_aside(&mut self, wire: &dyn Wire) {
        if self.source.is_some() && self.permit.is_none() {
            self.permit = wire.file_permit();
            if self.permit.is_none() {
                self.file = None;
            }
        }
    }

    /// Opens it again if it was let go of. False if another one is there now.
    fn is_there(&mut self) -> bool {
        if let (None, Some((path, identity))) = (&self.file, &self.source) {
            let same = |file: &SentFile| file.identity().is_ok_and(|found| found == *identity);
            self.file = SentFile::open(path).ok().filter(same).map(Arc::new);
        }
        self.file.is_some()
    }

    fn part_length(&self) -> usize {
        usize::try_from(self.left).map_or(PART_BYTES, |left| left.min(PART_BYTES))
    }

    /// Has a thread read the next part; what it gives is done when that has happened.
    pub fn read_in_thread<'py>(
        &mut self,
        event_loop: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = event_loop.py();
        let Some(file) = self.file.clone() else {
            return Err(PyRuntimeError::new_err("the file is closed"));
        };
        let reading = Reading {
            file,
            offset: self.offset,
            length: self.part_length(),
            outcome: GilCell::new(None),
        };
        let reading = Py::new(py, reading)?;
        self.reading = Some(reading.clone_ref(py));
        let name = intern!(py, "run_in_executor");
        event_loop.call_method1(name, (py.None(), reading))
    }
}

impl Request {
    /// `http.response.pathsend`: the whole file, and nothing behind it but trailers.
    pub(super) fn send_path(slf: &Bound<'_, Self>, message: &Bound<'_, PyAny>) -> PyResult<Sent> {
        let (py, this) = (slf.py(), slf.get());
        let given = required(message, intern!(py, "path"))?;
        let path: PathBuf = given.extract()?;
        let (is_bodyless, wanted) = this.state.with(py, |state| {
            let response = &state.response;
            (response.is_bodyless(), response.content_left())
        });
        if is_bodyless {
            let last = this
                .state
                .with(py, |state| state.response.account(0, false));
            return Self::send_rest(slf, Bytes::new(), last.map_err(runtime_error)?.last);
        }
        let named = |error: io::Error| {
            let names = pyo3::types::PyTuple::new(py, [&given]).ok();
            let errno = Errno(error.raw_os_error().unwrap_or(libc::EIO));
            error::named_os_error(py, errno, names.map(Bound::unbind))
        };
        let file = SentFile::open(&path).map_err(named)?;
        let size = file.size().map_err(named)?;
        // What a file that grows has more than was announced is left out.
        let length = wanted.map_or(size, |wanted| wanted.min(size));
        let identity = file.identity().map_err(named)?;
        let body = FileBody {
            file: Some(Arc::new(file)),
            name: path.display().to_string(),
            source: Some((path, identity)),
            permit: None,
            offset: 0,
            left: length,
            last: true,
            reading: None,
        };
        Self::send_whole(slf, body, false)
    }

    /// `http.response.zerocopysend`: a part of an open file.
    pub(super) fn send_open_file(
        slf: &Bound<'_, Self>,
        message: &Bound<'_, PyAny>,
    ) -> PyResult<Sent> {
        let (py, this) = (slf.py(), slf.get());
        let given = required(message, intern!(py, "file"))?;
        let number = |key: &Bound<'_, PyString>| -> PyResult<Option<u64>> {
            match optional(message, key)? {
                Some(value) if !value.is_none() => value.extract().map(Some).map_err(|_| {
                    PyValueError::new_err(format!("{key}: must be a number of bytes, not {value}"))
                }),
                _ => Ok(None),
            }
        };
        let (offset, count) = (
            number(intern!(py, "offset"))?,
            number(intern!(py, "count"))?,
        );
        let more_body = is_true(message, intern!(py, "more_body"))?;
        let fd = given.call_method0(intern!(py, "fileno"))?.extract()?;
        let file = SentFile::duplicate(fd).map_err(|error| error::io_error(&error))?;
        let begin = match offset {
            Some(offset) => offset,
            None => given.call_method0(intern!(py, "tell"))?.extract()?,
        };
        let size = file.size().map_err(|error| error::io_error(&error))?;
        let available = size.saturating_sub(begin);
        let length = count.map_or(available, |count| count.min(available));
        if offset.is_none() {
            // As sendfile(2) leaves it.
            given.call_method1(intern!(py, "seek"), (begin + length,))?;
        }
        if this.state.with(py, |state| state.response.is_bodyless()) {
            let last = this
                .state
                .with(py, |state| state.response.account(0, more_body));
            return Self::send_rest(slf, Bytes::new(), last.map_err(runtime_error)?.last);
        }
        let body = FileBody {
            file: Some(Arc::new(file)),
            // The program has it open all the while.
            source: None,
            permit: None,
            name: format!("descriptor {fd}"),
            offset: begin,
            left: length,
            last: true,
            reading: None,
        };
        Self::send_whole(slf, body, more_body)
    }

    fn send_whole(slf: &Bound<'_, Self>, mut body: FileBody, more_body: bool) -> PyResult<Sent> {
        let accounted = slf.get().state.with(slf.py(), |state| {
            state.response.account(body.left, more_body)
        });
        body.last = accounted.map_err(runtime_error)?.last;
        Self::send_file(slf, Box::new(body))
    }

    /// Hands a file on as the client takes it.
    pub(super) fn send_file(slf: &Bound<'_, Self>, mut body: Box<FileBody>) -> PyResult<Sent> {
        let (py, this) = (slf.py(), slf.get());
        let is_full = |wire: &dyn Wire| wire.is_held_up(py);
        while body.left > 0 {
            if this.state.with(py, |state| {
                state.disconnected || state.response.is_complete()
            }) {
                return Ok(Sent::ToNobody);
            }
            if this.with_wire(py, is_full) == Some(true) {
                this.with_wire(py, |wire| body.set_aside(wire));
                return Ok(Sent::FileFull(body));
            }
            if !body.is_there() {
                return Self::file_was_lost(slf, &body, "was replaced or removed");
            }
            let part = match body.next_part(py) {
                Ok(Some(part)) if part.is_empty() => {
                    return Self::file_was_lost(slf, &body, "became shorter");
                }
                Ok(Some(part)) => part,
                Ok(None) => return Ok(Sent::FileUnread(body)),
                Err(error) => return Err(error::io_error(&error)),
            };
            body.offset += part.len() as u64;
            body.left -= part.len() as u64;
            Self::send_part(slf, part.into(), body.last && body.left == 0)?;
            if body.last && body.left == 0 {
                return Ok(Sent::Taken);
            }
        }
        Self::send_rest(slf, Bytes::new(), body.last)
    }

    /// What has been announced cannot be sent, and what has been sent is not the whole: the client has to see
    /// that.
    fn file_was_lost(slf: &Bound<'_, Self>, body: &FileBody, how: &str) -> PyResult<Sent> {
        let (py, this) = (slf.py(), slf.get());
        let name = &body.name;
        let text = format!("A file {how} while it was sent, and the response is given up: {name}");
        this.service.get().tell(py, Blame::Application(None), &text);
        this.end(py, Ending::Failed);
        this.wake_all(py)?;
        Ok(Sent::ToNobody)
    }
}

fn runtime_error(text: &'static str) -> PyErr {
    PyRuntimeError::new_err(text)
}
