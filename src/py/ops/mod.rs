//! Operations of the ring for which a Python future waits.
//!
//! | file | content |
//! | --- | --- |
//! | `operation_futures` | an operation and its future |
//! | `file_operations` | file operations, and reads from the page cache |
//! | `process_spawn` | the start of a child process |

pub mod file_operations;
pub mod operation_futures;
pub mod process_spawn;

use pyo3::prelude::*;

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<process_spawn::Spawn>()?;
    file_operations::register(m)
}
