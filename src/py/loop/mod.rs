//! The event loop: its turn, its handles and timers, and the handling of the engine's events.
//!
//! | file | content |
//! | --- | --- |
//! | `loop_core` | the event loop class: methods that asyncio's base class calls |
//! | `turn` | the loop's turn: waiting, running callbacks |
//! | `dispatch` | from an event of the engine to the object that handles it |
//! | `accepting` | accepted connections |
//! | `handle` | `Handle` and `TimerHandle` |
//! | `scheduling` | making handles: `call_soon`, `call_later` and the like |
//! | `tasks` | `create_task` and `create_future` |
//! | `ready` | callbacks that are ready to run, also for programs that run them themselves |
//! | `running` | the thread that runs a callback, and waiting for its end |
//! | `watchers` | readers and writers |
//! | `errands` | changes of the engine that the loop's thread makes for other threads |
//! | `hosts` | the Python objects of the engine's keys |
//! | `stats` | the values of `loop.stats()` |
//! | `mode` | flags of a loop that is not in its usual state |
//! | `clock` | asyncio's clock |

mod accepting;
pub mod clock;
pub mod dispatch;
pub mod errands;
pub mod handle;
pub mod hosts;
pub mod loop_core;
pub mod mode;
pub mod ready;
pub mod running;
pub mod scheduling;
pub mod stats;
pub mod tasks;
pub mod turn;
pub mod watchers;

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
    watchers::register(m)?;
    ready::register(m)
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
