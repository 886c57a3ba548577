//! Transports: the Python side of the engine's streams and datagram sockets.
//!
//! | file | content |
//! | --- | --- |
//! | `base` | the common part: protocol, context, end |
//! | `stream` | the stream transport |
//! | `datagram` | the datagram transport |

pub mod base;
pub mod datagram;
pub mod stream;

use pyo3::prelude::*;

use crate::capi::open_class;

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<base::BaseTransport>()?;
    m.add(
        "StreamTransport",
        open_class::class::<stream::StreamTransport>(m.py())?,
    )?;
    m.add(
        "DatagramTransport",
        open_class::class::<datagram::DatagramTransport>(m.py())?,
    )?;
    Ok(())
}
