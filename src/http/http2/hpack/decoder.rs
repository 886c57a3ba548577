//! The HPACK decoder: decodes the client's field blocks (RFC 7541 section 6).
//!
//! A block that exceeds the bounds is decoded to its end, because its insertions change the dynamic table, but its
//! remaining lines are dropped. So a block of a few bytes cannot make a large section ("HPACK bomb").

use std::ops::Range;

use bytes::Bytes;
use uringcore_wire::field_compression::dynamic_table::{DynamicTable, joined};
use uringcore_wire::field_compression::{FIELD_OVERHEAD, Field, prefixed_integer, string_literal};

use super::{TABLE_BYTES, static_table};

/// The error for a block that cannot be decoded. The dynamic tables of both sides differ from now on, so the connection
/// has to be closed (RFC 9113 section 4.3).
#[derive(Debug, PartialEq, Eq)]
pub struct Invalid;

/// The maximum size of a section.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The maximum number of bytes, counted as for SETTINGS_MAX_HEADER_LIST_SIZE (RFC 9113 section 6.5.2).
    pub bytes: usize,
    /// The maximum number of lines.
    pub fields: usize,
}

/// The lines of a field block.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Section {
    pub fields: Vec<Field>,
    /// True if the section exceeds the bounds. `fields` has the lines before the excess.
    pub is_too_large: bool,
}

#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable,
    /// The decoded string literals of the current block; kept as a buffer for the next block.
    arena: Vec<u8>,
    /// The names and values of the current block that are in the arena.
    in_arena: Vec<(usize, Part, Range<usize>)>,
}

#[derive(Debug, Clone, Copy)]
enum Part {
    Name,
    Value,
}

/// The name of a literal field line.
enum Name {
    Known(Bytes),
    InArena(Range<usize>),
}

/// A block that is being decoded.
struct Reader<'a> {
    rest: &'a [u8],
    section: Section,
    /// The size of the section so far.
    bytes: usize,
    bounds: Bounds,
}

impl Default for Decoder {
    fn default() -> Self {
        let mut table = DynamicTable::default();
        table.set_capacity(TABLE_BYTES);
        Self {
            table,
            arena: Vec::new(),
            in_arena: Vec::new(),
        }
    }
}

impl Decoder {
    /// Decodes a complete field block.
    pub fn decode(&mut self, block: &[u8], bounds: Bounds) -> Result<Section, Invalid> {
        let mut reader = Reader {
            rest: block,
            section: Section::default(),
            bytes: 0,
            bounds,
        };
        self.arena.clear();
        self.in_arena.clear();
        let mut is_first = true;
        while let Some(&first) = reader.rest.first() {
            match first {
                // Indexed field line (RFC 7541 section 6.1).
                0x80.. => {
                    let index = reader.integer(7)?;
                    let (name, value) = self.entry(index)?;
                    reader.add(name, value);
                }
                // Literal field line with incremental indexing (section 6.2.1).
                0x40.. => self.indexed_literal(&mut reader)?,
                // Dynamic table size update (section 6.3). It is allowed only at the beginning of a block (section
                // 4.2).
                0x20.. => {
                    let size = reader.integer(5)?;
                    if !is_first || size > TABLE_BYTES {
                        return Err(Invalid);
                    }
                    self.table.set_capacity(size);
                    continue;
                }
                // Literal field line without indexing, or never indexed (sections 6.2.2 and 6.2.3).
                _ => self.plain_literal(&mut reader)?,
            }
            is_first = false;
        }
        Ok(self.finish(reader.section))
    }

    /// Frees unused capacity.
    pub fn free_capacity(&mut self) {
        self.arena = Vec::new();
        self.in_arena = Vec::new();
    }

    fn entry(&self, index: usize) -> Result<Field, Invalid> {
        if let Some((name, value)) = static_table::get(index) {
            return Ok((Bytes::from_static(name), Bytes::from_static(value)));
        }
        // The newest entry of the dynamic table has the first index behind the static table (RFC 7541 section 2.3.3).
        let age = index
            .checked_sub(static_table::ENTRY_COUNT)
            .ok_or(Invalid)?;
        let absolute = self.table.insert_count().checked_sub(age as u64);
        let entry = absolute.and_then(|absolute| self.table.get(absolute));
        entry.filter(|_| age > 0).cloned().ok_or(Invalid)
    }

