//! The event loop: its loop iteration, its handles and timers, and the handling of the engine's events.
//!
//! | file | content |
//! | --- | --- |
//! | `loop_core` | the event loop class: methods that asyncio's base class calls |
//! | `iteration` | one iteration of the loop: waits for events, runs callbacks |
//! | `event_dispatch` | passes an event of the engine to the object that handles it |
//! | `accepted_connections` | makes a protocol and a transport for an accepted connection |
//! | `handle` | `Handle` and `TimerHandle` |
//! | `scheduling` | `call_soon`, `call_later` and similar methods, which make handles |
//! | `task_and_future_creation` | `create_task` and `create_future` |
//! | `ready_queue` | callbacks that are ready to run, also for programs that run them themselves |
//! | `threadsafe_handle_lock` | the thread that runs a callback, for threads that wait for its end |
//! | `fd_watchers` | registrations of `add_reader` and `add_writer` |
//! | `cross_thread_commands` | commands for the engine that other threads queue |
//! | `engine_key_objects` | the Python objects of the engine's keys |
//! | `stats` | the values of `loop.stats()` |
//! | `loop_flags` | flags of a loop that is stopping, closed or in debug mode |
//! | `clock` | asyncio's clock |

mod accepted_connections;
pub mod clock;
pub mod cross_thread_commands;
pub mod engine_key_objects;
pub mod event_dispatch;
pub mod fd_watchers;
pub mod handle;
pub mod iteration;
pub mod loop_core;
pub mod loop_flags;
pub mod ready_queue;
pub mod scheduling;
pub mod stats;
pub mod task_and_future_creation;
pub mod threadsafe_handle_lock;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::capi::fastcall;

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<loop_core::LoopCore>()?;
    m.add_class::<handle::Handle>()?;
    m.add_class::<handle::TimerHandle>()?;
    add_quick_methods(&m.py().get_type::<loop_core::LoopCore>())?;
    m.add_function(wrap_pyfunction!(add_quick_methods, m)?)?;
    fd_watchers::register(m)?;
    ready_queue::register(m)
}

/// Adds the methods that are called most to a class of loops as methods of that class. The interpreter's fastest call
/// of a method requires that the object's class is the class for which the method was made, and not a subclass.
#[pyfunction]
#[pyo3(name = "_add_quick_methods")]
fn add_quick_methods(class: &Bound<'_, PyType>) -> PyResult<()> {
    let py = class.py();
    let core = py.get_type::<loop_core::LoopCore>();
    if !class.is_subclass(&core)? {
        return Err(PyTypeError::new_err("class must be an event loop class"));
    }
    let methods = scheduling::methods()
        .into_iter()
        .chain(task_and_future_creation::methods(py)?);
    fastcall::add_methods(class, methods)
}
