//! A table by descriptor. Its memory does not depend on how high the numbers are.
//!
//! A call on a socket looks its descriptor up several times. So the entry that was found last is checked before the
//! hash table.

use std::cell::Cell;
use std::os::fd::RawFd;

use rustc_hash::FxHashMap;

pub(super) struct DescriptorTable<T> {
    entries: Vec<(RawFd, T)>,
    /// The indexes of `entries`.
    indexes: FxHashMap<RawFd, u32>,
    /// The index that was found last. It may be the index of another entry now, or of none.
    last: Cell<usize>,
}

impl<T> Default for DescriptorTable<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            indexes: FxHashMap::default(),
            last: Cell::new(0),
        }
    }
}

impl<T> DescriptorTable<T> {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(super) fn get(&self, fd: RawFd) -> Option<&T> {
        let index = self.index(fd)?;
        Some(&self.entries[index].1)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, fd: RawFd) -> Option<&mut T> {
        let index = self.index(fd)?;
        Some(&mut self.entries[index].1)
    }

    #[inline]
    pub(super) fn get_or_insert_with(&mut self, fd: RawFd, make: impl FnOnce() -> T) -> &mut T {
        let index = match self.index(fd) {
            Some(index) => index,
            None => self.insert(fd, make()),
        };
        &mut self.entries[index].1
    }

    #[inline]
    fn index(&self, fd: RawFd) -> Option<usize> {
        let last = self.last.get();
        if self.entries.get(last).is_some_and(|(at, _)| *at == fd) {
            return Some(last);
        }
        let index = *self.indexes.get(&fd)? as usize;
        self.last.set(index);
        Some(index)
    }

    #[cold]
    fn insert(&mut self, fd: RawFd, entry: T) -> usize {
        let index = self.entries.len();
        self.entries.push((fd, entry));
        self.indexes.insert(fd, index as u32);
        index
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (RawFd, &T)> {
        self.entries.iter().map(|(fd, entry)| (*fd, entry))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().map(|(_, entry)| entry)
    }

    /// Removes the entries for which `keep` returns false, and most of the memory if few are left.
    pub(super) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.entries.retain(|(_, entry)| keep(entry));
        let len = self.entries.len();
        self.indexes.clear();
        if len < self.entries.capacity() / 8 {
            self.entries.shrink_to(2 * len);
            self.indexes.shrink_to(2 * len);
        }
        let indexes = self.entries.iter().zip(0..);
        self.indexes
            .extend(indexes.map(|((fd, _), index)| (*fd, index)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_found_by_its_descriptor_after_others_were_removed() {
        let mut table = DescriptorTable::default();
        for fd in [7, 1_000_000, 3, 9] {
            assert_eq!(*table.get_or_insert_with(fd, || fd), fd);
            assert_eq!(*table.get_or_insert_with(fd, || panic!("it exists")), fd);
        }
        assert_eq!(table.get(9), Some(&9));
        table.retain(|fd| fd % 2 == 1 && *fd != 7);
        assert_eq!(table.len(), 2);
        for fd in [7, 1_000_000, -1] {
            assert_eq!(table.get(fd), None, "{fd}");
        }
        for fd in [3, 9, 3] {
            assert_eq!(table.get_mut(fd), Some(&mut { fd }), "{fd}");
        }
        assert_eq!(*table.get_or_insert_with(7, || 70), 70);
        let all: Vec<_> = table.iter().collect();
        assert_eq!(all, [(3, &3), (9, &9), (7, &70)]);
        table.retain(|_| false);
        assert_eq!(table.get(3), None);
        assert_eq!(table.iter_mut().count(), 0);
    }

    #[test]
    fn the_memory_of_a_peak_is_returned() {
        let mut table = DescriptorTable::default();
        for fd in 0..10_000 {
            table.get_or_insert_with(fd, || fd);
        }
        table.retain(|fd| *fd < 10);
        assert!(table.entries.capacity() < 1_000 && table.indexes.capacity() < 1_000);
    }
}
