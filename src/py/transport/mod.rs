//! Transports: the Python classes over the engine's streams and datagram sockets.
//!
//! | file | content |
//! | --- | --- |
//! | `base_transport` | what stream and datagram transports have in common: protocol, context, lifecycle |
//! | `stream` | the stream transport |
//! | `datagram` | the datagram transport |
//! | `half_close` | the end of the sending direction alone |
//! | `native_protocol` | the base class of protocols in this extension |

pub mod base_transport;
pub mod datagram;
pub mod half_close;
pub mod native_protocol;
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
