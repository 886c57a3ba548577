//! The QPACK decoder: reads the peer's encoder stream, decodes field sections to field lines, and writes the decoder
//! stream.
//!
//! A field section is blocked while it refers to entries that the encoder stream has not delivered yet. The decoder
//! does not store such a section: it returns the required insert count, and the caller passes the section in again when
//! the dynamic table has as many insertions. The decoder counts the streams with blocked sections, and fails the
//! connection if they exceed SETTINGS_QPACK_BLOCKED_STREAMS, which this side announced (RFC 9204 section 2.1.2).

use std::collections::BTreeMap;

use bytes::Bytes;

use uringcore_wire::field_compression::dynamic_table::{DynamicTable, joined};
use uringcore_wire::field_compression::{FIELD_OVERHEAD, Field, prefixed_integer, string_literal};

use super::{keep_rest, static_table};
use crate::error::{Code, ConnectionError, RemoteError};

/// The limits of a decoder. This side announces the first three in SETTINGS.
#[derive(Debug, Clone, Copy)]
pub struct DecoderSettings {
    /// The largest capacity of the dynamic table in bytes (SETTINGS_QPACK_MAX_TABLE_CAPACITY).
    pub max_table_capacity: usize,
    /// The maximum number of blocked streams (SETTINGS_QPACK_BLOCKED_STREAMS).
    pub blocked_streams: usize,
    /// SETTINGS_MAX_FIELD_SECTION_SIZE, in bytes as RFC 9114 section 4.2.2 counts them. A section that exceeds it
    /// after decompression is rejected.
    pub max_field_section_size: usize,
    /// The maximum number of lines in a field section.
    pub max_fields: usize,
}

/// The result of decoding a well-formed field section.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded {
    Fields(Vec<Field>),
    /// The section can be decoded after `required_insert_count` insertions into the dynamic table.
    Blocked {
        required_insert_count: u64,
    },
}

#[derive(Debug)]
pub struct Decoder {
    settings: DecoderSettings,
    table: DynamicTable,
    /// The first bytes of an incomplete instruction. [`Decoder::string_length_max`] bounds them.
    partial: Vec<u8>,
    /// The insert count that the peer's encoder can derive from the instructions sent so far.
    acknowledged: u64,
    /// The blocked streams, each with the insert count that it needs.
    blocked: BTreeMap<u64, u64>,
    /// Bytes for the decoder stream that the caller has not taken yet.
    instructions: Vec<u8>,
    /// True if `instructions` contains a stream cancellation.
    urgent: bool,
    /// True if a field section was decoded since the last [`Decoder::take_has_decoded`].
    has_decoded: bool,
    /// The decoded string literals of the current section; kept as a buffer for the next section.
    arena: Vec<u8>,
}

impl Decoder {
    pub fn new(settings: DecoderSettings) -> Self {
        Self {
            settings,
            table: DynamicTable::default(),
            partial: Vec::new(),
            acknowledged: 0,
            blocked: BTreeMap::new(),
            instructions: Vec::new(),
            urgent: false,
            has_decoded: false,
            arena: Vec::new(),
        }
    }

    /// Frees the unused capacity of buffers.
    pub fn free_capacity(&mut self) {
        self.instructions.shrink_to_fit();
        self.partial.shrink_to_fit();
        self.arena = Vec::new();
    }

    /// The number of insertions so far. A section whose required insert count is at most this can be decoded.
    pub fn insert_count(&self) -> u64 {
        self.table.insert_count()
    }

    /// Handles data of the peer's encoder stream (RFC 9204 section 4.3). Returns the number of instructions that it
    /// completed.
    pub fn handle_encoder_stream(&mut self, data: &[u8]) -> Result<usize, ConnectionError> {
        if self.partial.is_empty() {
            let (used, count) = self.read_instructions(data)?;
            self.partial.extend_from_slice(&data[used..]);
            return Ok(count);
        }
        let mut joined = std::mem::take(&mut self.partial);
        joined.extend_from_slice(data);
        let (used, count) = self.read_instructions(&joined)?;
        self.partial = keep_rest(joined, used);
        Ok(count)
    }

