//! The encoder: from field lines to field sections and our encoder stream; it also reads the peer's decoder stream.
//!
//! Policy. A field line enters the dynamic table the second time it is seen, so that one-off values take no room
//! and a short connection needs no insertion. Unless `may_block` is set, a section refers only to entries whose
//! arrival the peer has acknowledged: such a section is never blocked by a lost packet of the encoder stream.
//! Fields with a secret by their name are never indexed, here or by an intermediary (RFC 9204 section 7.1).

use std::collections::VecDeque;

use bytes::Bytes;

use super::static_table::{self, Match};
use super::dynamic_table::{DynamicTable, joined};
use super::{FIELD_OVERHEAD, prefixed_integer, keep_rest, string_literal};
use crate::error::{Code, ConnectionError};

/// Our side's limits; the peer's are in its SETTINGS.
#[derive(Debug, Clone, Copy)]
pub struct EncoderSettings {
    /// The maximal size of our table, in bytes as RFC 9204 section 3.2.1 counts them.
    pub table_capacity: usize,
    /// True if a section may refer to entries that the peer may not have yet, within the peer's limit on blocked
    /// streams. That saves bytes, but a request may have to wait for a lost packet of another stream.
    pub may_block: bool,
}

#[derive(Debug)]
pub struct Encoder {
    settings: EncoderSettings,
    table: DynamicTable,
    /// The peer's SETTINGS_QPACK_MAX_TABLE_CAPACITY, which its insert counts are reduced by.
    peer_max_capacity: usize,
    peer_blocked_streams: usize,
    /// How many insertions the peer has acknowledged (RFC 9204 section 2.1.4).
    known_received: u64,
    /// Sections with unacknowledged references, the oldest first, because most are acknowledged in that order. At
    /// most [`OUTSTANDING_SECTIONS_MAX`].
    outstanding: VecDeque<Section>,
    index: Index,
    /// The start of an incomplete instruction of the peer; at most ten bytes.
    partial: Vec<u8>,
    /// Bytes for our encoder stream that were not taken yet.
    instructions: Vec<u8>,
}

/// The references of an unacknowledged section.
#[derive(Debug, Clone, Copy)]
struct Section {
    stream_id: u64,
    required_insert_count: u64,
    /// No entry from this index on may be evicted (RFC 9204 section 2.1.1).
    lowest_reference: u64,
}

/// One section while it is being encoded.
#[derive(Debug)]
pub struct SectionEncoder<'a> {
    encoder: &'a mut Encoder,
    stream_id: u64,
    base: u64,
    required_insert_count: u64,
    lowest_reference: u64,
    may_block: bool,
    body: &'a mut Vec<u8>,
}

impl Encoder {
    pub fn new(settings: EncoderSettings) -> Self {
        Self {
            settings,
            table: DynamicTable::default(),
            peer_max_capacity: 0,
            peer_blocked_streams: 0,
            known_received: 0,
            outstanding: VecDeque::new(),
            index: Index::default(),
            partial: Vec::new(),
            instructions: Vec::new(),
        }
    }

    /// The peer's SETTINGS arrived: the table can be used (RFC 9204 section 3.2.3).
    pub fn handle_settings(&mut self, max_table_capacity: u64, blocked_streams: u64) {
        // Larger capacities give the same result in the arithmetic of section 4.5.1.1.
        self.peer_max_capacity = usize::try_from(max_table_capacity).unwrap_or(usize::MAX / 4);
        self.peer_blocked_streams = usize::try_from(blocked_streams).unwrap_or(usize::MAX);
        let capacity = self.settings.table_capacity.min(self.peer_max_capacity);
        if capacity > FIELD_OVERHEAD {
            self.table.set_capacity(capacity);
            // Set Dynamic Table Capacity (RFC 9204 section 4.3.1).
            prefixed_integer::put(&mut self.instructions, 0x20, 5, capacity as u64);
        }
    }

    /// Frees unused capacity, and the hashes of lines that were seen once.
    pub fn free_capacity(&mut self) {
        self.outstanding.shrink_to_fit();
        self.instructions.shrink_to_fit();
        self.partial.shrink_to_fit();
        self.index.seen = Vec::new();
    }

