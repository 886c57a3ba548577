//! A direct-mapped cache: each entry has one slot, by its hash, and a later entry may replace it there.
//!
//! A look-up reads a single slot. The cache grows only while two different hashes want the same slot. The host defines
//! the entries and their hash.

/// Entries by hash. A slot has the latest entry that was put there, so the caller compares it with what it looks for.
pub struct DirectMappedCache<E> {
    entries: Vec<Option<E>>,
}

impl<E> Default for DirectMappedCache<E> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
        }
    }
}

impl<E> DirectMappedCache<E> {
    /// The entry in the slot of `hash`, which may have another hash.
    pub fn get(&self, hash: usize) -> Option<&E> {
        self.entries.get(self.slot(hash))?.as_ref()
    }

    /// Puts `entry` into its slot and returns the previous one, which the caller drops where that is allowed. If the two
    /// have different hashes, the cache grows first. Entries that had different slots keep different ones.
    pub fn keep(&mut self, entry: E, hash: impl Fn(&E) -> usize) -> Option<E> {
        if self.entries.is_empty() {
            self.entries.resize_with(SLOTS_MIN, || None);
        }
        let wanted = hash(&entry);
        while self.entries.len() < SLOTS_MAX
            && self.get(wanted).is_some_and(|there| hash(there) != wanted)
        {
            let size = self.entries.len() * 2;
            let old = std::mem::take(&mut self.entries);
            self.entries.resize_with(size, || None);
            for entry in old.into_iter().flatten() {
                let at = self.slot(hash(&entry));
                self.entries[at] = Some(entry);
            }
        }
        let at = self.slot(wanted);
        self.entries[at].replace(entry)
    }

    pub fn iter(&self) -> impl Iterator<Item = &E> {
        self.entries.iter().flatten()
    }

    fn slot(&self, hash: usize) -> usize {
        hash & self.entries.len().wrapping_sub(1)
    }
}

/// The least and the largest number of slots; powers of two.
const SLOTS_MIN: usize = 4;
const SLOTS_MAX: usize = 256;
