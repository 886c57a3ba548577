//! The clock of a loop: `time.monotonic()` without a call into Python, or a `time()` that the program has defined.
//!
//! asyncio calls `loop.time()` for every timer and in every loop iteration. So a program, in most cases a test, can
//! drive a loop with a clock of its own: by a subclass with another `time()`, or by setting `time` on one loop object.

use pyo3::prelude::*;
use pyo3::{ffi, intern};

use crate::capi::class_version;
use crate::event_loop::loop_core::LoopCore;

/// The current time of `CLOCK_MONOTONIC` in seconds.
pub fn monotonic() -> f64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live timespec; this clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

/// The resolution of the clock in seconds. As in asyncio, a timer runs if its time is at most this far ahead.
pub const RESOLUTION: f64 = 1e-9;

/// Caches whether a loop's class overrides `time()`. For a loop without its own `time()`, the check is then one
/// comparison instead of a look-up of the attribute.
#[derive(Default)]
pub struct ClockWatch {
    /// The loop object itself has an attribute `time`.
    on_loop: bool,
    /// The class that was looked up last, with its version at that time. `in_class` is true if that class has its own
    /// `time()`.
    class: ClassVersion,
    in_class: bool,
}

/// A class, by its address, and its version number, which changes with every change of the class or its bases. Number
/// 0 means that the interpreter has assigned none.
#[derive(Clone, Copy, Default, PartialEq)]
struct ClassVersion(usize, u32);

impl ClassVersion {
    fn of(slf: &Bound<'_, LoopCore>) -> Self {
        let class = slf.get_type_ptr();
        Self(class as usize, class_version::of_class_of(slf.as_any()))
    }
}

/// Sets an attribute of the loop object, or deletes it if `value` is None, and notes changes of the attribute `time`.
pub fn set_attribute(
    slf: &Bound<'_, LoopCore>,
    name: &Bound<'_, PyAny>,
    value: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let py = slf.py();
    let pointer = value.map_or(std::ptr::null_mut(), |value| value.as_ptr());
    // SAFETY: this thread is attached (`py`), and the loop, the name and the value are live objects. A null value
    // deletes the attribute; a name that is no string raises an exception.
    if unsafe { ffi::PyObject_GenericSetAttr(slf.as_ptr(), name.as_ptr(), pointer) } != 0 {
        return Err(PyErr::fetch(py));
    }
    if name.eq(intern!(py, "time"))? {
        slf.get()
            .clock
            .with(py, |clock| clock.on_loop = value.is_some());
    }
    Ok(())
}

/// True if the program has replaced `loop.time()`.
pub fn is_replaced(slf: &Bound<'_, LoopCore>) -> PyResult<bool> {
    let py = slf.py();
    let class = ClassVersion::of(slf);
    let clock = &slf.get().clock;
    let known = clock.with(py, |clock| {
        let seen = clock.on_loop || (class.1 != 0 && clock.class == class);
        seen.then_some(clock.on_loop || clock.in_class)
    });
    if let Some(replaced) = known {
        return Ok(replaced);
    }
    let name = intern!(py, "time");
    let ours = py.get_type::<LoopCore>().getattr(name)?;
    let in_class = !slf.get_type().getattr(name)?.is(&ours);
    // The look-up made the interpreter assign a version number to the class, if the class had none.
    let class = ClassVersion::of(slf);
    clock.with(py, |clock| {
        (clock.class, clock.in_class) = (class, in_class)
    });
    Ok(in_class)
}

/// The current time of the loop's clock, in seconds.
pub fn now(slf: &Bound<'_, LoopCore>) -> PyResult<f64> {
    if is_replaced(slf)? {
        ask(slf)
    } else {
        Ok(monotonic())
    }
}

/// The time in seconds before which timers are due in this loop iteration. `None` if there are no timers. A clock of
/// the program is read in every loop iteration even so, as in asyncio, because reading it may advance it.
pub fn end_of_iteration(slf: &Bound<'_, LoopCore>) -> PyResult<Option<f64>> {
    let py = slf.py();
    if is_replaced(slf)? {
        let resolution: f64 = slf.getattr(intern!(py, "_clock_resolution"))?.extract()?;
        return Ok(Some(ask(slf)? + resolution));
    }
    let some = slf.get().timers.with(py, |timers| !timers.is_empty());
    Ok(some.then(|| monotonic() + RESOLUTION))
}

fn ask(slf: &Bound<'_, LoopCore>) -> PyResult<f64> {
    slf.call_method0(intern!(slf.py(), "time"))?.extract()
}
