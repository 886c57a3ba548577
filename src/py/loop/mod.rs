//! The event loop: its turn, its handles and timers, and who is told of what the engine brings.
//!
//! | file | noun |
//! | --- | --- |
//! | `loop_core` | the event loop class: what asyncio's base class calls |
//! | `turn` | the loop's turn: when to wait, what to run |
//! | `dispatch` | from an engine event to the Python callback that waits for it |
//! | `accepting` | connections that a listener brings |
//! | `handle` | `Handle` and `TimerHandle` |
//! | `scheduling` | making handles: `call_soon`, `call_later` and the like |
//! | `tasks` | `create_task` and `create_future` |
//! | `ready` | what waits to be run, shown to programs that run it themselves |
//! | `running` | which thread runs a callback, and waiting for its end |
//! | `watchers` | readers and writers |
//! | `errands` | what the loop's thread does for other threads |
//! | `hosts` | what the engine's keys stand for in Python |
//! | `stats` | what `loop.stats()` tells |
//! | `mode` | what is unusual about a loop, in one word |
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

/// Gives a class of loops the methods that are called most as its own: the interpreter's shortest way to
/// one is open only where the object is exactly of the class that the method was made for.
#[pyfunction]
#[pyo3(name = "_add_quick_methods")]
fn add_quick_methods(class: &Bound<'_, PyType>) -> PyResult<()> {
    let py = class.py();
    let core = py.get_type::<loop_core::LoopCore>();
    if !class.is_subclass(&core)? {
        return Err(PyTypeError::new_err("class must be one of loops"));
    }
    let methods = scheduling::methods().into_iter().chain(tasks::methods(py)?);
    fastcall::add_methods(class, methods)
}
