//! The HPACK encoder: encodes field lines to field blocks (RFC 7541 section 6).
//!
//! Policy: a line is inserted in the dynamic table when it is first sent, because an insertion takes no more bytes than
//! a plain literal. Lines with values that seldom repeat are not inserted. Secret lines are never indexed, neither here
//! nor by an intermediary (RFC 7541 section 7.1.3).

use std::collections::VecDeque;
use std::hash::Hasher;

use rustc_hash::FxHasher;
use uringcore_wire::field_compression::dynamic_table::{DynamicTable, joined};
use uringcore_wire::field_compression::secret_fields::is_secret;
use uringcore_wire::field_compression::{FIELD_OVERHEAD, prefixed_integer, string_literal};

use super::TABLE_BYTES;
use super::static_table::{self, Match};

#[derive(Debug)]
pub struct Encoder {
    table: DynamicTable,
    /// A hash of each entry of the table, in their order. A search compares these before it compares lines.
    hashes: VecDeque<u32>,
    /// The smallest size of the table since the last block, if the size has changed since then. The next block begins
    /// with an update (RFC 7541 section 4.2).
    smallest: Option<usize>,
}

impl Default for Encoder {
    fn default() -> Self {
        let mut table = DynamicTable::default();
        table.set_capacity(TABLE_BYTES);
        Self {
            table,
            hashes: VecDeque::new(),
            smallest: None,
        }
    }
}

impl Encoder {
    /// Applies the client's SETTINGS_HEADER_TABLE_SIZE.
    pub fn set_table_max(&mut self, max: u32) {
        let size = usize::try_from(max).map_or(TABLE_BYTES, |max| max.min(TABLE_BYTES));
        if size == self.table.capacity() {
            return;
        }
        let before = self.smallest.unwrap_or(usize::MAX);
        self.smallest = Some(before.min(size));
        self.table.set_capacity(size);
        self.forget_evicted();
    }

    /// Begins a field block. [`field`](Self::field) adds its lines.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some(smallest) = self.smallest.take() {
            let size = self.table.capacity();
            if smallest < size {
                prefixed_integer::put(out, 0x20, 5, smallest as u64);
            }
            prefixed_integer::put(out, 0x20, 5, size as u64);
        }
    }

    /// Encodes a field line.
    pub fn field(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        let named = static_table::find(name, value);
        if let Match::Field(index) = named {
            // Indexed field line (RFC 7541 section 6.1).
            prefixed_integer::put(out, 0x80, 7, u64::from(index));
            return;
        }
        if is_secret(name, value) {
            return literal(out, 0x10, 4, named, name, value);
        }
        let size = name.len() + value.len() + FIELD_OVERHEAD;
        if !repeats(name) || size > self.table.capacity() / 2 {
            return literal(out, 0, 4, named, name, value);
        }
        let hash = hash(name, value);
        if let Some(index) = self.find(hash, name, value) {
            prefixed_integer::put(out, 0x80, 7, index);
            return;
        }
        literal(out, 0x40, 6, named, name, value);
        let (name, value) = joined(name, value);
        self.table.insert(name, value);
        self.hashes.push_back(hash);
        self.forget_evicted();
    }

    /// Encodes a field line without the dynamic table. So the block may be sent after blocks that are encoded later.
    pub fn independent_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        let flags = if is_secret(name, value) { 0x10 } else { 0 };
        match static_table::find(name, value) {
            Match::Field(index) => prefixed_integer::put(out, 0x80, 7, u64::from(index)),
            named => literal(out, flags, 4, named, name, value),
        }
    }

    /// Returns the index of the entry that equals a line.
    fn find(&self, hash: u32, name: &[u8], value: &[u8]) -> Option<u64> {
        let newest = self.table.insert_count();
        for (age, &other) in (1u64..).zip(self.hashes.iter().rev()) {
            if other == hash
                && self
                    .table
                    .get(newest.checked_sub(age)?)
                    .is_some_and(|entry| entry.0 == name && entry.1 == value)
            {
                return Some(static_table::ENTRY_COUNT as u64 + age);
            }
        }
        None
    }

    /// Drops the hashes of entries that are no longer in the table.
    fn forget_evicted(&mut self) {
        let excess = self.hashes.len().saturating_sub(self.table.len());
        self.hashes.drain(..excess);
    }
}