    /// Decodes a field section (RFC 9204 section 4.5). If insertions are missing, returns the insert count that it
    /// needs; the caller passes the section in again later.
    ///
    /// # Errors
    ///
    /// A connection error as RFC 9204 section 6 requires. [`RemoteError::TooLarge`] for a section above the limits;
    /// the fields after the limit are not decoded, and the caller cancels the stream.
    pub fn decode(&mut self, stream_id: u64, section: &[u8]) -> Result<Decoded, RemoteError> {
        let (required_insert_count, base, used) = self.read_prefix(stream_id, section)?;
        if required_insert_count > self.table.insert_count() {
            if !self.blocked.contains_key(&stream_id)
                && self.blocked.len() >= self.settings.blocked_streams
            {
                // RFC 9204 section 2.1.2: more streams are blocked than this side announced.
                return Err(failed("too many blocked streams").into());
            }
            self.blocked.insert(stream_id, required_insert_count);
            return Ok(Decoded::Blocked {
                required_insert_count,
            });
        }
        self.blocked.remove(&stream_id);
        let mut arena = std::mem::take(&mut self.arena);
        arena.clear();
        let fields = self.read_section(&section[used..], required_insert_count, base, &mut arena);
        if arena.capacity() <= ARENA_KEPT_MAX {
            self.arena = arena;
        }
        let fields = fields?;
        if required_insert_count > 0 {
            // Section Acknowledgment (RFC 9204 section 4.4.1).
            prefixed_integer::put(&mut self.instructions, 0x80, 7, stream_id);
            self.acknowledged = self.acknowledged.max(required_insert_count);
        }
        self.has_decoded = true;
        Ok(Decoded::Fields(fields))
    }

    /// True if a field section was decoded since the last call.
    pub fn take_has_decoded(&mut self) -> bool {
        std::mem::take(&mut self.has_decoded)
    }

    /// Called when reading of a stream was abandoned: informs the encoder that the stream's sections will not be
    /// acknowledged (RFC 9204 section 4.4.2).
    pub fn cancel_stream(&mut self, stream_id: u64) {
        self.blocked.remove(&stream_id);
        // RFC 9204 section 2.2.2.2: without a dynamic table no section has references, so a cancellation may be
        // omitted.
        if self.settings.max_table_capacity > 0 {
            prefixed_integer::put(&mut self.instructions, 0x40, 6, stream_id);
            self.urgent = true;
        }
    }

    /// True if the instructions should be sent now: they acknowledge insertions, to which the encoder may then refer
    /// without risk, or contain a cancellation, or many acknowledgments of sections. A few of these can wait, because
    /// the encoder only keeps the referenced entries longer.
    pub fn wants_flush(&self) -> bool {
        self.urgent
            || self.table.insert_count() > self.acknowledged
            || self.instructions.len() >= DEFERRED_BYTES_MAX
    }

    /// Takes the bytes for the decoder stream since the last call. If insertions arrived that no section
    /// acknowledgment covers, an Insert Count Increment is added (RFC 9204 section 4.4.3).
    pub fn take_instructions(&mut self) -> Option<Bytes> {
        let increment = self.table.insert_count() - self.acknowledged;
        if increment > 0 {
            prefixed_integer::put(&mut self.instructions, 0, 6, increment);
            self.acknowledged = self.table.insert_count();
        }
        if self.instructions.is_empty() {
            return None;
        }
        self.urgent = false;
        let bytes = Bytes::copy_from_slice(&self.instructions);
        self.instructions.clear();
        Some(bytes)
    }

