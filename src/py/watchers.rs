//! Readers and writers: the host's side of the engine's watchers.
//!
//! The Python methods are `LoopCore`'s; what calls the callback is in `dispatch`.

use std::os::fd::RawFd;

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
        fd: RawFd,
        write: bool,
        callback: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let this = slf.get();
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
        let watcher = Watcher { serial, handle };
        let old = this
            .hosts
            .with(py, |hosts| hosts.watchers.insert((fd, write), watcher));
        if let Some(old) = old {
            old.handle.cancel(py)?;
        }
        Ok(returned)
    }

    pub fn unwatch(&self, py: Python<'_>, fd: RawFd, write: bool) -> PyResult<bool> {
        if self.flags.with(py, |flags| flags.closed) {
            return Ok(false);
        }
        let known = self
            .hosts
            .with(py, |hosts| hosts.watchers.contains_key(&(fd, write)));
        if !known {
            return Ok(false);
        }
        if self.runs_elsewhere(py) {
            self.leave_errand(py, Errand::Watch(fd, write));
        } else {
            self.with_engine(py, |engine| engine.unwatch(fd, direction(write)))?;
        }
        let old = self
            .hosts
            .with(py, |hosts| hosts.watchers.remove(&(fd, write)));
        if let Some(old) = old {
            old.handle.cancel(py)?;
        }
        Ok(true)
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
