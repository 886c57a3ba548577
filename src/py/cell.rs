//! State that a Python object owns.

use std::cell::RefCell;

use pyo3::Python;

/// A `RefCell` that a Python class may hold.
///
/// **Invariant.** The value is touched only by a thread that holds the interpreter lock, and never
/// across a call into Python: `with` takes a closure so that borrows end before one. Anything whose
/// drop may run Python code (a last reference) has to be moved out of the closure and dropped there.
pub struct GilCell<T>(RefCell<T>);

// SAFETY: every access needs a `Python` token, i.e. the interpreter lock (the module declares
// `gil_used = true`), and an object is dropped with the lock held, so accesses from several threads
// are serialised and ordered by that lock; none of the values relies on thread-local state.
unsafe impl<T> Send for GilCell<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for GilCell<T> {}

impl<T> GilCell<T> {
    pub fn new(value: T) -> Self {
        Self(RefCell::new(value))
    }

    #[inline]
    pub fn with<R>(&self, _py: Python<'_>, run: impl FnOnce(&mut T) -> R) -> R {
        run(&mut self.0.borrow_mut())
    }

    /// For `__traverse__`, which has no token and must not run Python code: `None` when the value is
    /// borrowed, which the collector treats as "still alive".
    pub fn traverse<R>(&self, run: impl FnOnce(&T) -> R) -> Option<R> {
        self.0.try_borrow().ok().map(|value| run(&value))
    }
}

impl<T: Default> GilCell<T> {
    pub fn take(&self, py: Python<'_>) -> T {
        self.with(py, std::mem::take)
    }
}

// Why no class here has PyO3's `dict`: CPython 3.11 allocates that dictionary inside `object.__new__`,
// before PyO3 has written the Rust fields. The allocation may start a collection, which traverses the
// object while it is still zeroed. Python subclasses have a dictionary of their own, without that.
