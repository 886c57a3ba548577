//! A class's version, by which a change to it or to its bases is noticed without a look at its attributes.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// The version, another one after every change; 0 while the class has none, which says nothing.
pub fn of(class: &Bound<'_, PyType>) -> u32 {
    // SAFETY: the class is alive (`class`).
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
    // SAFETY: the class is alive, and the field is aligned as the interpreter's own, which is atomic where threads run
    // freely. What another thread changes just now may be seen or not.
    let version = unsafe { AtomicU32::from_ptr(&raw mut (*class).tp_version_tag) };
    let version = version.load(Ordering::Relaxed);
    // CPython 3.10 leaves the number of a changed class and takes back its mark of validity.
    #[cfg(not(Py_3_11))]
    // SAFETY: the class is alive as above, and this version has an interpreter lock.
    if unsafe { (*class).tp_flags } & ffi::Py_TPFLAGS_VALID_VERSION_TAG == 0 {
        return 0;
    }
    version
}
