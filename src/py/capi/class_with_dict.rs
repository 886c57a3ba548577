//! The classes of transports and events as Python sees them: subclasses whose instances take attributes.
//!
//! Programs set attributes on a transport or an event and test suites replace its methods, as on asyncio's and
//! aioquic's own. An instance of a Python subclass has a dictionary for that. Unlike PyO3's `dict` it is safe (see
//! `cell`): the interpreter makes neither it nor any other object that the garbage collector counts before the Rust
//! fields are written. A method call is still a look-up in the class, because there is no `__getattr__` of ours.
//!
//! `stream`, `datagram`, `tls` and `events` have the behaviour of the classes. The Rust code of the loop uses those
//! types, and accepts the subclasses as such.

use pyo3::exceptions::PyTypeError;
use pyo3::ffi::PyTypeObject;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use pyo3::{PyClass, PyClassInitializer};

/// An extension class of which Python only sees a subclass.
pub trait ClassWithDict: PyClass {
    /// The storage of the subclass.
    fn subclass() -> &'static PyOnceLock<Py<PyType>>;
}

/// The class that Python sees, as `class T(T):` with an empty body makes it.
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

/// An instance of the class that Python sees, around `value`.
pub fn instance<T: ClassWithDict>(
    py: Python<'_>,
    value: impl Into<PyClassInitializer<T>>,
) -> PyResult<Py<T>> {
    let class = class::<T>(py)?.bind(py);
    // SAFETY: `class` has made it as a subclass of T's class.
    unsafe { new_instance(class, value.into()) }
}

/// An instance of `class`, which is T's or a subclass of it, around `value`.
pub fn instance_of<T: PyClass>(
    class: &Bound<'_, PyType>,
    value: impl Into<PyClassInitializer<T>>,
) -> PyResult<Py<T>> {
    if !class.is_subclass_of::<T>()? {
        return Err(PyTypeError::new_err("an instance of another class"));
    }
    // SAFETY: this was checked above.
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
    // PyO3 makes instances of subclasses in `#[new]` only. This is the function behind it, which is public for PyO3's
    // macros alone. PyO3's version is pinned exactly in Cargo.toml for that reason. Going through `#[new]` itself, with
    // the value packed into a Python object, makes three objects for each one.
    //
    // SAFETY: in that version the function requires that `class` is T's class or a subclass of it, as this one does.
    let object = unsafe { pyo3::impl_::pymethods::tp_new_impl(py, value, class)? };
    // SAFETY: in that version the function returns a new reference to the object that it has made.
    let object = unsafe { Bound::from_owned_ptr(py, object) };
    // SAFETY: the object is an instance of `class`.
    Ok(unsafe { object.cast_into_unchecked::<T>() }.unbind())
}
