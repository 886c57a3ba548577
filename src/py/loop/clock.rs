//! The clock that a loop follows: `time.monotonic()` without the call into Python, or what a program
//! has put in its place.
//!
//! asyncio asks `loop.time()` for every timer and in every turn, so that a test can drive a loop by a
//! clock of its own: a subclass with another `time()`, or another `time` on one loop object.

use pyo3::prelude::*;
use pyo3::{ffi, intern};

use crate::capi::class_version;
use crate::event_loop::loop_core::LoopCore;

/// Seconds of `CLOCK_MONOTONIC`.
pub fn monotonic() -> f64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live timespec; this clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

/// One tick of that clock: a timer due within it runs now, as in asyncio.
pub const RESOLUTION: f64 = 1e-9;

/// What is known of a loop's `time`, so that the usual loop pays for a comparison and not for a look.
#[derive(Default)]
pub struct ClockWatch {
    /// The loop object has an attribute of that name.
    on_loop: bool,
    /// The class that was last looked at, as it was then, and whether it has a `time` of its own.
    class: ClassVersion,
    in_class: bool,
}

/// A class and its version, which changes with every change to it or to its bases; 0 is none.
#[derive(Clone, Copy, Default, PartialEq)]
struct ClassVersion(usize, u32);

impl ClassVersion {
    fn of(slf: &Bound<'_, LoopCore>) -> Self {
        let class = slf.get_type_ptr();
        Self(class as usize, class_version::of_class_of(slf.as_any()))
    }
}

/// An attribute of the loop object was set (`value`) or deleted.
pub fn set_attribute(
    slf: &Bound<'_, LoopCore>,
    name: &Bound<'_, PyAny>,
    value: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let py = slf.py();
    let pointer = value.map_or(std::ptr::null_mut(), |value| value.as_ptr());
    // SAFETY: this thread is attached (`py`) and all three are live objects; a null value deletes the attribute, and
    // a name that is no string is answered with an exception.
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

/// True when `loop.time()` is not ours.
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
    // The look has given the class a version, if it had none.
    let class = ClassVersion::of(slf);
    clock.with(py, |clock| {
        (clock.class, clock.in_class) = (class, in_class)
    });
    Ok(in_class)
}

/// The time on the loop's clock, in seconds.
pub fn now(slf: &Bound<'_, LoopCore>) -> PyResult<f64> {
    if is_replaced(slf)? {
        ask(slf)
    } else {
        Ok(monotonic())
    }
}

/// The time before which timers are due in this turn; `None` when there are none to look at. A clock
/// that is not ours is asked in every turn, as in asyncio: it may advance by that.
pub fn end_of_turn(slf: &Bound<'_, LoopCore>) -> PyResult<Option<f64>> {
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
