//! `create_task` and `create_future` without a Python frame: asyncio's own classes, called as asyncio calls
//! them.
//!
//! What is not the usual case (a task factory, debug mode, arguments that only some versions know) is left
//! to CPython's own method.

use std::ffi::CString;
use std::ptr::null_mut;

use pyo3::impl_::trampoline::get_trampoline_function;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{ffi, intern};

use crate::fastcall::{self, Arguments, Method};
use crate::loop_core::LoopCore;

/// `asyncio.Future(loop=slf)`.
pub fn new_future<'py>(slf: &Bound<'py, LoopCore>) -> PyResult<Bound<'py, PyAny>> {
    static NAMES: PyOnceLock<Py<PyTuple>> = PyOnceLock::new();
    let py = slf.py();
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let class = module(py, &MODULE, "asyncio.futures")?.getattr(intern!(py, "Future"))?;
    let names = NAMES.get_or_try_init(py, || PyTuple::new(py, ["loop"]).map(Bound::unbind))?;
    let mut items = [null_mut(), slf.as_ptr()];
    // SAFETY: this thread is attached; the class, the loop and the names are alive for the call, the loop is the
    // value of the one name, and there is a place before the first argument, as the flag says; a new reference
    // or null with an exception comes back.
    unsafe {
        let items = items.as_mut_ptr().add(1);
        let flag = ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
        let future = ffi::PyObject_Vectorcall(class.as_ptr(), items, flag, names.as_ptr());
        Bound::from_owned_ptr_or_err(py, future)
    }
}

/// A module, imported once. What is in it is looked up each time: programs put other classes there.
fn module<'py>(
    py: Python<'py>,
    known: &'static PyOnceLock<Py<PyModule>>,
    name: &str,
) -> PyResult<&'py Bound<'py, PyModule>> {
    let module = known.get_or_try_init(py, || py.import(name).map(Bound::unbind))?;
    Ok(module.bind(py))
}

/// # Safety
///
/// Called by the interpreter as a METH_FASTCALL | METH_KEYWORDS method of `LoopCore`.
unsafe fn create_task(
    py: Python<'_>,
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> PyResult<*mut ffi::PyObject> {
    // SAFETY: the caller's word.
    let (slf, arguments) = unsafe { fastcall::method::<LoopCore>(py, slf, args, count, names) };
    let is_usual = arguments.positional.len() == 1
        && slf.get().mode.is_plain()
        && slf.get().task_factory.with(py, |factory| factory.is_none())
        && arguments.named().all(|(name, _)| is_known(py, &name));
    if !is_usual {
        return asyncios_own(&slf, &arguments).map(Bound::into_ptr);
    }
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let class = module(py, &MODULE, "asyncio.tasks")?.getattr(intern!(py, "Task"))?;
    let kwargs = PyDict::new(py);
    kwargs.set_item(intern!(py, "loop"), &slf)?;
    for (name, value) in arguments.named() {
        kwargs.set_item(name, value)?;
    }
    Ok(class
        .call((arguments.positional[0],), Some(&kwargs))?
        .into_ptr())
}

/// Names that every version's `create_task` hands on to `Task`.
fn is_known(py: Python<'_>, name: &Bound<'_, PyAny>) -> bool {
    let is = |known: &Bound<'_, PyAny>| name.is(known) || name.eq(known).unwrap_or(false);
    is(intern!(py, "name")) || (cfg!(Py_3_11) && is(intern!(py, "context")))
}

fn asyncios_own<'py>(
    slf: &Bound<'py, LoopCore>,
    arguments: &Arguments<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let class = py
        .import(intern!(py, "asyncio.base_events"))?
        .getattr(intern!(py, "BaseEventLoop"))?;
    let kwargs = PyDict::new(py);
    for (name, value) in arguments.named() {
        kwargs.set_item(name, value)?;
    }
    let given = arguments.positional.iter().map(|value| (*value).to_owned());
    let args: Vec<_> = std::iter::once(slf.clone().into_any())
        .chain(given)
        .collect();
    class
        .getattr(intern!(py, "create_task"))?
        .call(PyTuple::new(py, args)?, Some(&kwargs))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    // The arguments are those of the running version, down to its patch level.
    let base = py
        .import("asyncio.base_events")?
        .getattr("BaseEventLoop")?
        .getattr("create_task")?;
    let signature = py.import("inspect")?.call_method1("signature", (base,))?;
    let signature = signature.str()?.to_str()?.replacen("(self", "($self", 1);
    let doc =
        format!("create_task{signature}\n--\n\nSchedule a coroutine. Returns asyncio's task.");
    let create_task = Method {
        name: c"create_task",
        doc: CString::new(doc)?,
        function: get_trampoline_function!(fastcall_cfunction_with_keywords, create_task),
    };
    fastcall::add_methods(&py.get_type::<LoopCore>(), [create_task])
}
