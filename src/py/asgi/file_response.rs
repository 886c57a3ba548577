//! Files as content of a response: the messages `http.response.pathsend` and `http.response.zerocopysend`.
//!
//! The bytes of a file go from the page cache to the connection without becoming a Python object. Where the transport
//! can do that (HTTP/1.1 without TLS), the kernel sends all parts but the first one and those for which the socket is full. A thread of the
//! loop's executor reads the bytes that are not in the cache. For a slow client, one part of the file is in memory.
//!
//! A file stays open between two parts while it has a [`Permit`] of the connection and a [`FileShare`] of the
//! process. Otherwise it is closed and opened again for each part. If there is no permit or no free descriptor, the
//! file is opened later.
//!
//! Range requests are left to the application: it sets Content-Range and sends a part of the file. As the path of
//! `http.response.pathsend`, a [`StaticFile`] is also accepted, with `offset`, `count` and `more_body`, for
//! `uringcore.server.StaticFiles`.
//!
//! A file is opened on the loop's thread, because an application that sends a path has in most cases just looked the
//! file up, so the call does not wait for the disk.

use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use uringcore_io::{Errno, FileIdentity, SentFile};
use uringcore_limits::semaphore::Permit;

use super::asgi_service::{AsgiService, Line, ReportedFault};
use super::http_stream::{Ending, HttpStream};
use super::message_parser::{is_true, optional, required};
use super::open_file_permits::{self, FileShare, PermitAnswer};
use super::request::Request;
use super::response::{PART_BYTES, Sent};
use super::response_compression::COMPRESSED_BYTES_PER_ITERATION;
use super::static_answers::{self, StaticAnswer};
use super::static_folder::{StaticFile, StaticFolder};
use crate::capi::exception_conversion;
use crate::capi::gil_cell::GilCell;

/// A file that the application has named and that is not open yet.
pub(super) struct FileRequest {
    source: Source,
    share: Arc<FileShare>,
    /// The position of the first byte. `None`: the descriptor's own position, which moves with the bytes.
    offset: Option<u64>,
    count: Option<u64>,
    more_body: bool,
    /// The number of attempts that have found no free descriptor.
    failures: u32,
}

/// The part of a file that is not sent yet.
pub(super) struct FileBody {
    /// The open file. `None` while it is closed because it waits.
    file: Option<Arc<SentFile>>,
    share: Arc<FileShare>,
    /// The source from which the file is opened again. The file must then have the identity `identity`.
    source: Source,
    identity: FileIdentity,
    permit: Option<Permit>,
    /// The file's name in the log.
    name: String,
    offset: u64,
    left: u64,
    /// True if the response has no further content.
    last: bool,
    /// The read that a thread executes.
    reading: Option<Py<Reading>>,
    failures: u32,
}

/// The source of a file.
enum Source {
    /// `http.response.pathsend`: the path, and the object that the application has passed, for errors.
    Path(PathBuf, Py<PyAny>),
    /// `http.response.zerocopysend`: an object with `fileno()`. The application keeps it open until everything is sent.
    Object(Py<PyAny>),
    /// A file of a folder that the server publishes.
    Static(Py<StaticFile>),
}

/// The reason for which a file is not open.
enum Unopened {
    /// All permits are taken.
    NoPlace,
    /// The process or the system has no free descriptor.
    NoDescriptor,
    Failed(PyErr),
}

/// A callable that reads a part of a file on a thread.
#[pyclass(frozen, module = "uringcore._uringcore")]
struct Reading {
    /// The open file. Taken once: by the thread that reads, or by the response if it ends before that.
    file: GilCell<Option<(Arc<SentFile>, Arc<FileShare>)>>,
    offset: u64,
    length: usize,
    outcome: GilCell<Option<io::Result<Vec<u8>>>>,
}

#[pymethods]
impl Reading {
    fn __call__(&self, py: Python<'_>) {
        // This thread holds the permit (`_share`) until the file is closed.
        let Some((file, _share)) = self.file.take(py) else {
            return;
        };
        let outcome = py.detach(move || file.read(self.length, self.offset));
        self.outcome.with(py, |kept| *kept = Some(outcome));
    }
}

/// Takes the file out of a read that waits in the executor's queue, so that a response that has ended holds no
/// descriptor.
impl Drop for FileBody {
    fn drop(&mut self) {
        if let Some(reading) = self.reading.take() {
            Python::try_attach(|py| drop(reading.get().file.take(py)));
        }
    }
}

