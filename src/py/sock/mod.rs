//! The `sock_*` calls: Python's own socket objects used on the loop.
//!
//! | file | noun |
//! | --- | --- |
//! | `calls` | the calls as operations |
//! | `op_queues` | the futures and socket objects of the operations in a socket's queues |
//! | `orphans` | results that came for a cancelled waiter |
//! | `plain_socket` | what Python's socket objects are, read cheaply |
//! | `socket_object` | socket objects made over descriptors |

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
