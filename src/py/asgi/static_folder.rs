//! Files of a folder that a server publishes: `StaticFolder` opens them by name, and `StaticFile` is one of them.
//!
//! `http.response.pathsend` accepts a [`StaticFile`] as its path (`file_response`). Not here: the meaning of a request,
//! which `uringcore.server.StaticFiles` decides.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use uringcore_io::{FileStamp, FileVersion, SentFile, ServedFolder};

use crate::capi::exception_conversion;

/// A folder whose files are opened by names that cannot leave it. Any thread may use it.
///
/// Raises `OSError` if there is no such folder.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct StaticFolder {
    path: PathBuf,
    current: Mutex<Current>,
}

struct Current {
    folder: Arc<ServedFolder>,
    checked_at: Instant,
}

#[pymethods]
impl StaticFolder {
    #[new]
    fn new(path: PathBuf) -> PyResult<Self> {
        let folder =
            ServedFolder::open(&path).map_err(|error| exception_conversion::io_error(&error))?;
        let current = Current {
            folder: Arc::new(folder),
            checked_at: Instant::now(),
        };
        Ok(Self {
            path,
            current: Mutex::new(current),
        })
    }

    /// Opens a file by its name below the folder. Returns `None` if there is none that the server may publish.
    ///
    /// Raises `IsADirectoryError` for a folder. Without `may_wait`, raises `BlockingIOError` if the call would have to
    /// wait for a disk.
    #[pyo3(signature = (name, *, may_wait))]
    fn open(&self, py: Python<'_>, name: &[u8], may_wait: bool) -> PyResult<Option<StaticFile>> {
        let opened = match may_wait {
            true => py.detach(|| self.open_file(name, true)),
            false => self.open_file(name, false),
        };
        match opened {
            Ok(file) => Ok(Some(file)),
            Err(error) if is_nothing_to_publish(&error) => Ok(None),
            Err(error) => Err(exception_conversion::io_error(&error)),
        }
    }
}

impl StaticFolder {
    fn open_file(&self, name: &[u8], may_wait: bool) -> io::Result<StaticFile> {
        let folder = self.folder();
        let file = folder.open_file(name, may_wait)?;
        Ok(StaticFile {
            version: file.version()?,
            name: name.into(),
            folder,
            file: Mutex::new(Some(file)),
        })
    }

    /// Opens a file without waiting, and returns it with its attributes.
    pub fn open_stamped(&self, name: &[u8]) -> io::Result<(SentFile, FileStamp)> {
        let file = self.folder().open_file(name, false)?;
        let stamp = file.stamp()?;
        Ok((file, stamp))
    }

    /// Returns the attributes of what the name leads to now.
    pub fn stamp(&self, name: &[u8]) -> io::Result<FileStamp> {
        self.folder().stamp(name)
    }

    /// Returns the folder. A deployment may put another folder at the path, so the path is looked up again once a
    /// second. While it names nothing, the former folder is served.
    fn folder(&self) -> Arc<ServedFolder> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if now.saturating_duration_since(current.checked_at) >= CHECK_INTERVAL {
            current.checked_at = now;
            if !current.folder.is_at(&self.path)
                && let Ok(folder) = ServedFolder::open(&self.path)
            {
                current.folder = Arc::new(folder);
            }
        }
        current.folder.clone()
    }
}

/// A file of a [`StaticFolder`]. It is open until it is sent or closed, and opened again when it is needed later.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct StaticFile {
    folder: Arc<ServedFolder>,
    name: Box<[u8]>,
    version: FileVersion,
    file: Mutex<Option<SentFile>>,
}

#[pymethods]
impl StaticFile {
    /// The number of bytes.
    #[getter]
    pub fn size(&self) -> u64 {
        self.version.size
    }

    /// The time of the last change, in nanoseconds since 1970.
    #[getter]
    fn modified_ns(&self) -> i64 {
        self.version.modified_ns
    }

    /// Reads up to `length` bytes, and 1 MiB at most. Blocks. Raises `OSError` if the file has changed.
    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let length = length.min(READ_BYTES_MAX);
        let read = py.detach(|| self.open()?.read(length, offset));
        let bytes = read.map_err(|error| exception_conversion::io_error(&error))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Closes the file until it is needed again.
    pub fn close(&self) {
        drop(self.take());
    }
}

impl StaticFile {
    /// Returns the open file, or opens it again.
    ///
    /// # Errors
    ///
    /// `ESTALE` if the name has another file or content now; otherwise those of `ServedFolder::open_file`.
    pub fn open(&self) -> io::Result<SentFile> {
        if let Some(file) = self.take() {
            return Ok(file);
        }
        let file = self.folder.open_file(&self.name, true)?;
        match file.version()? == self.version {
            true => Ok(file),
            false => Err(io::Error::from_raw_os_error(libc::ESTALE)),
        }
    }

    pub fn name_bytes(&self) -> &[u8] {
        &self.name
    }

    /// True if `stamp` has the size and the modification time of this version of the file.
    pub fn is_version_of(&self, stamp: &FileStamp) -> bool {
        (self.version.size, self.version.modified_ns) == (stamp.size, stamp.modified_ns)
    }

    pub fn name(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    fn take(&self) -> Option<SentFile> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.take()
    }
}

/// True for names without a file, invalid names, files of other kinds, and files that the process may not read.
/// Clients get the same answer for all of them.
fn is_nothing_to_publish(error: &io::Error) -> bool {
    match error.raw_os_error() {
        // The name has a zero byte.
        None => error.kind() == io::ErrorKind::InvalidInput,
        Some(errno) => matches!(
            errno,
            libc::ENOENT
                | libc::ENOTDIR
                | libc::ELOOP
                | libc::EXDEV
                | libc::EINVAL
                | libc::ENXIO
                | libc::ENODEV
                | libc::ENAMETOOLONG
                | libc::EACCES
                | libc::EPERM
        ),
    }
}

const READ_BYTES_MAX: usize = 1 << 20;

/// The interval between two checks of the folder's path.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
