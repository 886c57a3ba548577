//! The QPACK encoder: encodes field lines to field sections, writes the encoder stream, and reads the peer's decoder
//! stream.
//!
//! Policy: a field line is inserted in the dynamic table when it is sent for the second time. So values that occur
//! once take no room, and a short connection needs no insertion. Unless `may_block` is set, a section refers only to
//! entries that the peer has acknowledged, so that a lost packet of the encoder stream blocks no section. Fields whose
//! names show that they are secret are never indexed, neither here nor by an intermediary (RFC 9204 section 7.1).

use std::collections::VecDeque;

use bytes::Bytes;

use uringcore_wire::field_compression::dynamic_table::{DynamicTable, joined};
use uringcore_wire::field_compression::secret_fields::is_secret;
use uringcore_wire::field_compression::{FIELD_OVERHEAD, prefixed_integer, string_literal};

use super::keep_rest;
use super::static_table::{self, Match};
use crate::error::{Code, ConnectionError};

/// This side's limits for the encoder. The peer's limits arrive in its SETTINGS.
#[derive(Debug, Clone, Copy)]
pub struct EncoderSettings {
    /// The maximum size of the dynamic table, in bytes as RFC 9204 section 3.2.1 counts them.
    pub table_capacity: usize,
    /// If true, a section may refer to entries that the peer may not have received yet, within the peer's limit of
    /// blocked streams. This saves bytes, but a request may have to wait for a lost packet of another stream.
    pub may_block: bool,
}

#[derive(Debug)]
pub struct Encoder {
    settings: EncoderSettings,
    table: DynamicTable,
    /// The peer's SETTINGS_QPACK_MAX_TABLE_CAPACITY. Required insert counts are encoded modulo a number that depends
    /// on it.
    peer_max_capacity: usize,
    peer_blocked_streams: usize,
    /// The number of insertions that the peer has acknowledged (RFC 9204 section 2.1.4).
    known_received: u64,
    /// Sections with references that the peer has not acknowledged, the oldest first, because most are acknowledged in
    /// that order. At most [`OUTSTANDING_SECTIONS_MAX`].
    outstanding: VecDeque<Section>,
    index: Index,
    /// The first bytes of an incomplete instruction of the peer; at most ten bytes.
    partial: Vec<u8>,
    /// Bytes for the encoder stream that the caller has not taken yet.
    instructions: Vec<u8>,
}

/// The references of a section that the peer has not acknowledged.
#[derive(Debug, Clone, Copy)]
struct Section {
    stream_id: u64,
    required_insert_count: u64,
    /// The lowest absolute index that the section refers to. Entries from it on must not be evicted (RFC 9204 section
    /// 2.1.1).
    lowest_reference: u64,
}

