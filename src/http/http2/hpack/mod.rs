//! HPACK, field compression for HTTP/2 (RFC 7541): the decoder of the client's field blocks, and the encoder of ours.
//!
//! | file | content |
//! | --- | --- |
//! | `decoder` | field blocks to field lines |
//! | `encoder` | field lines to field blocks |
//! | `static_table` | the static table and the search in it |
//!
//! `wire::field_compression` has strings, integers and the dynamic table.

mod decoder;
mod encoder;
mod static_table;

pub use decoder::{Bounds, Decoder, Invalid, Section};
pub use encoder::Encoder;

/// The maximum size of both dynamic tables in bytes: the initial value of SETTINGS_HEADER_TABLE_SIZE (RFC 9113 section
/// 6.5.2), which this side does not change.
pub const TABLE_BYTES: usize = 4096;