impl Source {
    fn open(&self, py: Python<'_>) -> Result<SentFile, Unopened> {
        loop {
            let opened = match self {
                Self::Path(path, _) => SentFile::open(path),
                Self::Object(object) => SentFile::duplicate(self.number(object.bind(py))?),
                Self::Static(file) => file.get().open(),
            };
            match opened {
                Ok(file) => return Ok(file),
                Err(error) if !is_out_of_descriptors(&error) => {
                    return Err(Unopened::Failed(self.named(py, &error)));
                }
                // The file of a response that only waits was closed, which has freed a descriptor.
                Err(_) if open_file_permits::close_one(py) => {}
                Err(_) => return Err(Unopened::NoDescriptor),
            }
        }
    }

    fn number(&self, object: &Bound<'_, PyAny>) -> Result<RawFd, Unopened> {
        let number = object.call_method0(intern!(object.py(), "fileno"));
        number
            .and_then(|number| number.extract())
            .map_err(Unopened::Failed)
    }

    /// The error with the file's name, as `open()` raises it.
    fn named(&self, py: Python<'_>, error: &io::Error) -> PyErr {
        let names = match self {
            Self::Path(_, given) => PyTuple::new(py, [given]).ok(),
            Self::Object(_) | Self::Static(_) => None,
        };
        let errno = Errno(error.raw_os_error().unwrap_or(libc::EIO));
        exception_conversion::named_os_error(py, errno, names.map(Bound::unbind))
    }

    fn name(&self) -> String {
        match self {
            Self::Path(path, _) => path.display().to_string(),
            Self::Object(_) => "an open file".to_owned(),
            Self::Static(file) => file.get().name(),
        }
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Path(_, given) => visit.call(given),
            Self::Object(object) => visit.call(object),
            Self::Static(file) => visit.call(file),
        }
    }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

impl FileRequest {
    fn open(&self, py: Python<'_>) -> Result<SentFile, Unopened> {
        match self.share.take(py) {
            PermitAnswer::Later => {
                if let Source::Static(file) = &self.source {
                    file.get().close();
                }
                Err(Unopened::NoPlace)
            }
            PermitAnswer::Open(_) | PermitAnswer::Room => {
                let opened = self.source.open(py);
                if opened.is_err() {
                    self.share.release(py);
                }
                opened
            }
        }
    }

    pub fn share(&self) -> &FileShare {
        &self.share
    }

    pub fn retry_delay(&self) -> Option<f64> {
        retry_delay(self.failures)
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.source.traverse(visit)?;
        self.share.traverse(visit)
    }
}

/// Seconds until the next attempt to open the file. `None` if the last attempt did not fail for want of a descriptor.
/// No event reports a free descriptor, so the file is tried again.
fn retry_delay(failures: u32) -> Option<f64> {
    let doubled = f64::from(1_u32 << failures.min(5)) * RETRY_SECONDS;
    (failures > 0).then(|| doubled.min(RETRY_SECONDS_MAX))
}

impl FileBody {
    /// Reads the next part. `None` if a thread has to read it, because it is not in the page cache.
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

    /// Keeps or closes the file while the response waits for the client.
    fn set_aside(&mut self, py: Python<'_>, stream: &dyn HttpStream) {
        let Some(file) = self.file.take() else {
            return;
        };
        self.permit = self.permit.take().or_else(|| stream.file_permit());
        // The application may close its own open file, which could not be opened again then. So its descriptor is kept
        // even without a permit.
        match self.permit.is_some() || matches!(self.source, Source::Object(_)) {
            true => self.share.keep(py, file),
            false => {
                drop(file);
                self.share.release(py);
            }
        }
    }

    /// Opens the file if it is closed. Returns false if its path names another file now.
    fn is_there(&mut self, py: Python<'_>) -> Result<bool, Unopened> {
        if self.file.is_some() {
            return Ok(true);
        }
        let file = match self.share.take(py) {
            PermitAnswer::Open(file) => file,
            PermitAnswer::Later => return Err(Unopened::NoPlace),
            PermitAnswer::Room => match self.source.open(py) {
                Ok(file) if file.identity().is_ok_and(|found| found == self.identity) => {
                    Arc::new(file)
                }
                Err(Unopened::NoDescriptor) => {
                    self.share.release(py);
                    return Err(Unopened::NoDescriptor);
                }
                _ => {
                    self.share.release(py);
                    return Ok(false);
                }
            },
        };
        self.file = Some(file);
        self.failures = 0;
        Ok(true)
    }

    pub fn share(&self) -> &FileShare {
        &self.share
    }