    /// Begins a section. Its lines are appended to `body`, and its prefix by [`SectionEncoder::finish`].
    pub fn section<'a>(&'a mut self, stream_id: u64, body: &'a mut Vec<u8>) -> SectionEncoder<'a> {
        let may_block = self.settings.may_block && self.may_block_stream(stream_id);
        let base = self.table.insert_count();
        SectionEncoder {
            encoder: self,
            stream_id,
            base,
            required_insert_count: 0,
            lowest_reference: u64::MAX,
            may_block,
            body,
        }
    }

    /// Handles data of the peer's decoder stream (RFC 9204 section 4.4). Returns the number of cancellations; the
    /// number of the other instructions is bounded by our own output.
    pub fn handle_decoder_stream(&mut self, data: &[u8]) -> Result<usize, ConnectionError> {
        if self.partial.is_empty() {
            let (used, cancellations) = self.read_instructions(data)?;
            self.partial.extend_from_slice(&data[used..]);
            return Ok(cancellations);
        }
        let mut joined = std::mem::take(&mut self.partial);
        joined.extend_from_slice(data);
        let (used, cancellations) = self.read_instructions(&joined)?;
        self.partial = keep_rest(joined, used);
        Ok(cancellations)
    }

    /// Reads whole instructions from `data`. Returns their length and the number of cancellations.
    fn read_instructions(&mut self, data: &[u8]) -> Result<(usize, usize), ConnectionError> {
        let (mut position, mut cancellations) = (0, 0);
        while let Some(&first) = data.get(position) {
            let bits = match first {
                0x80.. => 7,
                _ => 6,
            };
            let read = prefixed_integer::get(&data[position..], bits)
                .map_err(|_| decoder_stream_error("integer above 62 bits"))?;
            let Some((value, used)) = read else { break };
            position += used;
            match first {
                0x80.. => self.handle_section_acknowledgment(value)?,
                0x40.. => {
                    self.handle_stream_cancellation(value);
                    cancellations += 1;
                }
                _ => self.handle_insert_count_increment(value)?,
            }
        }
        Ok((position, cancellations))
    }

    /// The bytes for our encoder stream since the last call.
    pub fn take_instructions(&mut self) -> Option<Bytes> {
        if self.instructions.is_empty() {
            return None;
        }
        let bytes = Bytes::copy_from_slice(&self.instructions);
        self.instructions.clear();
        Some(bytes)
    }

    /// RFC 9204 section 4.4.1.
    fn handle_section_acknowledgment(&mut self, stream_id: u64) -> Result<(), ConnectionError> {
        let mut sections = self.outstanding.iter();
        let oldest = sections.position(|section| section.stream_id == stream_id);
        let Some(section) = oldest.and_then(|at| self.outstanding.remove(at)) else {
            return Err(decoder_stream_error(
                "acknowledgment of a section that was not sent",
            ));
        };
        self.known_received = self.known_received.max(section.required_insert_count);
        Ok(())
    }

    /// RFC 9204 section 4.4.2.
    fn handle_stream_cancellation(&mut self, stream_id: u64) {
        self.outstanding
            .retain(|section| section.stream_id != stream_id);
    }

    /// RFC 9204 section 4.4.3.
    fn handle_insert_count_increment(&mut self, increment: u64) -> Result<(), ConnectionError> {
        if increment == 0 {
            return Err(decoder_stream_error("insert count increment of zero"));
        }
        if increment > self.table.insert_count() - self.known_received {
            return Err(decoder_stream_error(
                "insert count increment beyond what was sent",
            ));
        }
        self.known_received += increment;
        Ok(())
    }

    /// True if a section on this stream may block (RFC 9204 section 2.1.2).
    fn may_block_stream(&self, stream_id: u64) -> bool {
        let required = |section: &&Section| section.required_insert_count > self.known_received;
        let mut at_risk = self.outstanding.iter().filter(required);
        // A stream with two of them counts twice, which is stricter than the peer's limit.
        at_risk.clone().count() < self.peer_blocked_streams
            || at_risk.any(|section| section.stream_id == stream_id)
    }

