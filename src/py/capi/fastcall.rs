//! Methods that get their arguments as the interpreter passes them (METH_FASTCALL).
//!
//! PyO3's argument parsing makes a tuple for `*args` and looks up every keyword. For a method that a program calls a
//! million times a second, this costs as much as the method's work. The methods of this file are added to their class
//! when the module is made. They run inside PyO3's trampoline, which catches panics.

use std::ffi::{CStr, CString};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};
use pyo3::{Borrowed, PyClass, ffi};

/// The arguments of one call.
pub struct Arguments<'a, 'py> {
    pub positional: &'a [Borrowed<'a, 'py, PyAny>],
    named: &'a [Borrowed<'a, 'py, PyAny>],
    names: Option<Borrowed<'a, 'py, PyTuple>>,
}

impl<'a, 'py> Arguments<'a, 'py> {
    /// Fails unless the call has no arguments. `method` is the name for the error message.
    pub fn check_empty(&self, method: &str) -> PyResult<()> {
        match self.positional.is_empty() && self.has_no_names() {
            true => Ok(()),
            false => Err(PyTypeError::new_err(format!(
                "{method}() takes no arguments"
            ))),
        }
    }

    /// # Safety
    ///
    /// The arguments are those that the interpreter passes to a METH_FASTCALL | METH_KEYWORDS function, alive for `'a`.
    pub unsafe fn new(
        py: Python<'py>,
        args: *const *mut ffi::PyObject,
        count: ffi::Py_ssize_t,
        names: *mut ffi::PyObject,
    ) -> Self {
        const { assert!(size_of::<Borrowed<'_, '_, PyAny>>() == size_of::<*mut ffi::PyObject>()) };
        let count = count as usize;
        // SAFETY: the interpreter guarantees that `names` is a tuple or null.
        let names = unsafe { Borrowed::from_ptr_or_opt(py, names) };
        let names = names.map(|names| {
            // SAFETY: the interpreter guarantees that `names` is a tuple.
            unsafe { names.cast_unchecked::<PyTuple>() }
        });
        let named = names.map_or(0, |names| names.len());
        let all: &[Borrowed<'a, 'py, PyAny>] = match count + named {
            0 => &[],
            // SAFETY: the interpreter guarantees `all` live objects in `args`. A `Borrowed` has the layout of a pointer
            // to an object (`repr(transparent)`).
            all => unsafe { std::slice::from_raw_parts(args.cast(), all) },
        };
        let (positional, named) = all.split_at(count);
        Self {
            positional,
            named,
            names,
        }
    }

    pub fn has_no_names(&self) -> bool {
        self.named.is_empty()
    }

    /// Returns the value of the keyword argument `name`, if it is the only keyword argument of the call. `other` caches
    /// a second `str` object with that name (see [`is_name`](Self::is_name)).
    pub fn only_named(
        &self,
        name: &Bound<'py, PyString>,
        other: &PyOnceLock<Py<PyString>>,
    ) -> Option<Borrowed<'a, 'py, PyAny>> {
        match (self.named().next(), self.named) {
            (Some((given, value)), [_]) if is_name(&given, name, other) => Some(value),
            _ => None,
        }
    }

    /// Makes a dictionary of the keyword arguments, for a call of another function.
    pub fn kwargs(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let kwargs = PyDict::new(py);
        for (name, value) in self.named() {
            kwargs.set_item(name, value)?;
        }
        Ok(kwargs)
    }

    pub fn named(
        &self,
    ) -> impl Iterator<Item = (Borrowed<'a, 'py, PyString>, Borrowed<'a, 'py, PyAny>)> {
        let names = self.names;
        self.named
            .iter()
            .enumerate()
            .filter_map(move |(index, value)| {
                let names = names?;
                // SAFETY: there are as many names as named values (`new`). All are strings, alive as long as their
                // tuple.
                let name = unsafe {
                    let name = ffi::PyTuple_GET_ITEM(names.as_ptr(), index as ffi::Py_ssize_t);
                    Borrowed::from_ptr(names.py(), name).cast_unchecked::<PyString>()
                };
                Some((name, *value))
            })
    }
}

