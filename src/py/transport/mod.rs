//! Transports: the Python side of the engine's streams and datagram sockets.
//!
//! | file | content |
//! | --- | --- |
//! | `base_transport` | the common part: protocol, context, end |
//! | `stream` | the stream transport |
//! | `datagram` | the datagram transport |

pub mod base_transport;
pub mod datagram;
pub mod stream;

use pyo3::prelude::*;

use crate::capi::class_with_dict;

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<base_transport::BaseTransport>()?;
    m.add(
        "StreamTransport",
        class_with_dict::class::<stream::StreamTransport>(m.py())?,
    )?;
    m.add(
        "DatagramTransport",
        class_with_dict::class::<datagram::DatagramTransport>(m.py())?,
    )?;
    Ok(())
}
