//! HTTP/3 for Python: the connection over any QUIC connection object, its events, and QPACK on its own.
//!
//! | file | content |
//! | --- | --- |
//! | `connection` | `H3ConnectionCore`: QUIC events in, HTTP events out, commands |
//! | `errors` | misuse as exceptions |
//! | `events` | the event classes |
//! | `field_conversion` | field lines between `uringcore_h3` and lists of tuples |
//! | `qpack` | `QpackEncoder` and `QpackDecoder`, for programs and tests that need only these |
//! | `quic_event_kinds` | the kinds of QUIC events |
//! | `qlog_trace` | frames and stream types in a qlog trace |
//!
//! No file here interprets a frame or validates a message; `uringcore_h3` does.

mod connection;
mod errors;
mod events;
mod field_conversion;
mod qlog_trace;
mod qpack;
mod quic_event_kinds;

use pyo3::prelude::*;

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<connection::H3ConnectionCore>()?;
    m.add_class::<qpack::QpackEncoder>()?;
    m.add_class::<qpack::QpackDecoder>()?;
    events::register(m)
}
