//! Content codings of responses (RFC 9110 section 8.4): gzip, br, zstd.
//!
//! | file | content |
//! | --- | --- |
//! | `accept_encoding` | the codings that a client accepts, in the order of preference |
//! | `compression_decision` | the decision about a response, and the changes of its fields |
//! | `encoder` | compresses content as it is written |
//!
//! Not here: the bound of concurrent encoders, and the memory that a client is charged for. The host has both.

mod accept_encoding;
mod compression_decision;
mod encoder;

pub use accept_encoding::{Coding, accepted};
pub use compression_decision::{Plan, Settings, weakened};
pub use encoder::Encoder;