    /// Handles the complete instructions in `data`. Returns their length in bytes and their number.
    fn read_instructions(&mut self, data: &[u8]) -> Result<(usize, usize), ConnectionError> {
        let (mut position, mut count) = (0, 0);
        while position < data.len() {
            let Some(used) = self.read_instruction(&data[position..])? else {
                break;
            };
            position += used;
            count += 1;
        }
        Ok((position, count))
    }

    fn read_instruction(&mut self, data: &[u8]) -> Result<Option<usize>, ConnectionError> {
        let first = data[0];
        if first & 0x80 != 0 {
            self.read_insert_with_name_reference(data)
        } else if first & 0x40 != 0 {
            self.read_insert_with_literal_name(data)
        } else if first & 0x20 != 0 {
            // Set Dynamic Table Capacity (RFC 9204 section 4.3.1).
            let Some((capacity, used)) = prefixed_integer::get(data, 5).map_err(|_| overflow())?
            else {
                return Ok(None);
            };
            if capacity > self.settings.max_table_capacity as u64 {
                return Err(encoder_stream_error(
                    "dynamic table capacity above the limit",
                ));
            }
            self.table.set_capacity(capacity as usize);
            Ok(Some(used))
        } else {
            // Duplicate (RFC 9204 section 4.3.4).
            let Some((index, used)) = prefixed_integer::get(data, 5).map_err(|_| overflow())?
            else {
                return Ok(None);
            };
            let (name, value) = self.relative_to_end(index)?.clone();
            self.insert(name, value)?;
            Ok(Some(used))
        }
    }

    /// Insert with Name Reference (RFC 9204 section 4.3.2).
    fn read_insert_with_name_reference(
        &mut self,
        data: &[u8],
    ) -> Result<Option<usize>, ConnectionError> {
        let Some((index, used)) = prefixed_integer::get(data, 6).map_err(|_| overflow())? else {
            return Ok(None);
        };
        let name = if data[0] & 0x40 != 0 {
            let (name, _) = static_table::get(index)
                .ok_or_else(|| encoder_stream_error("no such static table entry"))?;
            Bytes::from_static(name)
        } else {
            self.relative_to_end(index)?.0.clone()
        };
        let mut value = Vec::new();
        let Some(length) = self.read_string(&data[used..], 7, &mut value)? else {
            return Ok(None);
        };
        self.insert(name, value.into())?;
        Ok(Some(used + length))
    }

    /// Insert with Literal Name (RFC 9204 section 4.3.3).
    fn read_insert_with_literal_name(
        &mut self,
        data: &[u8],
    ) -> Result<Option<usize>, ConnectionError> {
        // The name is decoded only when the whole instruction has arrived. Otherwise the name would be decoded again
        // for each byte of the value that arrives.
        let Some(name_length) = self.string_size(data, 5)? else {
            return Ok(None);
        };
        if self.string_size(&data[name_length..], 7)?.is_none() {
            return Ok(None);
        }
        let mut text = Vec::new();
        self.read_string(data, 5, &mut text)?;
        let split = text.len();
        let Some(value_length) = self.read_string(&data[name_length..], 7, &mut text)? else {
            return Ok(None);
        };
        let (name, value) = joined(&text[..split], &text[split..]);
        self.insert(name, value)?;
        Ok(Some(name_length + value_length))
    }

    fn string_size(&self, data: &[u8], prefix_bits: u32) -> Result<Option<usize>, ConnectionError> {
        string_literal::find(data, prefix_bits, self.string_length_max())
            .map(|text| text.map(|text| text.end))
            .map_err(|_| encoder_stream_error("invalid string literal"))
    }

    fn read_string(
        &self,
        data: &[u8],
        prefix_bits: u32,
        out: &mut Vec<u8>,
    ) -> Result<Option<usize>, ConnectionError> {
        string_literal::get(data, prefix_bits, self.string_length_max(), out)
            .map_err(|_| encoder_stream_error("invalid string literal"))
    }

