//! The classes of transports and events as Python sees them: subclasses whose instances have a `__dict__`.
//!
//! Programs set attributes on transports and events, and test suites replace their methods, as they can with
//! asyncio's and aioquic's own. An instance of a Python subclass has a dictionary for them. That dictionary is safe,
//! in contrast to PyO3's `dict` option (see the end of `gil_cell`): the interpreter makes the dictionary, and any
//! other object that the garbage collector counts, only after the Rust fields are written. Methods are still found in
//! the class, because the classes have no `__getattr__`.
//!
//! The base classes, with all behaviour, are in `transport`, `tls`, `h3::events` and `quic::events`. Rust code uses
//! the base types, and accepts instances of the subclasses as such.

use pyo3::exceptions::PyTypeError;
use pyo3::ffi::PyTypeObject;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use pyo3::{PyClass, PyClassInitializer};

/// A class of the extension that Python programs see only as a subclass, whose instances have a `__dict__`.
pub trait ClassWithDict: PyClass {
    /// The cell that stores the subclass after it was made.
    fn subclass() -> &'static PyOnceLock<Py<PyType>>;
}

/// Returns the subclass that Python programs see. It is made at the first call, as `class T(T): pass` would make it.
pub fn class<T: ClassWithDict>(py: Python<'_>) -> PyResult<&'static Py<PyType>> {
    T::subclass().get_or_try_init(py, || {
        let core = py.get_type::<T>();
        let names = PyDict::new(py);
        for name in ["__module__", "__qualname__", "__doc__"] {
            names.set_item(name, core.getattr(name)?)?;
        }
        let made = py
            .get_type::<PyType>()
            .call1((core.name()?, (core,), names))?;
        Ok::<_, PyErr>(made.cast_into::<PyType>()?.unbind())
    })
}

/// Makes an instance of the subclass that Python sees, with the fields of `value`.
pub fn instance<T: ClassWithDict>(
    py: Python<'_>,
    value: impl Into<PyClassInitializer<T>>,
) -> PyResult<Py<T>> {
    let class = class::<T>(py)?.bind(py);
    // SAFETY: the class is the subclass of T's class that `class` has made.
    unsafe { new_instance(class, value.into()) }
}

/// Makes an instance of `class` with the fields of `value`. `class` must be the class of `T` or one of its
/// subclasses.
pub fn instance_of<T: PyClass>(
    class: &Bound<'_, PyType>,
    value: impl Into<PyClassInitializer<T>>,
) -> PyResult<Py<T>> {
    if !class.is_subclass_of::<T>()? {
        return Err(PyTypeError::new_err("an instance of another class"));
    }
    // SAFETY: the check above has shown that `class` is T's class or a subclass of it.
    unsafe { new_instance(class, value.into()) }
}

/// # Safety
/// `class` must be T's class or a subclass of it.
unsafe fn new_instance<T: PyClass>(
    class: &Bound<'_, PyType>,
    value: PyClassInitializer<T>,
) -> PyResult<Py<T>> {
    let py = class.py();
    let class: *mut PyTypeObject = class.as_type_ptr();
    // PyO3 makes instances of subclasses only from `#[new]`. `tp_new_impl` is the function that `#[new]` calls; it is
    // public for PyO3's macros alone, so Cargo.toml pins the exact version of PyO3. A call of the class from here, with
    // `value` packed into a Python object for `#[new]`, would make three objects instead of one.
    //
    // SAFETY: in that version the function requires that `class` is T's class or a subclass of it, as this one does.
    let object = unsafe { pyo3::impl_::pymethods::tp_new_impl(py, value, class)? };
    // SAFETY: in that version the function returns a new reference to the object that it has made.
    let object = unsafe { Bound::from_owned_ptr(py, object) };
    // SAFETY: the object is an instance of `class`.
    Ok(unsafe { object.cast_into_unchecked::<T>() }.unbind())
}
