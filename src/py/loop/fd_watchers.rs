//! `add_reader`, `add_writer` and their removal: the Python objects of the engine's watchers.
//!
//! The Python methods are in `loop_core`. `event_dispatch` calls the callbacks.

use std::os::fd::RawFd;

use pyo3::exceptions::{PyAttributeError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple};
use uringcore_engine::Direction;
use uringcore_io::net;

use crate::capi::exception_conversion;
use crate::event_loop::cross_thread_commands::CrossThreadCommand;
use crate::event_loop::engine_key_objects::Watcher;
use crate::event_loop::loop_core::LoopCore;
use crate::sock::operation_queues;

impl LoopCore {
    pub fn watch(
        slf: &Bound<'_, Self>,
        file: &Bound<'_, PyAny>,
        write: bool,
        callback: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        context: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let this = slf.get();
        let fd = descriptor(file)?;
        let known = this
            .objects
            .with(py, |objects| objects.watchers.contains_key(&(fd, write)));
        if !known {
            net::check_watchable(fd).map_err(|error| exception_conversion::io_error(&error))?;
            if !this.runs_elsewhere(py) {
                operation_queues::forget_closed(slf, fd, usize::MAX)?;
            }
        }
        let handle = Self::make_watcher_handle(slf, callback, args, context)?;
        let returned = handle.as_any().clone_ref(py);
        // The engine registers first. If that fails, no Python object was changed.
        let serial = if this.runs_elsewhere(py) {
            this.queue_command(py, CrossThreadCommand::Watch(fd, write));
            0
        } else {
            this.with_engine(py, |engine| engine.watchers().add(fd, direction(write)))?
        };
        let watcher = Watcher {
            serial,
            file: file.clone().unbind(),
            handle,
        };
        let old = this
            .objects
            .with(py, |objects| objects.watchers.insert((fd, write), watcher));
        if let Some(old) = old {
            old.handle.cancel(py)?;
        }
        Ok(returned)
    }

    pub fn unwatch(&self, file: &Bound<'_, PyAny>, write: bool) -> PyResult<bool> {
        let py = file.py();
        if self.is_closed() {
            return Ok(false);
        }
        let fd = match descriptor(file).map_err(|error| exception_conversion::made(py, error)) {
            Ok(fd) => fd,
            // A closed socket has no number. Its registration is found by the object.
            Err(error) if error.is_instance_of::<PyValueError>(py) => {
                self.registered_as(file).ok_or(error)?
            }
            // The number is too large for a file descriptor, so no watcher can exist for it.
            Err(error) if error.is_instance_of::<PyOverflowError>(py) => return Ok(false),
            Err(error) => return Err(error),
        };
        let known = self
            .objects
            .with(py, |objects| objects.watchers.contains_key(&(fd, write)));
        if !known {
            return Ok(false);
        }
        let reported = if self.runs_elsewhere(py) {
            self.queue_command(py, CrossThreadCommand::Watch(fd, write));
            Ok(true)
        } else if self.has_no_engine(py) {
            Ok(true)
        } else {
            self.with_engine(py, |engine| engine.watchers().remove(fd, direction(write)))?
        };
        let old = self
            .objects
            .with(py, |objects| objects.watchers.remove(&(fd, write)));
        if let Some(old) = old {
            old.handle.cancel(py)?;
        }
        reported.map_err(|error| exception_conversion::io_error(&error))?;
        Ok(true)
    }

    /// The descriptor for which the object `file` was registered.
    fn registered_as(&self, file: &Bound<'_, PyAny>) -> Option<RawFd> {
        self.objects.with(file.py(), |objects| {
            objects
                .watchers
                .iter()
                .find(|(_, watcher)| watcher.file.is(file))
                .map(|((fd, _), _)| *fd)
        })
    }
}

/// Lists all watchers in the order of their registration: `(descriptor, is_writer, registered object, handle)`.
#[pyfunction]
#[pyo3(name = "_watched")]
fn watched(slf: &Bound<'_, LoopCore>) -> Vec<(RawFd, bool, Py<PyAny>, Py<PyAny>)> {
    let py = slf.py();
    slf.get().objects.with(py, |objects| {
        let mut watchers: Vec<_> = objects.watchers.iter().collect();
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

/// Returns the descriptor of `file` by the rules of the `selectors` module: an int of 0 or more, or the result of
/// `fileno()`.
fn descriptor(file: &Bound<'_, PyAny>) -> PyResult<RawFd> {
    let number = descriptor_number(file)?;
    match number.extract::<RawFd>() {
        Ok(fd) if fd >= 0 => Ok(fd),
        Err(_) if number.gt(0)? => Err(PyOverflowError::new_err(
            "Python int too large to convert to C int",
        )),
        _ => Err(PyValueError::new_err(format!(
            "Invalid file descriptor: {}",
            number.str()?
        ))),
    }
}

/// Returns the number of `file` by the rules of `selectors`, without a check of its range: `file` itself if it is an
/// int, else the int that `fileno()` returns. A closed socket has the number -1. Errors that mean that `file` is no
/// file object become one ValueError; other errors are returned unchanged.
pub fn descriptor_number<'py>(file: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if file.is_instance_of::<PyInt>() {
        Ok(file.clone())
    } else {
        fileno(file).map_err(|error| no_file_object(file, error))
    }
}

fn fileno<'py>(file: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = file.py();
    let number = file.call_method0(intern!(py, "fileno"))?;
    if number.is_exact_instance_of::<PyInt>() {
        return Ok(number);
    }
    py.get_type::<PyInt>().call1((number,))
}

fn no_file_object(file: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = file.py();
    let means_that = error.is_instance_of::<PyAttributeError>(py)
        || error.is_instance_of::<PyTypeError>(py)
        || error.is_instance_of::<PyValueError>(py);
    if !means_that {
        return error;
    }
    match file.repr() {
        Ok(text) => PyValueError::new_err(format!("Invalid file object: {text}")),
        Err(error) => error,
    }
}

/// The direction of a registration: `write` is true for a writer, false for a reader.
pub fn direction(write: bool) -> Direction {
    if write {
        Direction::Write
    } else {
        Direction::Read
    }
}
