//! Operations for which a Python future waits.
//!
//! | file | content |
//! | --- | --- |
//! | `waiting` | an operation and its future |
//! | `file` | file operations, and reads that need not wait |
//! | `spawn` | the start of a child process |

pub mod file;
pub mod spawn;
pub mod waiting;

use pyo3::prelude::*;

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<spawn::Spawn>()?;
    file::register(m)
}
