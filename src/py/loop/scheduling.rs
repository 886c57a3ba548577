//! `call_soon`, `call_later` and similar methods, which make handles and add them to the loop's lists.
//!
//! The lists are `ready_queue` and the engine's `Timers`; `iteration` runs them. In debug mode the handles are
//! asyncio's own, which record where they were made.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyTuple};
use pyo3::{Borrowed, intern};

use crate::capi::callback::Callback;
use crate::capi::contextvars_context;
use crate::capi::fastcall::{Arguments, Method, fast_method};
use crate::event_loop::clock;
use crate::event_loop::handle::{AnyHandle, Handle, TimerHandle, is_alone};
use crate::event_loop::loop_core::{LoopCore, current_thread_id};
use crate::event_loop::loop_flags::AtomicFlags;
use crate::event_loop::ready_queue::Ready;

/// The `str` object "context" that asyncio's C code passes as a keyword.
static ASYNCIOS_CONTEXT: PyOnceLock<Py<PyString>> = PyOnceLock::new();

/// The parsed arguments of `call_soon`, `call_later` or a similar method.
struct CallArguments<'a, 'py> {
    callback: Borrowed<'a, 'py, PyAny>,
    args: &'a [Borrowed<'a, 'py, PyAny>],
    context: Option<Borrowed<'a, 'py, PyAny>>,
}

impl<'py> CallArguments<'_, 'py> {
    fn call(&self) -> PyResult<Callback> {
        Callback::new(&self.callback, self.args)
    }

    fn context(&self) -> PyResult<Py<PyAny>> {
        contextvars_context::given_or_copied(self.callback.py(), self.context)
    }

    fn args(&self) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(self.callback.py(), self.args)
    }
}

/// Parses the arguments `(*leading, callback, *args, context=None)`, with `N` leading ones. These and the callback
/// may also be passed as keywords.
fn parse<'a, 'py, const N: usize>(
    method: &str,
    leading: [&str; N],
    arguments: &Arguments<'a, 'py>,
) -> PyResult<([Borrowed<'a, 'py, PyAny>; N], CallArguments<'a, 'py>)> {
    let positional = arguments.positional;
    if positional.len() > N {
        let context = match arguments.has_no_names() {
            true => Some(None),
            false => arguments
                .only_named(intern!(positional[N].py(), "context"), &ASYNCIOS_CONTEXT)
                .map(Some),
        };
        if let Some(context) = context {
            let given = CallArguments {
                callback: positional[N],
                args: &positional[N + 1..],
                context,
            };
            return Ok((std::array::from_fn(|index| positional[index]), given));
        }
    }
    let mut context = None;
    let mut leads = [None; N];
    leads
        .iter_mut()
        .zip(positional)
        .for_each(|(lead, value)| *lead = Some(*value));
    let mut callback = positional.get(N).copied();
    for (name, value) in arguments.named() {
        let text = name.to_str()?;
        let place = match leading.iter().position(|lead| *lead == text) {
            Some(index) => &mut leads[index],
            None if text == "callback" => &mut callback,
            None if text == "context" => &mut context,
            None => {
                let message = format!("{method}() got an unexpected keyword argument '{text}'");
                return Err(PyTypeError::new_err(message));
            }
        };
        if place.replace(value).is_some() {
            let message = format!("{method}() got multiple values for argument '{text}'");
            return Err(PyTypeError::new_err(message));
        }
    }
    let missing = |name: &str| {
        PyTypeError::new_err(format!(
            "{method}() missing 1 required positional argument: '{name}'"
        ))
    };
    for (lead, name) in leads.iter().zip(leading) {
        lead.ok_or_else(|| missing(name))?;
    }
    let given = CallArguments {
        callback: callback.ok_or_else(|| missing("callback"))?,
        args: positional.get(N + 1..).unwrap_or_default(),
        context,
    };
    Ok((leads.map(|lead| lead.unwrap_or(given.callback)), given))
}

impl LoopCore {
    /// Makes a handle for a watcher's callback, which is in none of the loop's lists.
    pub fn make_watcher_handle(
        slf: &Bound<'_, Self>,
        callback: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        context: Option<Bound<'_, PyAny>>,
    ) -> PyResult<AnyHandle> {
        let items: Vec<_> = args.iter_borrowed().collect();
        let given = CallArguments {
            callback: callback.as_borrowed(),
            args: &items,
            context: context.as_ref().map(|context| context.as_borrowed()),
        };
        Self::make_handle(slf, "add_reader", &given, Handle::new)
    }

    /// Makes a handle that is in none of the loop's lists yet. `method` is the name of the called method, for debug
    /// mode.
    fn make_handle(
        slf: &Bound<'_, Self>,
        method: &str,
        given: &CallArguments<'_, '_>,
        make: fn(Callback, Py<PyAny>) -> Handle,
    ) -> PyResult<AnyHandle> {
        let py = slf.py();
        slf.get().check_closed()?;
        if slf.get().atomic_flags.has(AtomicFlags::DEBUG) {
            let args = (method, given.callback, given.args()?, given.context);
            let handle = slf.call_method1(intern!(py, "_debug_handle"), args)?;
            return Ok(AnyHandle::Foreign(handle.unbind()));
        }
        let handle = make(given.call()?, given.context()?);
        Ok(AnyHandle::Ours(Py::new(py, handle)?))
    }