/// A field section that is being encoded.
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

    /// Applies the peer's SETTINGS. From then on the encoder uses the dynamic table (RFC 9204 section 3.2.3).
    pub fn handle_settings(&mut self, max_table_capacity: u64, blocked_streams: u64) {
        // A capacity above this value gives the same result in the computation of RFC 9204 section 4.5.1.1.
        self.peer_max_capacity = usize::try_from(max_table_capacity).unwrap_or(usize::MAX / 4);
        self.peer_blocked_streams = usize::try_from(blocked_streams).unwrap_or(usize::MAX);
        let capacity = self.settings.table_capacity.min(self.peer_max_capacity);
        if capacity > FIELD_OVERHEAD {
            self.table.set_capacity(capacity);
            // Set Dynamic Table Capacity (RFC 9204 section 4.3.1).
            prefixed_integer::put(&mut self.instructions, 0x20, 5, capacity as u64);
        }
    }

    /// Frees unused capacity, and the hashes of lines that were sent once.
    pub fn free_capacity(&mut self) {
        self.outstanding.shrink_to_fit();
        self.instructions.shrink_to_fit();
        self.partial.shrink_to_fit();
        self.index.seen = Vec::new();
    }

    /// Begins a field section. Its lines are appended to `body`; [`SectionEncoder::finish`] appends its prefix.
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

    /// Handles data of the peer's decoder stream (RFC 9204 section 4.4). Returns the number of stream cancellations.
    /// The other instructions need no count, because they answer what this side has sent.
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

    /// Handles the complete instructions in `data`. Returns their length in bytes, and the number of stream
    /// cancellations.
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

    /// Returns the bytes for the encoder stream that were produced since the last call.
    pub fn take_instructions(&mut self) -> Option<Bytes> {
        if self.instructions.is_empty() {
            return None;
        }
        let bytes = Bytes::copy_from_slice(&self.instructions);
        self.instructions.clear();
        Some(bytes)
    }

    /// RFC 9204 section 4.4.1: the oldest section of this stream was decoded.
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

    /// RFC 9204 section 4.4.2: no section of this stream will be acknowledged.
    fn handle_stream_cancellation(&mut self, stream_id: u64) {
        self.outstanding
            .retain(|section| section.stream_id != stream_id);
    }

    /// RFC 9204 section 4.4.3: the peer has received `increment` more insertions.
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

    /// True if the peer's limit of blocked streams allows a section on this stream that may block (RFC 9204 section
    /// 2.1.2).
    fn may_block_stream(&self, stream_id: u64) -> bool {
        let required = |section: &&Section| section.required_insert_count > self.known_received;
        let mut at_risk = self.outstanding.iter().filter(required);
        // A stream with two sections that may block counts twice. That is stricter than the limit requires.
        at_risk.clone().count() < self.peer_blocked_streams
            || at_risk.any(|section| section.stream_id == stream_id)
    }

    /// Inserts a field line, unless entries would be evicted that are referenced or not acknowledged yet. Returns the
    /// absolute index of the new entry.
    fn insert(
        &mut self,
        name: &[u8],
        value: &[u8],
        named: Match,
        lowest_reference: u64,
    ) -> Option<u64> {
        let size = name.len() + value.len() + FIELD_OVERHEAD;
        // A line that takes more than three quarters of the table is not inserted.
        if size > self.table.capacity() / 4 * 3 {
            return None;
        }
        let first_kept = self.table.first_kept_after(size)?;
        // RFC 9204 section 2.1.1: an entry may be evicted only after its insertion and all references to it were
        // acknowledged.
        if first_kept > self.lowest_pinned().min(lowest_reference) {
            return None;
        }
        match named {
            Match::Field(index) | Match::Name(index) => {
                // Insert with Name Reference, for a name in the static table (RFC 9204 section 4.3.2).
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
            // Indexed Field Line (RFC 9204 section 4.5.2), for an entry of the static table.
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

    /// Ends the section: appends its prefix (RFC 9204 section 4.5.1) after the lines, although it comes first on the
    /// stream. Returns the position of the prefix in the buffer.
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

    /// Returns the absolute index of a dynamic entry that equals the line. If there is none, inserts one if the policy
    /// and the table's capacity allow that.
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
                    // The table has no room for the line now. Its hash is forgotten, because trying to insert it each
                    // time would cost more than it saves.
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
            // Indexed Field Line (RFC 9204 section 4.5.2), for an entry of the dynamic table.
            prefixed_integer::put(self.body, 0x80, 6, self.base - 1 - absolute);
        } else {
            // Indexed Field Line with Post-Base Index (RFC 9204 section 4.5.3).
            prefixed_integer::put(self.body, 0x10, 4, absolute - self.base);
        }
    }

    fn literal(&mut self, name: &[u8], value: &[u8], named: Match, never_indexed: bool) {
        match named {
            Match::Field(index) | Match::Name(index) => {
                let flags = if never_indexed { 0x70 } else { 0x50 };
                prefixed_integer::put(self.body, flags, 4, u64::from(index));
            }
            Match::None => {
                string_literal::put(self.body, if never_indexed { 0x30 } else { 0x20 }, 3, name)
            }
        }
        string_literal::put(self.body, 0, 7, value);
    }
}

/// Finds the newest entry with a hash, and remembers hashes of lines that were sent once. Each hash has one slot, so a
/// collision loses the older hash. That only costs compression, because an entry is compared with the line before it
/// is used.
#[derive(Debug, Default)]
struct Index {
    /// For each slot, the absolute index of an entry plus one; 0 if empty. Allocated when the table is first used.
    entries: Vec<u64>,
    /// For each slot, a part of the hash of a line that was sent once; 0 if empty.
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

    /// True if this hash was stored before and not overwritten since. Stores the hash.
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

/// A fast hash of all bytes of a line. A bad hash only lowers the hit rate.
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

/// While more sections than this are unacknowledged, the dynamic table is not used. This bounds the memory for a peer
/// that never acknowledges.
const OUTSTANDING_SECTIONS_MAX: usize = 256;

const INDEX_SLOTS: usize = 256;
