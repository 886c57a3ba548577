//! Files that grow record by record, written by a thread in the background.
//!
//! - `folder`: the names of the files, their total size, and the removal of old ones.
//! - `writer_thread`: the thread that writes.
//!
//! An append copies a record into the file's buffer and returns; it never waits for a disk. The buffer of a file, all
//! buffers together, a file, all files of the folder together, and the number of open files are bounded. A record
//! without room is rejected, and the caller counts it. Not here: the format of records.
//!
//! A forked child has its own thread and its own files.

mod folder;
mod writer_thread;

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::fork_detection::OwnerProcess;
use crate::per_process_global::PerProcess;
use crate::process_spawn::SignalMask;
use folder::Folder;
use writer_thread::Writer;

/// The bounds of the files of a folder.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The maximum size of one file in bytes.
    pub file_bytes: u64,
    /// The maximum size of all files in the folder in bytes, including those of other processes and of earlier runs. If
    /// it is reached, the oldest files that no process is writing are removed.
    pub total_bytes: u64,
    /// The maximum number of files in the folder, including those of other processes and of earlier runs.
    pub files: usize,
    /// The maximum number of files that this process has open at a time.
    pub open: usize,
}

/// The result of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Append {
    Taken,
    /// The buffers are full until the thread has written them. The record was rejected.
    NoRoom,
    /// The file or the folder has reached its maximum size. Only [`BackgroundFile::finish`] still adds to the file.
    Full,
    /// The file could not be written.
    Failed,
}

/// Files in one folder, with unpredictable names.
#[derive(Debug)]
pub struct BackgroundFiles {
    folder: PathBuf,
    suffix: &'static str,
    limits: Limits,
    /// The state shared with the writing thread. `None` before the first file. A forked child makes a new one, because
    /// the thread of its parent does not run in it.
    shared: PerProcess<Mutex<Option<Arc<Shared>>>>,
}

impl BackgroundFiles {
    pub fn new(folder: PathBuf, suffix: &'static str, limits: Limits) -> Self {
        Self {
            folder,
            suffix,
            limits,
            shared: PerProcess::new(),
        }
    }

    /// Begins a file. The thread creates it on disk when it has a record. `None` if the limit of open files is reached.
    ///
    /// Fails if the thread cannot be started.
    pub fn begin(&self) -> io::Result<Option<BackgroundFile>> {
        let shared = self.started()?;
        let mut state = shared.state();
        if state.open >= self.limits.open {
            return Ok(None);
        }
        state.open += 1;
        drop(state);
        let file = Arc::new(File::default());
        Ok(Some(BackgroundFile { shared, file }))
    }

    /// Waits until the kernel has all records that were appended before this call. False if `timeout` passed first.
    pub fn flush(&self, timeout: Duration) -> bool {
        let shared = lock(self.shared.get()).clone();
        shared.is_none_or(|shared| shared.flush(timeout))
    }

    /// Returns the latest error of a write, and clears it.
    pub fn take_error(&self) -> Option<io::Error> {
        let shared = lock(self.shared.get()).clone()?;
        shared.state().error.take()
    }

    fn started(&self) -> io::Result<Arc<Shared>> {
        let mut slot = lock(self.shared.get());
        if let Some(shared) = slot.as_ref() {
            return Ok(shared.clone());
        }
        let shared = Arc::new(Shared {
            owner_process: OwnerProcess::current()?,
            file_bytes: self
                .limits
                .file_bytes
                .saturating_sub(LAST_RECORD_MAX as u64),
            state: Mutex::default(),
            wake: Condvar::new(),
            written: Condvar::new(),
            pending: AtomicUsize::new(0),
        });
        let folder = Folder::new(self.folder.clone(), self.suffix, self.limits);
        let writer = Writer::new(shared.clone(), folder);
        // The thread inherits this mask. Signals must arrive at threads that run Python.
        let before = SignalMask::block_all();
        let started = thread::Builder::new()
            .name("uringcore-files".into())
            .spawn(move || writer.run());
        before.restore();
        started?;
        *slot = Some(shared.clone());
        Ok(shared)
    }
}

impl Drop for BackgroundFiles {
    fn drop(&mut self) {
        if let Some(shared) = lock(self.shared.get()).take() {
            shared.state().is_closed = true;
            shared.wake.notify_one();
        }
    }
}

/// A file to append records to. Dropping it ends the file.
#[derive(Debug)]
pub struct BackgroundFile {
    shared: Arc<Shared>,
    file: Arc<File>,
}

impl BackgroundFile {
    /// Appends a record, either the whole record or nothing of it.
    pub fn append(&self, record: &[u8]) -> Append {
        let shared = &self.shared;
        if !shared.owner_process.is_current() {
            return Append::Failed;
        }
        let mut buffer = self.file.buffer();
        match buffer.phase {
            FilePhase::Open => {}
            FilePhase::Full => return Append::Full,
            FilePhase::Finished | FilePhase::Failed => return Append::Failed,
        }
        if buffer.accepted + record.len() as u64 > shared.file_bytes {
            return Append::Full;
        }
        let is_full = buffer.bytes.len() + record.len() > BUFFER_MAX;
        if is_full || shared.pending.load(Ordering::Relaxed) + record.len() > BUFFERS_MAX {
            return Append::NoRoom;
        }
        self.add(&mut buffer, record);
        Append::Taken
    }

