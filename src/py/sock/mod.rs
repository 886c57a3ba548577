//! The `sock_*` calls: Python's own socket objects on the loop.
//!
//! | file | content |
//! | --- | --- |
//! | `calls` | the calls as operations |
//! | `op_queues` | the futures and socket objects of the operations in a socket's queues |
//! | `orphans` | results whose waiter was cancelled |
//! | `plain_socket` | reads the attributes of Python's socket objects |
//! | `socket_object` | makes socket objects over descriptors |

pub mod calls;
pub mod op_queues;
pub mod orphans;
pub mod plain_socket;
pub mod socket_object;

use pyo3::prelude::*;

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    calls::register(m)?;
    plain_socket::register(m)
}
