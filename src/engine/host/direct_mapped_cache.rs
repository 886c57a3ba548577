//! A direct-mapped cache: the hash of an entry determines its only slot, and a later entry with the same slot replaces
//! it.
//!
//! A look-up reads a single slot. The cache grows only when two entries with different hashes need the same slot. The
//! host defines the entries and their hashes.

/// A cache of entries by their hash. Entries with different hashes may share a slot, so a caller must compare an entry
/// that it finds with the one that it searches.
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
    /// The entry in the slot for `hash`. It may have another hash.
    pub fn get(&self, hash: usize) -> Option<&E> {
        self.entries.get(self.slot(hash))?.as_ref()
    }

    /// Puts `entry` into its slot. Returns the entry that was in the slot before, so that the caller chooses when to
    /// drop it. If the hashes of the two differ, the cache grows first, up to its maximum. Growing never moves two
    /// entries into one slot.
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

/// The minimum and the maximum number of slots, both powers of two.
const SLOTS_MIN: usize = 4;
const SLOTS_MAX: usize = 256;