    /// The maximum encoded length of a string in an instruction, which bounds `partial`. A Huffman code has at most 30
    /// bits, so an encoded string has less than four times the bytes of the decoded string; a longer one makes an
    /// entry that does not fit in the table.
    fn string_length_max(&self) -> usize {
        self.table.capacity().saturating_mul(4)
    }

    fn insert(&mut self, name: Bytes, value: Bytes) -> Result<(), ConnectionError> {
        if self.table.insert(name, value) {
            Ok(())
        } else {
            // RFC 9204 section 3.2.2: an entry larger than the table is an error. (In HPACK it empties the table.)
            Err(encoder_stream_error("entry larger than the dynamic table"))
        }
    }

    /// Returns the entry for an index of the encoder stream, which counts from the newest entry (RFC 9204 section
    /// 3.2.5).
    fn relative_to_end(&self, index: u64) -> Result<&Field, ConnectionError> {
        self.table
            .insert_count()
            .checked_sub(1)
            .and_then(|last| last.checked_sub(index))
            .and_then(|absolute| self.table.get(absolute))
            .ok_or_else(|| encoder_stream_error("no such dynamic table entry"))
    }

    /// Parses the Encoded Field Section Prefix (RFC 9204 section 4.5.1). Returns the required insert count, the base,
    /// and the length of the prefix in bytes.
    fn read_prefix(
        &self,
        stream_id: u64,
        section: &[u8],
    ) -> Result<(u64, u64, usize), ConnectionError> {
        let (encoded, used) = section_integer(section, 8)?;
        let required = match self.blocked.get(&stream_id) {
            // A blocked section keeps the required insert count that was computed when it arrived. The encoded value
            // is relative to the number of insertions, and could mean another count now.
            Some(&required) => required,
            None => self.required_insert_count(encoded)?,
        };
        let (delta, delta_used) = section_integer(&section[used..], 7)?;
        let base = if section[used] & 0x80 == 0 {
            required.checked_add(delta)
        } else {
            // RFC 9204 section 4.5.1.2: a negative base is an error.
            required
                .checked_sub(delta)
                .and_then(|base| base.checked_sub(1))
        };
        let base = base.ok_or_else(|| failed("base out of range"))?;
        Ok((required, base, used + delta_used))
    }

    /// Decodes the required insert count, which is encoded modulo twice the maximum number of entries in the table
    /// (RFC 9204 section 4.5.1.1).
    fn required_insert_count(&self, encoded: u64) -> Result<u64, ConnectionError> {
        if encoded == 0 {
            return Ok(0);
        }
        let max_entries = (self.settings.max_table_capacity / FIELD_OVERHEAD) as u64;
        let full_range = 2 * max_entries;
        if encoded > full_range {
            return Err(failed("required insert count out of range"));
        }
        let max_value = self.table.insert_count() + max_entries;
        let max_wrapped = max_value / full_range * full_range;
        let mut required = max_wrapped + encoded - 1;
        if required > max_value {
            required = required
                .checked_sub(full_range)
                .ok_or_else(|| failed("required insert count out of range"))?;
        }
        if required == 0 {
            Err(failed("required insert count out of range"))
        } else {
            Ok(required)
        }
    }

    fn read_section(
        &self,
        mut data: &[u8],
        required_insert_count: u64,
        base: u64,
        arena: &mut Vec<u8>,
    ) -> Result<Vec<Field>, RemoteError> {
        let mut lines: Vec<(Text, Text)> = Vec::with_capacity(16);
        let mut size = 0usize;
        let section = Section {
            table: &self.table,
            required_insert_count,
            base,
        };
        while !data.is_empty() {
            let (name, value, used) = section.read_line(data, arena)?;
            data = &data[used..];
            size += name.len() + value.len() + FIELD_OVERHEAD;
            // RFC 9114 section 4.2.2 does not prescribe the reaction to a section above the limit.
            if size > self.settings.max_field_section_size {
                let reason = "field section larger than SETTINGS_MAX_FIELD_SECTION_SIZE";
                return Err(too_large(reason, lines, arena));
            }
            if lines.len() == self.settings.max_fields {
                let reason = "more field lines than are accepted";
                return Err(too_large(reason, lines, arena));
            }
            lines.push((name, value));
        }
        Ok(fields(lines, arena))
    }
}