    /// Inserts a field line if that evicts no entry that is referenced or unacknowledged. Returns its absolute
    /// index.
    fn insert(
        &mut self,
        name: &[u8],
        value: &[u8],
        named: Match,
        lowest_reference: u64,
    ) -> Option<u64> {
        let size = name.len() + value.len() + FIELD_OVERHEAD;
        // One line must not take most of the table.
        if size > self.table.capacity() / 4 * 3 {
            return None;
        }
        let first_kept = self.table.first_kept_after(size)?;
        // RFC 9204 section 2.1.1: an entry is evictable once its insertion and all references to it
        // are acknowledged.
        if first_kept > self.lowest_pinned().min(lowest_reference) {
            return None;
        }
        match named {
            Match::Field(index) | Match::Name(index) => {
                // Insert with Name Reference (RFC 9204 section 4.3.2), static.
                prefixed_integer::put(&mut self.instructions, 0xc0, 6, u64::from(index));
            }
            Match::None => string_literal::put(&mut self.instructions, 0x40, 5, name),
        }
        string_literal::put(&mut self.instructions, 0, 7, value);
        let absolute = self.table.insert_count();
        let (name_bytes, value_bytes) = joined(name, value);
        let inserted = self.table.insert(name_bytes, value_bytes);
        debug_assert!(inserted);
        Some(absolute)
    }

    fn lowest_pinned(&self) -> u64 {
        let referenced = self
            .outstanding
            .iter()
            .map(|section| section.lowest_reference)
            .min();
        referenced.unwrap_or(u64::MAX).min(self.known_received)
    }
}

impl SectionEncoder<'_> {
    /// Encodes one field line (RFC 9204 section 4.5).
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        let named = static_table::find(name, value);
        if let Match::Field(index) = named {
            // Indexed Field Line, static.
            prefixed_integer::put(self.body, 0xc0, 6, u64::from(index));
            return;
        }
        if is_secret(name, value) {
            self.literal(name, value, named, true);
            return;
        }
        match self.dynamic_reference(name, value, named) {
            Some(absolute) => self.indexed(absolute),
            None => self.literal(name, value, named, false),
        }
    }

    /// Ends the section. Its prefix (RFC 9204 section 4.5.1), which precedes the lines on the stream, is appended to the
    /// buffer. Returns the position of the prefix.
    pub fn finish(self) -> usize {
        let position = self.body.len();
        if self.required_insert_count == 0 {
            self.body.extend_from_slice(&[0, 0]);
            return position;
        }
        let max_entries = (self.encoder.peer_max_capacity / FIELD_OVERHEAD) as u64;
        prefixed_integer::put(
            self.body,
            0,
            8,
            self.required_insert_count % (2 * max_entries) + 1,
        );
        if self.base >= self.required_insert_count {
            prefixed_integer::put(self.body, 0, 7, self.base - self.required_insert_count);
        } else {
            prefixed_integer::put(
                self.body,
                0x80,
                7,
                self.required_insert_count - self.base - 1,
            );
        }
        let section = Section {
            stream_id: self.stream_id,
            required_insert_count: self.required_insert_count,
            lowest_reference: self.lowest_reference,
        };
        self.encoder.outstanding.push_back(section);
        position
    }

    /// The index of an entry for the line. Inserts one if policy and room allow it.
    fn dynamic_reference(&mut self, name: &[u8], value: &[u8], named: Match) -> Option<u64> {
        if self.encoder.table.capacity() == 0
            || self.encoder.outstanding.len() >= OUTSTANDING_SECTIONS_MAX
        {
            return None;
        }
        let hash = hash(name, value);
        let absolute = match self.encoder.index.find(hash) {
            Some(absolute)
                if self
                    .encoder
                    .table
                    .get(absolute)
                    .is_some_and(|entry| entry.0 == name && entry.1 == value) =>
            {
                absolute
            }
            _ => {
                if !self.encoder.index.seen_before(hash) {
                    return None;
                }
                let inserted = self
                    .encoder
                    .insert(name, value, named, self.lowest_reference);
                let Some(absolute) = inserted else {
                    // There is no room now. Searching for room each time would cost more than it gains.
                    self.encoder.index.forget(hash);
                    return None;
                };
                self.encoder.index.insert(hash, absolute);
                absolute
            }
        };
        let usable = self.may_block || absolute < self.encoder.known_received;
        usable.then_some(absolute)
    }

    fn indexed(&mut self, absolute: u64) {
        self.required_insert_count = self.required_insert_count.max(absolute + 1);
        self.lowest_reference = self.lowest_reference.min(absolute);
        if absolute < self.base {
            // Indexed Field Line, dynamic.
            prefixed_integer::put(self.body, 0x80, 6, self.base - 1 - absolute);
        } else {
            // Indexed Field Line with Post-Base Index.
            prefixed_integer::put(self.body, 0x10, 4, absolute - self.base);
        }
    }

    fn literal(&mut self, name: &[u8], value: &[u8], named: Match, never_indexed: bool) {
        match named {
            Match::Field(index) | Match::Name(index) => {
                let flags = if never_indexed { 0x70 } else { 0x50 };
                prefixed_integer::put(self.body, flags, 4, u64::from(index));
            }
            Match::None => string_literal::put(self.body, if never_indexed { 0x30 } else { 0x20 }, 3, name),
        }
        string_literal::put(self.body, 0, 7, value);
    }
}