    /// Appends a last record of at most [`LAST_RECORD_MAX`] bytes, even if the file is full, and ends the file.
    pub fn finish(self, last: &[u8]) {
        if self.shared.owner_process.is_current() {
            let mut buffer = self.file.buffer();
            let is_open = matches!(buffer.phase, FilePhase::Open | FilePhase::Full);
            if is_open && last.len() <= LAST_RECORD_MAX {
                self.add(&mut buffer, last);
            }
        }
    }

    fn add(&self, buffer: &mut Buffer, record: &[u8]) {
        buffer.bytes.extend_from_slice(record);
        buffer.accepted += record.len() as u64;
        let pending = self
            .shared
            .pending
            .fetch_add(record.len(), Ordering::Relaxed);
        let is_urgent = buffer.bytes.len() > BUFFER_MAX / 4 || pending > BUFFERS_MAX / 4;
        self.announce(buffer, is_urgent);
    }

    /// Adds the file to the list of files that the thread writes next.
    fn announce(&self, buffer: &mut Buffer, is_urgent: bool) {
        if !std::mem::replace(&mut buffer.is_listed, true) {
            self.shared
                .list(self.file.clone(), is_urgent, &mut buffer.was_urgent);
        } else if is_urgent && !std::mem::replace(&mut buffer.was_urgent, true) {
            self.shared.hurry();
        }
    }
}

impl Drop for BackgroundFile {
    fn drop(&mut self) {
        if self.shared.owner_process.is_current() {
            let mut buffer = self.file.buffer();
            if buffer.phase != FilePhase::Failed {
                buffer.phase = FilePhase::Finished;
            }
            buffer.is_over = true;
            self.announce(&mut buffer, false);
        }
    }
}

/// The state that files and the thread share. If code holds both locks, it has taken the lock of the buffer first, then
/// that of the state.
#[derive(Debug)]
struct Shared {
    owner_process: OwnerProcess,
    /// The maximum size of a file, less the space for its last record.
    file_bytes: u64,
    state: Mutex<QueueState>,
    /// Wakes the thread.
    wake: Condvar,
    /// Wakes calls of `flush`.
    written: Condvar,
    /// Bytes in all buffers that are not written.
    pending: AtomicUsize,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Files that the thread writes or closes next.
    listed: Vec<Arc<File>>,
    /// Files that were begun and not closed.
    open: usize,
    /// The thread writes at once, without collecting more records.
    is_urgent: bool,
    is_writing: bool,
    /// True after the [`BackgroundFiles`] was dropped. The thread then ends when the last open file ends.
    is_closed: bool,
    /// The number of times that the thread has processed the list.
    rounds: u64,
    error: Option<io::Error>,
}

#[derive(Debug, Default)]
struct File {
    buffer: Mutex<Buffer>,
}

#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    /// Bytes that were appended since the beginning of the file.
    accepted: u64,
    phase: FilePhase,
    /// The thread's list contains the file.
    is_listed: bool,
    /// True if the file has asked the thread to write soon, since the last write.
    was_urgent: bool,
    /// The [`BackgroundFile`] was dropped.
    is_over: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum FilePhase {
    #[default]
    Open,
    /// The folder is full.
    Full,
    Finished,
    Failed,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        lock(&self.state)
    }

    fn list(&self, file: Arc<File>, is_urgent: bool, was_urgent: &mut bool) {
        let mut state = self.state();
        // Only the first record in the list wakes the thread, because the woken thread collects records for a while.
        let is_first = state.listed.is_empty();
        state.listed.push(file);
        state.is_urgent |= is_urgent;
        *was_urgent = is_urgent;
        if is_first || is_urgent {
            self.wake.notify_one();
        }
    }

    fn hurry(&self) {
        self.state().is_urgent = true;
        self.wake.notify_one();
    }

    fn flush(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.state();
        // The thread may have taken a file's buffer before the last record was appended to it. The round after the
        // current one contains that record.
        let wanted = state.rounds + 2;
        while (state.is_writing || !state.listed.is_empty()) && state.rounds < wanted {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state.is_urgent = true;
            self.wake.notify_one();
            (state, _) = self
                .written
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
        true
    }
}

impl File {
    fn buffer(&self) -> MutexGuard<'_, Buffer> {
        lock(&self.buffer)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The maximum bytes in the buffer of one file. From a quarter of it on the thread writes at once.
const BUFFER_MAX: usize = 256 << 10;
/// The maximum bytes in the buffers of all files together. From a quarter of it on the thread writes at once.
const BUFFERS_MAX: usize = 2 << 20;
/// The maximum size of the record of [`BackgroundFile::finish`], for which each file reserves space.
pub const LAST_RECORD_MAX: usize = 1 << 10;
