//! The `sock_*` calls: operations on Python's own socket objects.
//!
//! | file | content |
//! | --- | --- |
//! | `socket_operations` | `sock_recv`, `sock_sendall` and the other calls as operations of the ring |
//! | `operation_queues` | the futures and socket objects of the operations in a socket's queues |
//! | `cancelled_results` | results of cancelled calls, for the next call on the socket |
//! | `plain_sockets` | whether a call on a socket object uses the ring or asyncio's own code |
//! | `socket_object_creation` | makes socket objects over descriptors |

pub mod cancelled_results;
pub mod operation_queues;
pub mod plain_sockets;
pub mod socket_object_creation;
pub mod socket_operations;

use pyo3::prelude::*;

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    socket_operations::register(m)?;
    plain_sockets::register(m)
}
