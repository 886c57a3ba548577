//! The parts of field compression that HPACK (RFC 7541) and QPACK (RFC 9204) share.
//!
//! | file | content |
//! | --- | --- |
//! | `huffman` | the Huffman code of strings |
//! | `prefixed_integer` | prefixed integers |
//! | `string_literal` | string literals |
//! | `dynamic_table` | the dynamic table |
//! | `secret_fields` | fields that stay out of the dynamic table |
//!
//! Not here: static tables and representations of field lines, which differ (`h3::qpack`, `http::http2::hpack`).

pub mod dynamic_table;
pub mod huffman;
pub mod prefixed_integer;
pub mod secret_fields;
pub mod string_literal;

use bytes::Bytes;

/// A field line: its name and its value.
pub type Field = (Bytes, Bytes);

/// The number of bytes that a table entry or a field line counts in addition to its name and value (RFC 7541 section
/// 4.1, RFC 9204 section 3.2.1, RFC 9114 section 4.2.2).
pub const FIELD_OVERHEAD: usize = 32;