/// The position of the newest entry by hash, and recently seen hashes. Direct-mapped and lossy: a collision costs
/// compression, never correctness, because an entry is compared before it is used.
#[derive(Debug, Default)]
struct Index {
    /// Absolute indices plus one, truncated; zero is empty. Allocated when the table is first used.
    entries: Vec<u64>,
    seen: Vec<u32>,
}

impl Index {
    fn find(&self, hash: u64) -> Option<u64> {
        self.entries
            .get(hash as usize % INDEX_SLOTS)?
            .checked_sub(1)
    }

    fn insert(&mut self, hash: u64, absolute: u64) {
        if self.entries.is_empty() {
            self.entries.resize(INDEX_SLOTS, 0);
        }
        self.entries[hash as usize % INDEX_SLOTS] = absolute + 1;
    }

    /// True if this hash was seen before and is still stored; stores it.
    fn seen_before(&mut self, hash: u64) -> bool {
        if self.seen.is_empty() {
            self.seen.resize(INDEX_SLOTS, 0);
        }
        let mark = (hash >> 32) as u32 | 1;
        let slot = &mut self.seen[hash as usize % INDEX_SLOTS];
        std::mem::replace(slot, mark) == mark
    }

    fn forget(&mut self, hash: u64) {
        if let Some(slot) = self.seen.get_mut(hash as usize % INDEX_SLOTS) {
            *slot = 0;
        }
    }
}

/// Fields that must not enter a table in which an attacker can test guesses (RFC 9204 section 7.1.3). A long cookie
/// cannot be guessed piece by piece, but these names are reason enough to exclude the field.
fn is_secret(name: &[u8], value: &[u8]) -> bool {
    match name {
        b"authorization" | b"proxy-authorization" | b"set-cookie" => true,
        b"cookie" => value.len() < 20,
        _ => false,
    }
}

/// A fast hash of all bytes; its quality only affects the hit rate.
fn hash(name: &[u8], value: &[u8]) -> u64 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = (name.len() as u64) << 32 | value.len() as u64;
    for part in [name, value] {
        let mut chunks = part.chunks_exact(8);
        for chunk in &mut chunks {
            let word = u64::from_le_bytes(chunk.try_into().expect("chunks of eight"));
            hash = (hash.rotate_left(5) ^ word).wrapping_mul(K);
        }
        for &byte in chunks.remainder() {
            hash = (hash.rotate_left(5) ^ u64::from(byte)).wrapping_mul(K);
        }
    }
    hash ^ (hash >> 29)
}

fn decoder_stream_error(reason: &'static str) -> ConnectionError {
    ConnectionError::new(Code::QPACK_DECODER_STREAM_ERROR, reason)
}

/// With more unacknowledged sections with references than this, the table is not used: it bounds the memory for a
/// peer that never acknowledges.
const OUTSTANDING_SECTIONS_MAX: usize = 256;

const INDEX_SLOTS: usize = 256;
