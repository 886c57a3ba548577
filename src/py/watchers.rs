//! Readers and writers: the host's side of the engine's watchers.
//!
//! The Python methods are `LoopCore`'s; what calls the callback is in `dispatch`.

use std::os::fd::RawFd;

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use uringcore_engine::Direction;
use uringcore_io::net;

use crate::errands::Errand;
use crate::error;
use crate::hosts::Watcher;
use crate::loop_core::LoopCore;
use crate::sockets;

impl LoopCore {
    pub fn watch(
        slf: &Bound<'_, Self>,
        file: &Bound<'_, PyAny>,
        write: bool,
        callback: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let this = slf.get();
        let fd = file_descriptor(file)?;
        let known = this
            .hosts
            .with(py, |hosts| hosts.watchers.contains_key(&(fd, write)));
        if !known {
            net::check_watchable(fd).map_err(|error| error::io_error(&error))?;
            if !this.runs_elsewhere(py) {
                sockets::forget_closed(slf, fd, usize::MAX)?;
            }
        }
        let handle = Self::make_handle(slf, "add_reader", callback, args, None)?;
        let returned = handle.as_any().clone_ref(py);
        // The engine first: where it fails nothing has changed.
        let serial = if this.runs_elsewhere(py) {
            this.leave_errand(py, Errand::Watch(fd, write));
            0
        } else {
            this.with_engine(py, |engine| engine.watch(fd, direction(write)))?
        };
        let watcher = Watcher {
            serial,
            file: file.clone().unbind(),
            handle,
        };
        let old = this
            .hosts
            .with(py, |hosts| hosts.watchers.insert((fd, write), watcher));
        if let Some(old) = old {
            old.handle.cancel(py)?;
        }
        Ok(returned)
    }

    pub fn unwatch(&self, file: &Bound<'_, PyAny>, write: bool) -> PyResult<bool> {
        let py = file.py();
        if self.flags.with(py, |flags| flags.closed) {
            return Ok(false);
        }
        let fd = match file_descriptor(file) {
            Ok(fd) => fd,
            Err(error) => self.registered_as(file).ok_or(error)?,
        };
        let known = self
            .hosts
            .with(py, |hosts| hosts.watchers.contains_key(&(fd, write)));
        if !known {
            return Ok(false);
        }
        let told = if self.runs_elsewhere(py) {
            self.leave_errand(py, Errand::Watch(fd, write));
            Ok(true)
        } else if self.has_no_engine(py) {
            Ok(true)
        } else {
            self.with_engine(py, |engine| engine.unwatch(fd, direction(write)))?
        };
        let old = self
            .hosts
            .with(py, |hosts| hosts.watchers.remove(&(fd, write)));
        if let Some(old) = old {
            old.handle.cancel(py)?;
        }
        told.map_err(|error| error::io_error(&error))?;
        Ok(true)
    }

    /// The descriptor under which this very object is being watched.
    fn registered_as(&self, file: &Bound<'_, PyAny>) -> Option<RawFd> {
        self.hosts.with(file.py(), |hosts| {
            hosts
                .watchers
                .iter()
                .find(|(_, watcher)| watcher.file.is(file))
                .map(|((fd, _), _)| *fd)
        })
    }
}

/// All watchers, the oldest first: `(descriptor, whether a writer, what was registered, its handle)`.
#[pyfunction]
#[pyo3(name = "_watched")]
fn watched(slf: &Bound<'_, LoopCore>) -> Vec<(RawFd, bool, Py<PyAny>, Py<PyAny>)> {
    let py = slf.py();
    slf.get().hosts.with(py, |hosts| {
        let mut watchers: Vec<_> = hosts.watchers.iter().collect();
        watchers.sort_by_key(|(_, watcher)| watcher.serial);
        let entry = |(&(fd, write), watcher): (&(RawFd, bool), &Watcher)| {
            let handle = watcher.handle.as_any().clone_ref(py);
            (fd, write, watcher.file.clone_ref(py), handle)
        };
        watchers.into_iter().map(entry).collect()
    })
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(watched, m)?)
}

/// An integer descriptor, or what has a `fileno()` (the rules of the `selectors` module).
fn file_descriptor(file: &Bound<'_, PyAny>) -> PyResult<RawFd> {
    let number = descriptor_number(file)?;
    if number < 0 {
        return Err(PyValueError::new_err(format!(
            "Invalid file descriptor: {number}"
        )));
    }
    Ok(number)
}

/// The same without a look at the sign: a closed socket's number is -1.
pub fn descriptor_number(file: &Bound<'_, PyAny>) -> PyResult<RawFd> {
    file.extract::<RawFd>().or_else(|_| {
        file.call_method0(intern!(file.py(), "fileno"))
            .and_then(|number| number.extract::<RawFd>())
            .map_err(|_| invalid_file_object(file))
    })
}

fn invalid_file_object(file: &Bound<'_, PyAny>) -> PyErr {
    match file.repr() {
        Ok(text) => PyValueError::new_err(format!("Invalid file object: {text}")),
        Err(error) => error,
    }
}

/// The engine's word for a reader (false) or a writer (true).
pub fn direction(write: bool) -> Direction {
    if write {
        Direction::Write
    } else {
        Direction::Read
    }
}