fn literal(
    out: &mut Vec<u8>,
    flags: u8,
    prefix_bits: u32,
    named: Match,
    name: &[u8],
    value: &[u8],
) {
    match named {
        Match::Field(index) | Match::Name(index) => {
            prefixed_integer::put(out, flags, prefix_bits, u64::from(index));
        }
        Match::None => {
            out.push(flags);
            string_literal::put(out, 0, 7, name);
        }
    }
    string_literal::put(out, 0, 7, value);
}

/// False for fields whose value differs in most messages. In the table they would only evict other lines.
fn repeats(name: &[u8]) -> bool {
    !matches!(
        name,
        b":path"
            | b"age"
            | b"content-length"
            | b"content-range"
            | b"etag"
            | b"expires"
            | b"last-modified"
            | b"link"
            | b"location"
            | b"traceparent"
            | b"x-request-id"
    )
}

fn hash(name: &[u8], value: &[u8]) -> u32 {
    let mut hasher = FxHasher::default();
    hasher.write(name);
    hasher.write(value);
    (hasher.finish() >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::super::{Bounds, Decoder};
    use super::*;

    const BOUNDS: Bounds = Bounds {
        bytes: 1 << 20,
        fields: 1000,
    };

    struct Pair {
        encoder: Encoder,
        decoder: Decoder,
    }

    impl Pair {
        fn new() -> Self {
            Self {
                encoder: Encoder::default(),
                decoder: Decoder::default(),
            }
        }

        /// Returns the length of the encoded block.
        fn check(&mut self, lines: &[(&str, &str)]) -> usize {
            let mut block = Vec::new();
            self.encoder.begin(&mut block);
            for (name, value) in lines {
                self.encoder
                    .field(&mut block, name.as_bytes(), value.as_bytes());
            }
            let section = self.decoder.decode(&block, BOUNDS).expect("a block");
            let decoded = section.fields.iter().map(|(name, value)| {
                let text = |bytes| std::str::from_utf8(bytes).expect("text");
                (text(name), text(value))
            });
            assert_eq!(Vec::from_iter(decoded), lines);
            block.len()
        }
    }

    #[test]
    fn a_repeated_line_takes_one_byte() {
        let mut pair = Pair::new();
        let lines = [
            (":status", "200"),
            ("server", "uvicorn"),
            ("x-other", "one"),
        ];
        assert!(pair.check(&lines) > 10);
        assert_eq!(pair.check(&lines), 3);
    }

    #[test]
    fn secret_and_changing_lines_stay_out_of_the_table() {
        let mut pair = Pair::new();
        for line in [
            ("set-cookie", "id=secret"),
            ("cookie", "short"),
            ("etag", "\"1\""),
            ("content-length", "12"),
        ] {
            let first = pair.check(&[line]);
            assert_eq!(pair.check(&[line]), first, "{line:?}");
            assert!(pair.encoder.table.is_empty());
        }
    }

    #[test]
    fn evicted_lines_are_sent_in_full_again() {
        let mut pair = Pair::new();
        let long = "v".repeat(1000);
        let names = Vec::from_iter((0..20).map(|number| format!("x-{number}")));
        for _ in 0..3 {
            for name in &names {
                pair.check(&[(name, &long), ("x-same", "1")]);
            }
        }
        assert_eq!(pair.encoder.hashes.len(), pair.encoder.table.len());
        let huge = "v".repeat(5000);
        pair.check(&[("x-huge", &huge), ("x-same", "1")]);
    }

    #[test]
    fn changes_of_the_table_size_are_announced_with_the_smallest_size() {
        let mut pair = Pair::new();
        pair.check(&[("x-a", "1")]);
        pair.encoder.set_table_max(0);
        pair.encoder.set_table_max(100);
        let mut block = Vec::new();
        pair.encoder.begin(&mut block);
        assert_eq!(block, [0x20, 0x3f, 100 - 31]);
        pair.decoder.decode(&block, BOUNDS).expect("a block");
        pair.check(&[("x-a", "1"), ("x-b", "2"), ("x-c", "3")]);
        pair.check(&[("x-a", "1"), ("x-b", "2"), ("x-c", "3")]);
        // A larger maximum than ours changes nothing.
        pair.encoder.set_table_max(1 << 20);
        pair.check(&[("x-a", "1")]);
        pair.encoder.set_table_max(4096);
        block.clear();
        pair.encoder.begin(&mut block);
        assert!(block.is_empty());
    }
}