/// The name or value of a field line while its section is being decoded. Literals are ranges of the arena, which all
/// lines of the section share.
enum Text {
    Static(&'static [u8]),
    Dynamic(Bytes),
    Literal(std::ops::Range<usize>),
}

impl Text {
    fn len(&self) -> usize {
        match self {
            Self::Static(text) => text.len(),
            Self::Dynamic(text) => text.len(),
            Self::Literal(range) => range.len(),
        }
    }

    fn into_bytes(self, literals: &Bytes) -> Bytes {
        match self {
            Self::Static(text) => Bytes::from_static(text),
            Self::Dynamic(text) => text,
            Self::Literal(range) => literals.slice(range),
        }
    }
}

/// Makes the field lines of a section, with one allocation for all literals.
fn fields(lines: Vec<(Text, Text)>, arena: &[u8]) -> Vec<Field> {
    let literals = Bytes::copy_from_slice(arena);
    lines
        .into_iter()
        .map(|(name, value)| (name.into_bytes(&literals), value.into_bytes(&literals)))
        .collect()
}

#[cold]
fn too_large(reason: &'static str, lines: Vec<(Text, Text)>, arena: &[u8]) -> RemoteError {
    let mut fields = fields(lines, arena);
    fields.retain(|(name, _)| name.first() == Some(&b':'));
    RemoteError::TooLarge { reason, fields }
}

/// The table and the limits that apply to the field lines of one section.
struct Section<'a> {
    table: &'a DynamicTable,
    required_insert_count: u64,
    base: u64,
}

impl Section<'_> {
    /// Parses one field line representation (RFC 9204 sections 4.5.2 to 4.5.6). Returns the line, and the length of
    /// its representation in bytes.
    fn read_line(
        &self,
        data: &[u8],
        arena: &mut Vec<u8>,
    ) -> Result<(Text, Text, usize), ConnectionError> {
        let first = data[0];
        if first & 0x80 != 0 {
            // Indexed Field Line (RFC 9204 section 4.5.2).
            let (index, used) = section_integer(data, 6)?;
            let (name, value) = if first & 0x40 != 0 {
                static_field(index)?
            } else {
                self.dynamic_field(self.relative(index)?)?
            };
            Ok((name, value, used))
        } else if first & 0x40 != 0 {
            // Literal Field Line with Name Reference (RFC 9204 section 4.5.4).
            let (index, used) = section_integer(data, 4)?;
            let (name, _) = if first & 0x10 != 0 {
                static_field(index)?
            } else {
                self.dynamic_field(self.relative(index)?)?
            };
            let (value, value_used) = section_string(&data[used..], 7, arena)?;
            Ok((name, value, used + value_used))
        } else if first & 0x20 != 0 {
            // Literal Field Line with Literal Name (RFC 9204 section 4.5.6).
            let (name, used) = section_string(data, 3, arena)?;
            let (value, value_used) = section_string(&data[used..], 7, arena)?;
            Ok((name, value, used + value_used))
        } else if first & 0x10 != 0 {
            // Indexed Field Line with Post-Base Index (RFC 9204 section 4.5.3).
            let (index, used) = section_integer(data, 4)?;
            let (name, value) = self.dynamic_field(self.post_base(index)?)?;
            Ok((name, value, used))
        } else {
            // Literal Field Line with Post-Base Name Reference (RFC 9204 section 4.5.5).
            let (index, used) = section_integer(data, 3)?;
            let (name, _) = self.dynamic_field(self.post_base(index)?)?;
            let (value, value_used) = section_string(&data[used..], 7, arena)?;
            Ok((name, value, used + value_used))
        }
    }

    fn relative(&self, index: u64) -> Result<u64, ConnectionError> {
        self.base
            .checked_sub(1)
            .and_then(|last| last.checked_sub(index))
            .ok_or_else(|| failed("relative index out of range"))
    }

    fn post_base(&self, index: u64) -> Result<u64, ConnectionError> {
        self.base
            .checked_add(index)
            .ok_or_else(|| failed("post-base index out of range"))
    }

    /// Returns a dynamic entry. A section must not refer to an evicted entry, or to one at or above its required
    /// insert count (RFC 9204 section 2.2.1).
    fn dynamic_field(&self, absolute: u64) -> Result<(Text, Text), ConnectionError> {
        if absolute >= self.required_insert_count {
            return Err(failed("reference beyond the required insert count"));
        }
        let (name, value) = self
            .table
            .get(absolute)
            .ok_or_else(|| failed("reference to an evicted entry"))?;
        Ok((Text::Dynamic(name.clone()), Text::Dynamic(value.clone())))
    }
}

