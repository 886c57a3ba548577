//! The thread that writes background files.
//!
//! The thread sleeps until a file has data, collects records for [`COLLECTING_TIME`], and then writes all files with
//! data. Collecting saves system calls: one write takes all records of a file. If a file cannot be written, the
//! thread gives up that file, and the next append to it returns `Failed`.

use std::{
    collections::HashMap,
    fs, io,
    io::Write,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use super::folder::Folder;
use super::{File, FilePhase, QueueState, Shared};

pub(super) struct Writer {
    shared: Arc<Shared>,
    folder: Folder,
    /// The created files. The key is the address of the [`File`] that each of them writes.
    open: HashMap<usize, Output>,
}

/// A created file.
struct Output {
    file: fs::File,
    name: String,
    /// Keeps the [`File`] alive. Its address is the key, so no other file may get that address.
    _shared: Arc<File>,
}

impl Writer {
    pub fn new(shared: Arc<Shared>, folder: Folder) -> Self {
        Self {
            shared,
            folder,
            open: HashMap::new(),
        }
    }

    /// Runs until the [`BackgroundFiles`](super::BackgroundFiles) and all of its files are dropped.
    pub fn run(mut self) {
        while let Some(listed) = self.next() {
            for file in listed {
                self.drain(&file);
            }
            let mut state = self.shared.state();
            state.is_writing = false;
            state.rounds += 1;
            drop(state);
            self.shared.written.notify_all();
        }
    }

    fn next(&self) -> Option<Vec<Arc<File>>> {
        let shared = &self.shared;
        let is_idle = |state: &mut QueueState| {
            state.listed.is_empty() && !(state.is_closed && state.open == 0)
        };
        let state = shared.state();
        let state = shared
            .wake
            .wait_while(state, is_idle)
            .unwrap_or_else(PoisonError::into_inner);
        if state.listed.is_empty() {
            return None;
        }
        let (mut state, _) = shared
            .wake
            .wait_timeout_while(state, COLLECTING_TIME, |state| !state.is_urgent)
            .unwrap_or_else(PoisonError::into_inner);
        state.is_urgent = false;
        state.is_writing = true;
        Some(std::mem::take(&mut state.listed))
    }

    fn drain(&mut self, file: &Arc<File>) {
        let mut buffer = file.buffer();
        let bytes = std::mem::take(&mut buffer.bytes);
        (buffer.is_listed, buffer.was_urgent) = (false, false);
        let (is_over, is_failed) = (buffer.is_over, buffer.phase == FilePhase::Failed);
        drop(buffer);
        if !bytes.is_empty() && !is_failed {
            match self.write(file, &bytes) {
                Ok(true) => {}
                Ok(false) => file.buffer().become_if_open(FilePhase::Full),
                Err(error) => {
                    file.buffer().phase = FilePhase::Failed;
                    self.shared.state().error = Some(error);
                }
            }
        }
        self.shared
            .pending
            .fetch_sub(bytes.len(), Ordering::Relaxed);
        if is_over {
            self.open.remove(&key(file));
            self.shared.state().open -= 1;
        }
    }

    /// Writes bytes to a file, which it creates first if necessary. False if the folder is full afterwards.
    fn write(&mut self, file: &Arc<File>, bytes: &[u8]) -> io::Result<bool> {
        let key = key(file);
        if !self.open.contains_key(&key) {
            let names = self.open.values().map(|output| output.name.as_str());
            let (name, created) = self.folder.create(names)?;
            let output = Output {
                file: created,
                name,
                _shared: file.clone(),
            };
            self.open.insert(key, output);
        }
        if let Some(output) = self.open.get_mut(&key) {
            output.file.write_all(bytes)?;
        }
        let names = self.open.values().map(|output| output.name.as_str());
        Ok(self.folder.has_grown(bytes.len() as u64, names))
    }
}

impl super::Buffer {
    fn become_if_open(&mut self, phase: FilePhase) {
        if self.phase == FilePhase::Open {
            self.phase = phase;
        }
    }
}

fn key(file: &Arc<File>) -> usize {
    Arc::as_ptr(file) as usize
}

/// The time for which records are collected before they are written.
const COLLECTING_TIME: Duration = Duration::from_millis(50);
