//! Content codings of responses (RFC 9110 section 8.4): gzip, br, zstd.
//!
//! | file | content |
//! | --- | --- |
//! | `accept_encoding` | the codings that a client accepts, in the order of preference |
//! | `plan` | the decision about a response, and the changes of its fields |
//! | `encoder` | compresses content as it is written |
//!
//! Not here: the bound of concurrent encoders, and the memory that a client is charged for. The host has both.

mod accept_encoding;
mod encoder;
mod plan;

pub use accept_encoding::{Coding, accepted};
pub use encoder::Encoder;
pub use plan::{Plan, Settings, weakened};