fn static_field(index: u64) -> Result<(Text, Text), ConnectionError> {
    let (name, value) =
        static_table::get(index).ok_or_else(|| failed("no such static table entry"))?;
    Ok((Text::Static(name), Text::Static(value)))
}

fn section_integer(data: &[u8], prefix_bits: u32) -> Result<(u64, usize), ConnectionError> {
    match prefixed_integer::get(data, prefix_bits) {
        Ok(Some(read)) => Ok(read),
        Ok(None) => Err(failed("field section ends inside an integer")),
        Err(_) => Err(failed("integer above 62 bits")),
    }
}

fn section_string(
    data: &[u8],
    prefix_bits: u32,
    arena: &mut Vec<u8>,
) -> Result<(Text, usize), ConnectionError> {
    let start = arena.len();
    match string_literal::get(data, prefix_bits, data.len(), arena) {
        Ok(Some(used)) => Ok((Text::Literal(start..arena.len()), used)),
        Ok(None) | Err(_) => Err(failed("invalid string literal")),
    }
}

fn failed(reason: &'static str) -> ConnectionError {
    ConnectionError::new(Code::QPACK_DECOMPRESSION_FAILED, reason)
}

fn encoder_stream_error(reason: &'static str) -> ConnectionError {
    ConnectionError::new(Code::QPACK_ENCODER_STREAM_ERROR, reason)
}

fn overflow() -> ConnectionError {
    encoder_stream_error("integer above 62 bits")
}

/// The capacity for literals that is kept for the next section, in bytes. Ordinary sections need no more.
const ARENA_KEPT_MAX: usize = 4096;

/// When section acknowledgments of this many bytes are queued they are sent. Each takes one to three bytes.
const DEFERRED_BYTES_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capacity_for_a_large_input_is_freed() {
        let mut decoder = Decoder::new(DecoderSettings {
            max_table_capacity: 4096,
            blocked_streams: 0,
            max_field_section_size: 100_000,
            max_fields: 100,
        });
        let mut section = b"\x00\x00\x21x".to_vec();
        prefixed_integer::put(&mut section, 0, 7, 50_000);
        section.resize(section.len() + 50_000, b'y');
        assert!(matches!(
            decoder.decode(0, &section),
            Ok(Decoded::Fields(_))
        ));
        assert!(decoder.arena.capacity() <= ARENA_KEPT_MAX);

        // The first piece ends inside an instruction. The second piece has the rest of it, and thousands of other
        // instructions.
        decoder.handle_encoder_stream(b"\x3f\xe1").unwrap();
        let mut piece = vec![0x1f];
        piece.resize(60_000, 0x20);
        piece.extend_from_slice(b"\x3f\xe1");
        decoder.handle_encoder_stream(&piece).unwrap();
        assert_eq!(decoder.partial, b"\x3f\xe1");
        assert!(decoder.partial.capacity() < 100);
    }
}
