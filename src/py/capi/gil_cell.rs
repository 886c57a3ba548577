//! [`GilCell`]: the mutable state of a Python object.
//!
//! Access is through closures, so that each borrow ends before Python code can run. Objects whose finalisers may run
//! Python code are dropped outside of the closure. With an interpreter lock the cell is a `RefCell`, in a
//! free-threaded build a mutex.

use pyo3::Python;

/// State of a Python object, accessible to one thread at a time.
///
/// **Invariant.** The value is never borrowed across a call into Python: `with` takes a closure, which must not call
/// Python. A value whose drop may run Python code (a last reference to an object) is moved out of the closure and
/// dropped after it.
///
/// With the interpreter lock a `RefCell` is sufficient, and a second borrow is a panic, which tests find. In a
/// free-threaded interpreter the cell is a mutex. Because of the invariant a thread holds it only briefly and waits
/// for nothing else meanwhile, so threads cannot deadlock.
pub struct GilCell<T>(Inner<T>);

#[cfg(not(Py_GIL_DISABLED))]
type Inner<T> = std::cell::RefCell<T>;
#[cfg(Py_GIL_DISABLED)]
type Inner<T> = std::sync::Mutex<T>;

// SAFETY: if the cell goes to another thread, the value goes with it, which `T: Send` permits.
unsafe impl<T: Send> Send for GilCell<T> {}
// SAFETY: only one thread at a time has access to the value, and `T: Send` permits that this is any thread. `with`
// needs a `Python` token, which stands for the interpreter lock; without such a lock the mutex excludes other
// threads. `traverse` only reads, while the collector has the lock or has stopped all other threads.
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

    /// A panic inside another closure does not poison the value. As with a `RefCell`, the value stays as the panic left
    /// it.
    #[cfg(Py_GIL_DISABLED)]
    pub fn with<R>(&self, _py: Python<'_>, run: impl FnOnce(&mut T) -> R) -> R {
        run(&mut self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Returns the value to the exclusive owner of the cell, who needs no token for it.
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

    /// Access for `__traverse__`, which has no token and must not run Python code. Returns `None` if the value is
    /// borrowed. Nothing is visited then, so the garbage collector takes the referenced objects for alive.
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

// No class of this crate uses PyO3's `dict` option. CPython 3.11 allocates that dictionary inside `object.__new__`,
// before PyO3 has written the Rust fields. The allocation may start a garbage collection, which would traverse the
// zeroed object. The dictionaries of Python subclasses do not have this fault; the loop and the transports
// (`class_with_dict`) use them.
//
// No class uses PyO3's `freelist` option either. A reused object goes through `PyObject_Init`, which does not track
// it, so the collector would never find a cycle that contains it.
