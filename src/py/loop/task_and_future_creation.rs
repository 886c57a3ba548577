//! `create_task` and `create_future` without a Python frame. They call asyncio's own classes as asyncio's methods do.
//!
//! CPython's own method handles the unusual cases: a task factory, debug mode, and arguments that only some versions
//! have.

use std::ffi::CString;
use std::ptr::null_mut;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
#[cfg(Py_3_12)]
use pyo3::types::PyDict;
use pyo3::types::{PyBool, PyTuple};
use pyo3::{ffi, intern};

use crate::capi::fastcall::{Arguments, Method, fast_method};
use crate::event_loop::loop_core::LoopCore;

/// Calls `asyncio.Future(loop=slf)`.
pub fn new_future<'py>(slf: &Bound<'py, LoopCore>) -> PyResult<Bound<'py, PyAny>> {
    static NAMES: PyOnceLock<Py<PyTuple>> = PyOnceLock::new();
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let py = slf.py();
    let class = module(py, &MODULE, "asyncio.futures")?.getattr(intern!(py, "Future"))?;
    let names = NAMES.get_or_try_init(py, || PyTuple::new(py, ["loop"]).map(Bound::unbind))?;
    let mut items = [null_mut(), slf.as_ptr()];
    // SAFETY: this thread is attached. The class, the loop and the names are alive for the call. The loop is the value
    // of the one name, and there is room before the first argument, as the flag promises. The result is a new
    // reference, or null with an exception set.
    unsafe {
        let items = items.as_mut_ptr().add(1);
        let flag = ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
        let future = ffi::PyObject_Vectorcall(class.as_ptr(), items, flag, names.as_ptr());
        Bound::from_owned_ptr_or_err(py, future)
    }
}

/// True if the loop has a task factory.
#[cfg(Py_3_12)]
pub fn has_task_factory(event_loop: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = event_loop.py();
    match event_loop.cast::<LoopCore>() {
        Ok(core) => Ok(core
            .get()
            .task_factory
            .with(py, |factory| factory.is_some())),
        Err(_) => {
            let factory = event_loop.call_method0(intern!(py, "get_task_factory"))?;
            Ok(!factory.is_none())
        }
    }
}

/// The keyword arguments of [`new_eager_task`] for tasks of `event_loop`.
#[cfg(Py_3_12)]
pub fn eager_keywords(event_loop: &Bound<'_, PyAny>) -> PyResult<Py<PyDict>> {
    let py = event_loop.py();
    let keywords = PyDict::new(py);
    keywords.set_item(intern!(py, "loop"), event_loop)?;
    keywords.set_item(intern!(py, "eager_start"), true)?;
    Ok(keywords.unbind())
}

/// Calls `asyncio.Task(coroutine, loop=event_loop, eager_start=True)`, which runs the coroutine until it waits for
/// the first time. `keywords` is the result of [`eager_keywords`], which no callee changes.
#[cfg(Py_3_12)]
pub fn new_eager_task<'py>(
    coroutine: &Bound<'py, PyAny>,
    keywords: &Bound<'py, PyDict>,
    context: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let py = coroutine.py();
    let class = module(py, &MODULE, "asyncio.tasks")?.getattr(intern!(py, "Task"))?;
    match context {
        None => class.call((coroutine,), Some(keywords)),
        Some(context) => {
            let keywords = keywords.copy()?;
            keywords.set_item(intern!(py, "context"), context)?;
            class.call((coroutine,), Some(&keywords))
        }
    }
}

/// Returns a module, which is imported only once. Callers look up its attributes at each use, because programs replace
/// them.
fn module<'py>(
    py: Python<'py>,
    known: &'static PyOnceLock<Py<PyModule>>,
    name: &str,
) -> PyResult<&'py Bound<'py, PyModule>> {
    let module = known.get_or_try_init(py, || py.import(name).map(Bound::unbind))?;
    Ok(module.bind(py))
}

fn create_task(slf: &Bound<'_, LoopCore>, arguments: &Arguments<'_, '_>) -> PyResult<Py<PyAny>> {
    let (py, this) = (slf.py(), slf.get());
    let [coroutine] = arguments.positional else {
        return asyncios_own(slf, arguments);
    };
    let is_usual = this.atomic_flags.is_empty()
        && this.task_factory.with(py, |factory| factory.is_none())
        && arguments.named().all(|(name, _)| is_known(py, &name));
    if !is_usual {
        return asyncios_own(slf, arguments);
    }
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let class = module(py, &MODULE, "asyncio.tasks")?.getattr(intern!(py, "Task"))?;
    let kwargs = arguments.kwargs(py)?;
    kwargs.set_item(intern!(py, "loop"), slf)?;
    let args = PyTuple::new(py, [coroutine])?;
    Ok(class.call(args, Some(&kwargs))?.unbind())
}

/// True for keywords that `create_task` of every CPython version passes on to `Task`.
fn is_known(py: Python<'_>, name: &Bound<'_, PyAny>) -> bool {
    let is = |known: &Bound<'_, PyAny>| name.is(known) || name.eq(known).unwrap_or(false);
    is(intern!(py, "name")) || (cfg!(Py_3_11) && is(intern!(py, "context")))
}

fn asyncios_own(slf: &Bound<'_, LoopCore>, arguments: &Arguments<'_, '_>) -> PyResult<Py<PyAny>> {
    let py = slf.py();
    let create_task = py
        .import(intern!(py, "asyncio.base_events"))?
        .getattr(intern!(py, "BaseEventLoop"))?
        .getattr(intern!(py, "create_task"))?;
    let given = arguments.positional.iter().map(|value| value.as_any());
    let args: Vec<_> = std::iter::once(slf.as_any()).chain(given).collect();
    let kwargs = arguments.kwargs(py)?;
    Ok(create_task
        .call(PyTuple::new(py, args)?, Some(&kwargs))?
        .unbind())
}

/// The method `create_future`.
fn create_future(slf: &Bound<'_, LoopCore>, arguments: &Arguments<'_, '_>) -> PyResult<Py<PyAny>> {
    arguments.check_empty("create_future")?;
    Ok(new_future(slf)?.unbind())
}

/// The method `get_debug`, which every new future and task calls.
fn get_debug(slf: &Bound<'_, LoopCore>, arguments: &Arguments<'_, '_>) -> PyResult<Py<PyAny>> {
    arguments.check_empty("get_debug")?;
    let is_debug = slf.get().is_debug();
    Ok(PyBool::new(slf.py(), is_debug)
        .to_owned()
        .into_any()
        .unbind())
}

/// The methods of this file that `add_quick_methods` adds to a class of loops.
pub fn methods(py: Python<'_>) -> PyResult<Vec<Method>> {
    // `create_task` has the signature of the running CPython version, which may change in a patch release.
    let base = py
        .import("asyncio.base_events")?
        .getattr("BaseEventLoop")?
        .getattr("create_task")?;
    let signature = py.import("inspect")?.call_method1("signature", (base,))?;
    let signature = signature.str()?.to_str()?.replacen("(self", "($self", 1);
    let task =
        format!("create_task{signature}\n--\n\nSchedule a coroutine. Returns asyncio's task.");
    let future = c"create_future($self)\n--\n\nA future of this loop.";
    let debug = c"get_debug($self)\n--\n\nTrue in debug mode.";
    Ok(vec![
        fast_method!(LoopCore, c"create_task", CString::new(task)?, create_task),
        fast_method!(LoopCore, c"create_future", future, create_future),
        fast_method!(LoopCore, c"get_debug", debug, get_debug),
    ])
}
