//! QPACK, field compression for HTTP/3 (RFC 9204): the encoder of our field sections and the
//! decoder of the peer's.
//!
//! | file | content |
//! | --- | --- |
//! | `encoder` | field lines to field sections, and our encoder stream |
//! | `decoder` | field sections to field lines, and our decoder stream |
//! | `dynamic_table` | the dynamic table |
//! | `static_table` | the static table and the search in it |
//! | `string_literal` | string literals |
//! | `huffman` | the Huffman code of strings |
//! | `prefixed_integer` | prefixed integers |
//!
//! Each half is sans-IO: it reads and writes the bytes of field sections and of the two instruction streams. The stream
//! identifiers and the meaning of fields do not matter here.

pub mod decoder;
mod dynamic_table;
pub mod encoder;
pub mod huffman;
pub mod prefixed_integer;
pub mod static_table;
mod string_literal;

pub use decoder::{Decoded, Decoder, DecoderSettings};
pub use encoder::{Encoder, EncoderSettings};

use bytes::Bytes;

/// A field line: its name and its value.
pub type Field = (Bytes, Bytes);

/// Removes the first `used` bytes of the buffered bytes of an instruction stream. Frees capacity that only a large
/// piece of data needed.
fn keep_rest(mut joined: Vec<u8>, used: usize) -> Vec<u8> {
    if used > 0 {
        joined.drain(..used);
        joined.shrink_to_fit();
    }
    joined
}

/// The number of bytes that a table entry or a field line counts in addition to its name and value (RFC 9204 section
/// 3.2.1, RFC 9114 section 4.2.2).
pub const FIELD_OVERHEAD: usize = 32;
