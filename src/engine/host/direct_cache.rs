//! What a host has met and may meet again, each in one place, which a later one may take: a cache that
//! looks at one place alone, and grows only where two things want the same. Not here: what is kept, and
//! its hash.

/// Things by their hash. A place holds whatever came there last: who asks compares.
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
    /// What is in the place of `hash`, of this hash or another.
    pub fn get(&self, hash: usize) -> Option<&E> {
        self.entries.get(self.slot(hash))?.as_ref()
    }

    /// Puts `entry` in its place and gives back what was there, for the caller to drop where it may. The
    /// places grow while two hashes want the same one: those that had different places still have.
    pub fn keep(&mut self, entry: E, hash: impl Fn(&E) -> usize) -> Option<E> {
        if self.entries.is_empty() {
            self.entries.resize_with(PLACES_MIN, || None);
        }
        let wanted = hash(&entry);
        while self.entries.len() < PLACES_MAX
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

/// Places at first and at most; powers of two.
const PLACES_MIN: usize = 4;
const PLACES_MAX: usize = 256;
