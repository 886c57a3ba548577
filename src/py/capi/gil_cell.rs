//! State that a Python object owns.
//!
//! The closure interface ends each borrow before Python code can run; objects whose finalisers may run are dropped
//! outside. With an interpreter lock the cell is a `RefCell`; in a free-threaded build it is a mutex, and only the
//! thread that runs a loop reaches its engine.

use pyo3::Python;

/// State that a Python class may hold, open to one thread at a time.
///
/// **Invariant.** The value is never borrowed across a call into Python: `with` takes a closure so that borrows end
/// before one. Anything whose drop may run Python code (a last reference) has to be moved out of the closure and
/// dropped there.
///
/// With the interpreter lock a `RefCell` is enough, and a second borrow is a panic that tests find. In a
/// free-threaded interpreter the cell is a mutex. Because of the invariant it is held only briefly, by a thread that
/// does not wait, and no two of them are ever waited for in a circle.
pub struct GilCell<T>(Inner<T>);

#[cfg(not(Py_GIL_DISABLED))]
type Inner<T> = std::cell::RefCell<T>;
#[cfg(Py_GIL_DISABLED)]
type Inner<T> = std::sync::Mutex<T>;

// SAFETY: the value may go to another thread (`T: Send`), and with the cell it does.
unsafe impl<T: Send> Send for GilCell<T> {}
// SAFETY: one thread at a time reaches the value, and any thread may be that one (`T: Send`): `with` needs a
// `Python` token, which is the interpreter lock if there is one; without it the mutex does the same. `traverse` only
// reads, while the collector has the lock or has stopped all other threads.
unsafe impl<T: Send> Sync for GilCell<T> {}

impl<T> GilCell<T> {
    pub fn new(value: T) -> Self {
        Self(Inner::new(value))
    }

    #[cfg(not(Py_GIL_DISABLED))]
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }

    #[cfg(Py_GIL_DISABLED)]
    pub fn into_inner(self) -> T {
        self.0
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    #[cfg(not(Py_GIL_DISABLED))]
    #[inline]
    pub fn with<R>(&self, _py: Python<'_>, run: impl FnOnce(&mut T) -> R) -> R {
        run(&mut self.0.borrow_mut())
    }

    /// A panic in another closure leaves the value as it was at that moment, as with a `RefCell`.
    #[cfg(Py_GIL_DISABLED)]
    pub fn with<R>(&self, _py: Python<'_>, run: impl FnOnce(&mut T) -> R) -> R {
        run(&mut self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Access for a caller that owns the cell exclusively and needs no token.
    #[cfg(not(Py_GIL_DISABLED))]
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    #[cfg(Py_GIL_DISABLED)]
    pub fn get_mut(&mut self) -> &mut T {
        self.0
            .get_mut()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Access for `__traverse__`, which has no token and must not run Python code. `None` if the value is
    /// borrowed, which the collector treats as "still alive".
    #[cfg(not(Py_GIL_DISABLED))]
    pub fn traverse<R>(&self, run: impl FnOnce(&T) -> R) -> Option<R> {
        self.0.try_borrow().ok().map(|value| run(&value))
    }

    #[cfg(Py_GIL_DISABLED)]
    pub fn traverse<R>(&self, run: impl FnOnce(&T) -> R) -> Option<R> {
        use std::sync::TryLockError;
        match self.0.try_lock() {
            Ok(value) => Some(run(&value)),
            Err(TryLockError::Poisoned(value)) => Some(run(&value.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl<T: Default> GilCell<T> {
    pub fn take(&self, py: Python<'_>) -> T {
        self.with(py, std::mem::take)
    }
}

// No class here uses PyO3's `dict`, because CPython 3.11 allocates that dictionary inside `object.__new__`, before
// PyO3 has written the Rust fields. The allocation may start a collection, which traverses the object while it is
// still zeroed. Python subclasses have their own dictionary, without that fault: the loop's and, by `open_class`,
// the transports'.
//
// No class uses PyO3's `freelist` either: an object that is reused from it goes through `PyObject_Init`, which does
// not track it, and the collector never sees a cycle that it is part of.
