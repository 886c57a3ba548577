//! The version number of a class. The number changes with each change of the class or its bases. So comparing two
//! numbers replaces looking up attributes.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// The current version of the class. 0 if the interpreter has not assigned one.
pub fn of(class: &Bound<'_, PyType>) -> u32 {
    // SAFETY: the reference `class` keeps the class alive.
    unsafe { read(class.as_type_ptr()) }
}

/// The version of an object's class.
pub fn of_class_of(object: &Bound<'_, PyAny>) -> u32 {
    // SAFETY: the object keeps its class alive.
    unsafe { read(object.get_type_ptr()) }
}

/// # Safety
///
/// The class is alive, and this thread is attached.
unsafe fn read(class: *mut ffi::PyTypeObject) -> u32 {
    // SAFETY: the class is alive, and the field is aligned like the interpreter's own, which is atomic in a
    // free-threaded build. A change that another thread makes at this moment may be seen or not.
    let version = unsafe { AtomicU32::from_ptr(&raw mut (*class).tp_version_tag) };
    let version = version.load(Ordering::Relaxed);
    // CPython 3.10 keeps the number of a class that has changed, and only clears the flag that says that the number is
    // valid.
    #[cfg(not(Py_3_11))]
    // SAFETY: the caller guarantees that the class is alive, and CPython 3.10 has an interpreter lock.
    if unsafe { (*class).tp_flags } & ffi::Py_TPFLAGS_VALID_VERSION_TAG == 0 {
        return 0;
    }
    version
}
