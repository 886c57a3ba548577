//! [`AnyHandle`]: a handle in the loop's lists, of this package or of asyncio.

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit, intern};

use super::{Handle, TimerHandle};

pub enum AnyHandle {
    Ours(Py<Handle>),
    Timer(Py<TimerHandle>),
    /// A handle of asyncio, which the loop uses in debug mode, or one that a program has made.
    Foreign(Py<PyAny>),
}

impl AnyHandle {
    pub fn is_cancelled(&self, py: Python<'_>) -> bool {
        match self {
            Self::Ours(handle) => handle.get().is_cancelled(py),
            Self::Timer(handle) => handle.bind(py).as_super().get().is_cancelled(py),
            // Reads the attribute, because the method `cancelled()` would run Python code.
            Self::Foreign(handle) => handle
                .bind(py)
                .getattr(intern!(py, "_cancelled"))
                .and_then(|cancelled| cancelled.is_truthy())
                .unwrap_or(false),
        }
    }

    /// Records that the handle has left the loop's timers. For a handle of asyncio this sets an attribute, which may
    /// run Python code.
    pub fn has_left_timers(&self, py: Python<'_>) {
        match self {
            Self::Ours(_) => {}
            Self::Timer(handle) => handle.get().has_left(py),
            Self::Foreign(handle) => {
                let handle = handle.bind(py);
                if let Err(error) = handle.setattr(intern!(py, "_scheduled"), false) {
                    error.write_unraisable(py, Some(handle));
                }
            }
        }
    }

    pub fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Ours(handle) => Self::Ours(handle.clone_ref(py)),
            Self::Timer(handle) => Self::Timer(handle.clone_ref(py)),
            Self::Foreign(handle) => Self::Foreign(handle.clone_ref(py)),
        }
    }

    /// Drops the reference. `py` proves that this thread is attached, so PyO3 need not check it.
    pub fn drop_ref(self, py: Python<'_>) {
        match self {
            Self::Ours(handle) => handle.drop_ref(py),
            Self::Timer(handle) => handle.drop_ref(py),
            Self::Foreign(handle) => handle.drop_ref(py),
        }
    }

    pub fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        match self {
            Self::Ours(handle) => handle.get().cancel_now(py),
            Self::Timer(handle) => TimerHandle::cancel_now(handle.bind(py)),
            Self::Foreign(handle) => {
                handle.bind(py).call_method0(intern!(py, "cancel"))?;
            }
        }
        Ok(())
    }

    pub fn as_any(&self) -> &Py<PyAny> {
        match self {
            Self::Ours(handle) => handle.as_any(),
            Self::Timer(handle) => handle.as_any(),
            Self::Foreign(handle) => handle,
        }
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Ours(handle) => visit.call(handle),
            Self::Timer(handle) => visit.call(handle),
            Self::Foreign(handle) => visit.call(handle),
        }
    }
}