/// True if `given` equals the name. asyncio's C code passes one `str` object, not interned, in all calls. The first
/// comparison stores that object in `other`, and later calls recognise it by its address.
fn is_name(
    given: &Bound<'_, PyString>,
    name: &Bound<'_, PyString>,
    other: &PyOnceLock<Py<PyString>>,
) -> bool {
    let py = given.py();
    if given.is(name) || other.get(py).is_some_and(|other| other.is(given)) {
        return true;
    }
    let is_equal =
        matches!((given.to_str(), name.to_str()), (Ok(given), Ok(name)) if given == name);
    if is_equal {
        other.get_or_init(py, || given.clone().unbind());
    }
    is_equal
}

/// Calls `function` as the method of `T` that the interpreter called with these arguments.
///
/// # Safety
///
/// The interpreter calls a METH_FASTCALL | METH_KEYWORDS method of `T` with exactly these arguments.
#[inline]
pub unsafe fn call<T: PyClass>(
    py: Python<'_>,
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
    function: impl Fn(&Bound<'_, T>, &Arguments<'_, '_>) -> PyResult<Py<PyAny>>,
) -> PyResult<*mut ffi::PyObject> {
    // SAFETY: the caller guarantees what `# Safety` requires. It keeps the object and the arguments alive while the
    // method runs, and the values made here do not leave this function.
    let (slf, arguments) = unsafe {
        let slf = Bound::from_borrowed_ptr(py, slf).cast_into_unchecked();
        (slf, Arguments::new(py, args, count, names))
    };
    function(&slf, &arguments).map(Py::into_ptr)
}

/// Makes the [`Method`] `$name` of `$class`. It converts the interpreter's arguments and calls `$function`, a
/// `fn(&Bound<$class>, &Arguments) -> PyResult<Py<PyAny>>`.
macro_rules! fast_method {
    ($class:ty, $name:literal, $doc:expr, $function:path) => {{
        /// # Safety
        ///
        /// Called by the interpreter as a METH_FASTCALL | METH_KEYWORDS method of the class.
        unsafe fn raw(
            py: pyo3::Python<'_>,
            slf: *mut pyo3::ffi::PyObject,
            args: *const *mut pyo3::ffi::PyObject,
            count: pyo3::ffi::Py_ssize_t,
            names: *mut pyo3::ffi::PyObject,
        ) -> pyo3::PyResult<*mut pyo3::ffi::PyObject> {
            // SAFETY: the interpreter calls this as `# Safety` requires, and the method's descriptor has checked the
            // type of `slf`.
            unsafe {
                $crate::capi::fastcall::call::<$class>(py, slf, args, count, names, $function)
            }
        }
        $crate::capi::fastcall::Method {
            name: $name,
            doc: $doc.into(),
            function: pyo3::impl_::trampoline::get_trampoline_function!(
                fastcall_cfunction_with_keywords,
                raw
            ),
        }
    }};
}

pub(crate) use fast_method;

/// A method that [`add_methods`] adds to a class.
pub struct Method {
    pub name: &'static CStr,
    /// The docstring. It begins with the signature: `name($self, ...)\n--\n\n`.
    pub doc: CString,
    pub function: ffi::PyCFunctionFastWithKeywords,
}

pub fn add_methods(
    class: &Bound<'_, PyType>,
    methods: impl IntoIterator<Item = Method>,
) -> PyResult<()> {
    let py = class.py();
    for method in methods {
        // The definition is leaked, because it must live as long as the class, which is until the end of the process.
        let definition = Box::leak(Box::new(ffi::PyMethodDef {
            ml_name: method.name.as_ptr(),
            ml_meth: ffi::PyMethodDefPointer {
                PyCFunctionFastWithKeywords: method.function,
            },
            ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
            ml_doc: method.doc.into_raw(),
        }));
        // SAFETY: this thread is attached, the class is alive, and the definition lives for ever. The call returns a
        // new reference, or null with an exception.
        let descriptor = unsafe {
            let descriptor = ffi::PyDescr_NewMethod(class.as_type_ptr(), definition);
            Bound::from_owned_ptr_or_err(py, descriptor)?
        };
        class.setattr(method.name, descriptor)?;
    }
    Ok(())
}
