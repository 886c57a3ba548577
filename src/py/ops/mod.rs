//! Operations that a Python future waits for.
//!
//! | file | noun |
//! | --- | --- |
//! | `waiting` | an operation and the future of whoever waits for it |
//! | `file` | file operations, and those that need not wait |
//! | `spawn` | a child process on its way |

pub mod file;
pub mod spawn;
pub mod waiting;

use pyo3::prelude::*;

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<spawn::Spawn>()?;
    file::register(m)
}
