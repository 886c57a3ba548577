//! QPACK, field compression for HTTP/3 (RFC 9204): the encoder of our field sections and the
//! decoder of the peer's.
//!
//! | file | content |
//! | --- | --- |
//! | `encoder` | field lines to field sections, and our encoder stream |
//! | `decoder` | field sections to field lines, and our decoder stream |
//! | `static_table` | the static table and the search in it |
//!
//! Each half is sans-IO: it reads and writes the bytes of field sections and of the two instruction streams. The stream
//! identifiers and the meaning of fields do not matter here. `wire::field_compression` has what HPACK needs as well.

pub mod decoder;
pub mod encoder;
pub mod static_table;

pub use decoder::{Decoded, Decoder, DecoderSettings};
pub use encoder::{Encoder, EncoderSettings};

pub use uringcore_wire::field_compression::{FIELD_OVERHEAD, Field, huffman, prefixed_integer};

/// Removes the first `used` bytes of the buffered bytes of an instruction stream. Frees capacity that only a large
/// piece of data needed.
fn keep_rest(mut joined: Vec<u8>, used: usize) -> Vec<u8> {
    if used > 0 {
        joined.drain(..used);
        joined.shrink_to_fit();
    }
    joined
}