    pub fn retry_delay(&self) -> Option<f64> {
        retry_delay(self.failures)
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.reading)?;
        self.source.traverse(visit)?;
        self.share.traverse(visit)
    }

    fn part_length(&self) -> usize {
        usize::try_from(self.left).map_or(PART_BYTES, |left| left.min(PART_BYTES))
    }

    /// Starts a thread that reads the next part. The returned awaitable is done when the part was read.
    pub fn read_in_thread<'py>(
        &mut self,
        event_loop: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = event_loop.py();
        let Some(file) = self.file.clone() else {
            return Err(PyRuntimeError::new_err("the file is closed"));
        };
        let reading = Reading {
            file: GilCell::new(Some((file, self.share.clone()))),
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
    /// Handles `http.response.pathsend`: sends a whole file, after which only trailers may follow.
    pub(super) fn send_path(slf: &Bound<'_, Self>, message: &Bound<'_, PyAny>) -> PyResult<Sent> {
        let (py, this) = (slf.py(), slf.get());
        let given = required(message, intern!(py, "path"))?;
        if let Ok(file) = given.cast::<StaticFile>() {
            return Self::send_static_file(slf, message, file);
        }
        let path: PathBuf = given.extract()?;
        let is_bodyless = this.state.with(py, |state| state.response.is_bodyless());
        if is_bodyless {
            return Self::send_no_content(slf, false);
        }
        let source = Source::Path(path, given.unbind());
        Self::open_file(slf, this.file_request(py, source, Some(0), None, false)?)
    }

    /// Handles `http.response.pathsend` with a file of a published folder: sends a part of it.
    fn send_static_file(
        slf: &Bound<'_, Self>,
        message: &Bound<'_, PyAny>,
        file: &Bound<'_, StaticFile>,
    ) -> PyResult<Sent> {
        let (py, this) = (slf.py(), slf.get());
        let offset = number_of_bytes(message, intern!(py, "offset"))?;
        let count = number_of_bytes(message, intern!(py, "count"))?;
        let more_body = is_true(message, intern!(py, "more_body"))?;
        if this.state.with(py, |state| state.response.is_bodyless()) {
            return Self::send_no_content(slf, more_body);
        }
        if let Some(folder) = optional(message, intern!(py, "folder"))?
            && let Ok(folder) = folder.cast::<StaticFolder>()
        {
            let original = optional(message, intern!(py, "original"))?;
            let original = original.and_then(|name| name.cast_into::<PyBytes>().ok());
            let original = original.as_ref().map(|name| name.as_bytes());
            this.keep_as_answer(py, folder, file.get(), original);
        }
        let source = Source::Static(file.clone().unbind());
        let offset = Some(offset.unwrap_or(0));
        let request = this.file_request(py, source, offset, count, more_body)?;
        Self::open_file(slf, request)
    }

    /// Keeps the answer with a whole file for requests like this one. `original` is the name of the file whose compressed
    /// sibling it is.
    fn keep_as_answer(
        &self,
        py: Python<'_>,
        folder: &Bound<'_, StaticFolder>,
        file: &StaticFile,
        original: Option<&[u8]>,
    ) {
        let service = self.service.get();
        let is_repeated = service.repeats_files
            && file.size() <= static_answers::ANSWER_BYTES_MAX
            && self.with_stream(py, |stream| stream.repeats_answers()) == Some(true);
        if !is_repeated {
            return;
        }
        let defaults = service.default_headers(py, 0).len();
        let own = |name: &Bound<'_, PyBytes>| name.as_bytes().into();
        let fields = self.state.with(py, |state| {
            let lines = state.response.lines_of_200()?.get(defaults..)?;
            let line = |(name, value): &Line| (own(name.bind(py)), own(value.bind(py)));
            Some(lines.iter().map(line).collect())
        });
        if let (Some(fields), Some(key)) = (fields, self.answer_key(py))
            && let Some(answer) = StaticAnswer::new(folder, file, original, fields)
        {
            service
                .answers
                .with(py, |answers| answers.keep(key, answer));
        }
    }

    /// The key of this request in the table of answers.
    fn answer_key(&self, py: Python<'_>) -> Option<Box<[u8]>> {
        let scope = self.scope.bind(py);
        let path = scope.get_item(intern!(py, "raw_path")).ok()??;
        let path = path.cast::<PyBytes>().ok()?.as_bytes();
        let path = match &self.service.get().root_path {
            Some(root) => path.strip_prefix(root.raw.as_bytes(py))?,
            None => path,
        };
        let headers = scope.get_item(intern!(py, "headers")).ok()??;
        let mut lines = Vec::new();
        for item in headers.cast::<PyList>().ok()? {
            let (name, value) = AsgiService::pair(&item).ok()?;
            lines.push((
                name.cast_into::<PyBytes>().ok()?,
                value.cast_into::<PyBytes>().ok()?,
            ));
        }
        let fields = lines.iter();
        static_answers::key(
            path,
            fields.map(|(name, value)| (name.as_bytes(), value.as_bytes())),
        )
    }

    /// Handles `http.response.zerocopysend`: sends a part of an open file.
    pub(super) fn send_open_file(
        slf: &Bound<'_, Self>,
        message: &Bound<'_, PyAny>,
    ) -> PyResult<Sent> {
        let (py, this) = (slf.py(), slf.get());
        let given = required(message, intern!(py, "file"))?;
        let offset = number_of_bytes(message, intern!(py, "offset"))?;
        let count = number_of_bytes(message, intern!(py, "count"))?;
        let more_body = is_true(message, intern!(py, "more_body"))?;
        if this.state.with(py, |state| state.response.is_bodyless()) {
            return Self::send_no_content(slf, more_body);
        }
        let source = Source::Object(given.unbind());
        let request = this.file_request(py, source, offset, count, more_body)?;
        Self::open_file(slf, request)
    }

    fn send_no_content(slf: &Bound<'_, Self>, more_body: bool) -> PyResult<Sent> {
        let accounted = slf
            .get()
            .state
            .with(slf.py(), |state| state.response.account(0, more_body));
        Self::send_rest(slf, Bytes::new(), accounted.map_err(runtime_error)?.last)
    }

    fn file_request(
        &self,
        py: Python<'_>,
        source: Source,
        offset: Option<u64>,
        count: Option<u64>,
        more_body: bool,
    ) -> PyResult<Box<FileRequest>> {
        let client = self.with_stream(py, |stream| stream.file_client(py));
        let client = client.ok_or_else(|| runtime_error("the application has returned"))?;
        Ok(Box::new(FileRequest {
            source,
            share: FileShare::new(client),
            offset,
            count,
            more_body,
            failures: 0,
        }))
    }

    /// Opens a file now, or later if there is no permit or no descriptor for it.
    pub(super) fn open_file(
        slf: &Bound<'_, Self>,
        mut request: Box<FileRequest>,
    ) -> PyResult<Sent> {
        let (py, this) = (slf.py(), slf.get());
        if this.state.with(py, |state| {
            state.disconnected || state.response.is_complete()
        }) {
            return Ok(Sent::ToNobody);
        }
        let file = match request.open(py) {
            Ok(file) => file,
            Err(Unopened::NoPlace) => {
                request.failures = 0;
                return Ok(Sent::FileUnopened(request));
            }
            Err(Unopened::NoDescriptor) => {
                request.failures += 1;
                return Ok(Sent::FileUnopened(request));
            }
            Err(Unopened::Failed(error)) => return Err(error),
        };
        let named = |error: io::Error| request.source.named(py, &error);
        let (size, identity) = (file.size().map_err(named)?, file.identity().map_err(named)?);
        let begin = match (request.offset, &request.source) {
            (None, Source::Object(object)) => object
                .bind(py)
                .call_method0(intern!(py, "tell"))?
                .extract()?,
            (offset, _) => offset.unwrap_or(0),
        };
        // If the file has grown since, bytes beyond the announced Content-Length are not sent.
        let announced = match request.source {
            Source::Path(..) => this.state.with(py, |state| state.response.content_left()),
            Source::Object(_) | Source::Static(_) => None,
        };
        let available = size.saturating_sub(begin);
        let wanted = request.count.or(announced);
        let length = wanted.map_or(available, |wanted| wanted.min(available));
        if let (None, Source::Object(object)) = (request.offset, &request.source) {
            // Sets the position of the file as sendfile(2) would.
            let end = (begin.saturating_add(length),);
            object.bind(py).call_method1(intern!(py, "seek"), end)?;
        }
        let FileRequest {
            source,
            share,
            more_body,
            ..
        } = *request;
        let body = FileBody {
            file: Some(Arc::new(file)),
            share,
            name: source.name(),
            source,
            identity,
            permit: None,
            offset: begin,
            left: length,
            last: true,
            reading: None,
            failures: 0,
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

    /// Sends a file as fast as the client accepts it.
    pub(super) fn send_file(slf: &Bound<'_, Self>, body: Box<FileBody>) -> PyResult<Sent> {
        let left = body.left;
        let sent = Self::send_file_parts(slf, body);
        if left > 0 {
            slf.get().written(slf.py());
        }
        sent
    }

    fn send_file_parts(slf: &Bound<'_, Self>, mut body: Box<FileBody>) -> PyResult<Sent> {
        let (py, this) = (slf.py(), slf.get());
        let is_full = |stream: &dyn HttpStream| stream.is_held_up(py);
        let (mut compressed, mut direct) = (0, 0);
        while body.left > 0 {
            if this.state.with(py, |state| {
                state.disconnected || state.response.is_complete()
            }) {
                return Ok(Sent::ToNobody);
            }
            if this.with_stream(py, is_full) == Some(true) {
                this.with_stream(py, |stream| body.set_aside(py, stream));
                return Ok(Sent::FileFull(body));
            }
            match body.is_there(py) {
                Ok(true) => {}
                Ok(false) => {
                    return Self::file_was_lost(slf, &body, "was replaced or removed");
                }
                Err(Unopened::NoDescriptor) => {
                    body.failures += 1;
                    return Ok(Sent::FileUnopenable(body));
                }
                Err(_) => {
                    body.failures = 0;
                    return Ok(Sent::FileUnopenable(body));
                }
            }
            let sent = Self::send_file_directly(slf, &body);
            if sent > 0 {
                body.offset += sent;
                body.left -= sent;
                direct += sent;
                if body.last && body.left == 0 {
                    Self::send_part(slf, Bytes::new(), true, false)?;
                    return Ok(Sent::Taken);
                }
                if direct >= DIRECT_BYTES_PER_ITERATION {
                    return Ok(Sent::FileLater(body));
                }
                continue;
            }
            let part = match body.next_part(py) {
                Ok(Some(part)) if part.is_empty() => {
                    return Self::file_was_lost(slf, &body, "became shorter");
                }
                Ok(Some(part)) => part,
                Ok(None) => return Ok(Sent::FileUnread(body)),
                Err(error) => return Err(exception_conversion::io_error(&error)),
            };
            body.offset += part.len() as u64;
            body.left -= part.len() as u64;
            let length = part.len();
            Self::send_part(slf, part.into(), body.last && body.left == 0, false)?;
            if body.last && body.left == 0 {
                return Ok(Sent::Taken);
            }
            if this.is_encoding(py) {
                compressed += length;
            }
            if compressed >= COMPRESSED_BYTES_PER_ITERATION {
                return Ok(Sent::FileLater(body));
            }
        }
        Self::send_rest(slf, Bytes::new(), body.last)
    }

    /// Sends a part of an open file without a copy, if the connection can do that now. Returns the number of sent bytes.
    fn send_file_directly(slf: &Bound<'_, Self>, body: &FileBody) -> u64 {
        let (py, this) = (slf.py(), slf.get());
        // The head is sent together with the first part.
        let is_begun = this.state.with(py, |state| {
            state.response.is_begun() && state.response.encoding.is_none()
        });
        let Some(file) = body
            .file
            .as_ref()
            .filter(|_| is_begun && body.reading.is_none())
        else {
            return 0;
        };
        let length = body.left.min(DIRECT_BYTES);
        let sent = this.with_stream(py, |stream| stream.send_file(py, file, body.offset, length));
        sent.unwrap_or(0)
    }

    /// Resets the stream, because the file cannot be sent to its announced length. Without the reset the client would
    /// take the sent part for the whole.
    fn file_was_lost(slf: &Bound<'_, Self>, body: &FileBody, how: &str) -> PyResult<Sent> {
        let (py, this) = (slf.py(), slf.get());
        let name = &body.name;
        let text =
            format!("A file {how} while it was sent, and the response was cancelled: {name}");
        this.service
            .get()
            .report_fault(py, ReportedFault::Application(None), &text);
        this.end(py, Ending::Failed);
        this.wake_all(py)?;
        Ok(Sent::ToNobody)
    }
}

fn number_of_bytes(message: &Bound<'_, PyAny>, key: &Bound<'_, PyString>) -> PyResult<Option<u64>> {
    match optional(message, key)? {
        Some(value) if !value.is_none() => value.extract().map(Some).map_err(|_| {
            PyValueError::new_err(format!("{key}: must be a number of bytes, not {value}"))
        }),
        _ => Ok(None),
    }
}

fn runtime_error(text: &'static str) -> PyErr {
    PyRuntimeError::new_err(text)
}

/// The largest number of bytes of one system call that sends a file, and of all such calls until the loop runs.
const DIRECT_BYTES: u64 = 1 << 20;
const DIRECT_BYTES_PER_ITERATION: u64 = 4 << 20;
/// If the process has no free descriptor, the file is opened again after this many seconds. The interval grows with each
/// attempt.
const RETRY_SECONDS: f64 = 0.05;
/// The longest interval.
const RETRY_SECONDS_MAX: f64 = 1.0;
