//! The event loop: its turn, its handles and timers, and the handling of the engine's events.
//!
//! | file | content |
//! | --- | --- |
//! | `loop_core` | the event loop class: methods that asyncio's base class calls |
//! | `turn` | the loop's turn: waiting, running callbacks |
//! | `event_dispatch` | from an event of the engine to the object that handles it |
//! | `accepted_connections` | accepted connections |
//! | `handle` | `Handle` and `TimerHandle` |
//! | `scheduling` | making handles: `call_soon`, `call_later` and the like |
//! | `tasks` | `create_task` and `create_future` |
//! | `ready_queue` | callbacks that are ready to run, also for programs that run them themselves |
//! | `running_callback` | the thread that runs a callback, and waiting for its end |
//! | `fd_watchers` | readers and writers |
//! | `cross_thread_commands` | changes of the engine that the loop's thread makes for other threads |
//! | `engine_objects` | the Python objects of the engine's keys |
//! | `stats` | the values of `loop.stats()` |
//! | `atomic_flags` | flags of a loop that is not in its usual state |
//! | `clock` | asyncio's clock |

mod accepted_connections;
pub mod atomic_flags;
pub mod clock;
pub mod cross_thread_commands;
pub mod engine_objects;
pub mod event_dispatch;
pub mod fd_watchers;
pub mod handle;
pub mod loop_core;
pub mod ready_queue;
pub mod running_callback;
pub mod scheduling;
pub mod stats;
pub mod tasks;
pub mod turn;

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

/// Adds the most frequent methods to a class of loops as its own. The interpreter's fastest call of a method works only if
/// the object is exactly of the class for which the method was made.
#[pyfunction]
#[pyo3(name = "_add_quick_methods")]
fn add_quick_methods(class: &Bound<'_, PyType>) -> PyResult<()> {
    let py = class.py();
    let core = py.get_type::<loop_core::LoopCore>();
    if !class.is_subclass(&core)? {
        return Err(PyTypeError::new_err("class must be an event loop class"));
    }
    let methods = scheduling::methods().into_iter().chain(tasks::methods(py)?);
    fastcall::add_methods(class, methods)
}
