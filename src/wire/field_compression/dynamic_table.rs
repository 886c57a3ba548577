//! The dynamic table (RFC 7541 section 2.3.2, RFC 9204 section 3.2), which the encoder and the decoder each have.
//!
//! Entries are identified by absolute indices, which count from the first insertion. The encoder and the decoder
//! convert relative and post-base indices.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{FIELD_OVERHEAD, Field};

/// A bounded queue of field lines. Invariant: `size <= capacity`, and the owner keeps `capacity` below its limit.
#[derive(Debug, Default)]
pub struct DynamicTable {
    entries: VecDeque<Field>,
    /// The absolute index of the oldest entry. It equals the number of evicted entries.
    dropped: u64,
    size: usize,
    capacity: usize,
}

impl DynamicTable {
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The number of insertions so far. It equals the absolute index of the next entry.
    pub fn insert_count(&self) -> u64 {
        self.dropped + self.entries.len() as u64
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn get(&self, absolute: u64) -> Option<&Field> {
        let position = absolute.checked_sub(self.dropped)?;
        self.entries.get(usize::try_from(position).ok()?)
    }

    /// Sets the capacity in bytes, and evicts the oldest entries if they no longer fit (RFC 9204 section 3.2.3).
    pub fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
        self.evict_to(capacity);
    }

    /// Inserts an entry, and evicts the oldest ones to make room. False, without an effect, if the entry is larger
    /// than the capacity.
    pub fn insert(&mut self, name: Bytes, value: Bytes) -> bool {
        let size = name.len() + value.len() + FIELD_OVERHEAD;
        let Some(room) = self.capacity.checked_sub(size) else {
            return false;
        };
        self.evict_to(room);
        self.size += size;
        self.entries.push_back((name, value));
        true
    }

    /// The lowest absolute index that stays in the table when an entry of `size` bytes is inserted; `None` if the
    /// entry is larger than the capacity.
    pub fn first_kept_after(&self, size: usize) -> Option<u64> {
        let room = self.capacity.checked_sub(size)?;
        let mut kept = self.size;
        let mut first = self.dropped;
        for (name, value) in &self.entries {
            if kept <= room {
                break;
            }
            kept -= name.len() + value.len() + FIELD_OVERHEAD;
            first += 1;
        }
        Some(first)
    }

    fn evict_to(&mut self, size: usize) {
        while self.size > size {
            let Some((name, value)) = self.entries.pop_front() else {
                break;
            };
            self.size -= name.len() + value.len() + FIELD_OVERHEAD;
            self.dropped += 1;
        }
    }

    #[cfg(test)]
    pub fn size(&self) -> usize {
        self.size
    }
}

/// Copies a name and a value into one allocation.
pub fn joined(name: &[u8], value: &[u8]) -> Field {
    let mut text = Vec::with_capacity(name.len() + value.len());
    text.extend_from_slice(name);
    text.extend_from_slice(value);
    let mut name_bytes = Bytes::from(text);
    let value_bytes = name_bytes.split_off(name.len());
    (name_bytes, value_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_insertion_evicts_the_oldest_entries_and_counts_the_rfcs_size() {
        let mut table = DynamicTable::default();
        table.set_capacity(70);
        assert!(table.insert(Bytes::from_static(b"a"), Bytes::from_static(b"1")));
        assert!(table.insert(Bytes::from_static(b"b"), Bytes::from_static(b"2")));
        assert_eq!(table.size(), 68);
        assert_eq!(table.first_kept_after(34), Some(1));
        assert!(table.insert(Bytes::from_static(b"c"), Bytes::from_static(b"3")));
        assert_eq!(table.insert_count(), 3);
        assert_eq!(table.get(0), None);
        assert_eq!(table.get(2).map(|field| &field.0[..]), Some(&b"c"[..]));
        assert_eq!(table.get(3), None);
        assert!(!table.insert(Bytes::from(vec![b'x'; 40]), Bytes::new()));
        assert_eq!(
            table.insert_count(),
            3,
            "an entry larger than the table changes nothing on our side"
        );
        table.set_capacity(0);
        assert_eq!((table.size(), table.get(2)), (0, None));
    }
}