    fn indexed_literal(&mut self, reader: &mut Reader<'_>) -> Result<(), Invalid> {
        let begin = self.arena.len();
        let name = self.name(reader, 6)?;
        let value = reader.string(&mut self.arena)?;
        let (name, value) = match &name {
            Name::Known(name) => joined(name, &self.arena[value]),
            Name::InArena(name) => joined(&self.arena[name.clone()], &self.arena[value]),
        };
        self.arena.truncate(begin);
        if !self.table.insert(name.clone(), value.clone()) {
            // An entry that is larger than the table empties it (RFC 7541 section 4.4).
            let capacity = self.table.capacity();
            self.table.set_capacity(0);
            self.table.set_capacity(capacity);
        }
        reader.add(name, value);
        Ok(())
    }

    fn plain_literal(&mut self, reader: &mut Reader<'_>) -> Result<(), Invalid> {
        let begin = self.arena.len();
        let name = self.name(reader, 4)?;
        let value = reader.string(&mut self.arena)?;
        let at = reader.section.fields.len();
        let size = value.len();
        let is_added = match &name {
            Name::Known(name) => reader.add_sized(name.clone(), Bytes::new(), name.len() + size),
            Name::InArena(name) => reader.add_sized(Bytes::new(), Bytes::new(), name.len() + size),
        };
        if !is_added {
            self.arena.truncate(begin);
            return Ok(());
        }
        if let Name::InArena(name) = name {
            self.in_arena.push((at, Part::Name, name));
        }
        self.in_arena.push((at, Part::Value, value));
        Ok(())
    }

    fn name(&mut self, reader: &mut Reader<'_>, prefix_bits: u32) -> Result<Name, Invalid> {
        match reader.integer(prefix_bits)? {
            0 => reader.string(&mut self.arena).map(Name::InArena),
            index => self.entry(index).map(|(name, _)| Name::Known(name)),
        }
    }

    /// Completes the section with the strings in the arena.
    fn finish(&mut self, mut section: Section) -> Section {
        if !self.in_arena.is_empty() {
            let text = Bytes::copy_from_slice(&self.arena);
            for (at, part, range) in self.in_arena.drain(..) {
                let Some((name, value)) = section.fields.get_mut(at) else {
                    continue;
                };
                match part {
                    Part::Name => *name = text.slice(range),
                    Part::Value => *value = text.slice(range),
                }
            }
        }
        // A large section must not occupy memory of a connection that is idle afterwards.
        self.arena.clear();
        self.arena.shrink_to(ARENA_KEPT);
        section
    }
}

impl Reader<'_> {
    fn integer(&mut self, prefix_bits: u32) -> Result<usize, Invalid> {
        match prefixed_integer::get(self.rest, prefix_bits) {
            Ok(Some((value, used))) => {
                self.rest = &self.rest[used..];
                usize::try_from(value).map_err(|_| Invalid)
            }
            _ => Err(Invalid),
        }
    }

    /// Appends the next string to the arena.
    fn string(&mut self, arena: &mut Vec<u8>) -> Result<Range<usize>, Invalid> {
        let begin = arena.len();
        match string_literal::get(self.rest, 7, self.rest.len(), arena) {
            Ok(Some(used)) => {
                self.rest = &self.rest[used..];
                Ok(begin..arena.len())
            }
            _ => Err(Invalid),
        }
    }

    fn add(&mut self, name: Bytes, value: Bytes) {
        let size = name.len() + value.len();
        self.add_sized(name, value, size);
    }

    /// Adds a line whose name and value have `size` bytes. Returns false if the section is too large for it.
    fn add_sized(&mut self, name: Bytes, value: Bytes, size: usize) -> bool {
        self.bytes = self.bytes.saturating_add(size + FIELD_OVERHEAD);
        let has_room =
            self.bytes <= self.bounds.bytes && self.section.fields.len() < self.bounds.fields;
        if !has_room || self.section.is_too_large {
            self.section.is_too_large = true;
            return false;
        }
        if self.section.fields.is_empty() {
            self.section.fields.reserve(FIELDS_USUAL);
        }
        self.section.fields.push((name, value));
        true
    }
}

/// The capacity of the arena that is kept after a block.
const ARENA_KEPT: usize = 4096;
/// The number of lines that most requests do not exceed.
const FIELDS_USUAL: usize = 16;