    /// `call_soon` on a loop that is neither closed nor in debug mode. Reuses an old handle if one is kept.
    fn call_soon_plainly(
        &self,
        py: Python<'_>,
        given: &CallArguments<'_, '_>,
    ) -> PyResult<Py<Handle>> {
        let (call, context) = (given.call()?, given.context()?);
        let spare = self.ready.with(py, |ready| ready.handles.take());
        let handle = match spare.filter(|spare| is_alone(py, spare)) {
            Some(handle) => {
                handle.get().refill(py, call, context);
                handle
            }
            None => Py::new(py, Handle::new(call, context))?,
        };
        let returned = handle.clone_ref(py);
        self.push_ready(py, Ready::Handle(AnyHandle::Ours(handle)));
        Ok(returned)
    }

    fn schedule(
        slf: &Bound<'_, Self>,
        when: f64,
        given: &CallArguments<'_, '_>,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let this = slf.get();
        this.check_closed()?;
        if when.is_nan() {
            return Err(PyValueError::new_err("the time must not be NaN"));
        }
        if this.atomic_flags.has(AtomicFlags::DEBUG) {
            let args = (
                "call_at",
                when,
                given.callback,
                given.args()?,
                given.context,
            );
            let timer = slf
                .call_method1(intern!(py, "_debug_timer"), args)?
                .unbind();
            let handle = AnyHandle::Foreign(timer.clone_ref(py));
            this.timers.with(py, |timers| timers.push(when, handle));
            return Ok(timer);
        }
        let (call, context) = (given.call()?, given.context()?);
        Ok(TimerHandle::schedule(slf, call, context, when)?.into_any())
    }
}

fn call_soon(slf: &Bound<'_, LoopCore>, arguments: &Arguments<'_, '_>) -> PyResult<Py<PyAny>> {
    let (py, this) = (slf.py(), slf.get());
    let ([], given) = parse("call_soon", [], arguments)?;
    if this.atomic_flags.is_empty() {
        return Ok(this.call_soon_plainly(py, &given)?.into_any());
    }
    let handle = LoopCore::make_handle(slf, "call_soon", &given, Handle::new)?;
    let returned = handle.as_any().clone_ref(py);
    this.push_ready(py, Ready::Handle(handle));
    Ok(returned)
}

fn call_soon_threadsafe(
    slf: &Bound<'_, LoopCore>,
    arguments: &Arguments<'_, '_>,
) -> PyResult<Py<PyAny>> {
    let (py, this) = (slf.py(), slf.get());
    let ([], given) = parse("call_soon_threadsafe", [], arguments)?;
    let make = match cfg!(Py_3_14) {
        true => Handle::new_shared,
        false => Handle::new,
    };
    let handle = LoopCore::make_handle(slf, "call_soon_threadsafe", &given, make)?;
    let returned = handle.as_any().clone_ref(py);
    // The handle is added before the check of the running thread. So a loop that is about to block either finds the
    // handle or is woken.
    this.push_ready(py, Ready::Handle(handle));
    if this.flags.with(py, |flags| flags.runner) != Some(current_thread_id()) {
        this.wake_unlocked(py);
    }
    Ok(returned)
}

fn call_later(slf: &Bound<'_, LoopCore>, arguments: &Arguments<'_, '_>) -> PyResult<Py<PyAny>> {
    let ([delay], given) = parse("call_later", ["delay"], arguments)?;
    if delay.is_none() {
        return Err(PyTypeError::new_err("delay must not be None"));
    }
    let when = clock::now(slf)? + delay.extract::<f64>()?;
    LoopCore::schedule(slf, when, &given)
}

fn call_at(slf: &Bound<'_, LoopCore>, arguments: &Arguments<'_, '_>) -> PyResult<Py<PyAny>> {
    let ([when], given) = parse("call_at", ["when"], arguments)?;
    if when.is_none() {
        return Err(PyTypeError::new_err("when cannot be None"));
    }
    LoopCore::schedule(slf, when.extract()?, &given)
}

/// The methods of this file that `add_quick_methods` adds to a class of loops.
pub fn methods() -> Vec<Method> {
    let soon = c"call_soon($self, callback, *args, context=None)\n--\n\n";
    let threadsafe = c"call_soon_threadsafe($self, callback, *args, context=None)\n--\n\n";
    let later = c"call_later($self, delay, callback, *args, context=None)\n--\n\n";
    let at = c"call_at($self, when, callback, *args, context=None)\n--\n\n";
    vec![
        fast_method!(LoopCore, c"call_soon", soon, call_soon),
        fast_method!(
            LoopCore,
            c"call_soon_threadsafe",
            threadsafe,
            call_soon_threadsafe
        ),
        fast_method!(LoopCore, c"call_later", later, call_later),
        fast_method!(LoopCore, c"call_at", at, call_at),
    ]
}
