//! A slab whose keys have a generation: a key whose entry was removed finds nothing, and not the next entry in the
//! same slot.

use uringcore_io::StableVec;

/// The key of an entry in a [`Slab`]: `generation:16 | index:32`.
///
/// The generation wraps around. So a key that is kept while its slot is used 65,536 more times would find a later
/// entry. No such key exists: a host drops its keys with `Closed` or the end of the operation, no completion has them
/// after that, and `OpQueues` drops the keys of cancelled operations within a tenth of a second.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    pub index: u32,
    pub generation: u16,
}

impl Key {
    pub fn as_u64(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub fn from_u64(raw: u64) -> Self {
        Self {
            index: raw as u32,
            generation: (raw >> 32) as u16,
        }
    }
}

struct Slot<T> {
    generation: u16,
    value: Option<T>,
}

/// A table of values by [`Key`].
pub struct Slab<T> {
    slots: StableVec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            slots: StableVec::default(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    /// Stores the value that `make` returns. `make` gets the new key, because values contain tokens with their key.
    pub fn insert_with(&mut self, make: impl FnOnce(Key) -> T) -> Key {
        match self.try_insert_with(|key| Ok::<T, std::convert::Infallible>(make(key))) {
            Ok(key) => key,
            Err(never) => match never {},
        }
    }

    /// Stores the value that `make` returns, unless it fails.
    pub fn try_insert_with<E>(&mut self, make: impl FnOnce(Key) -> Result<T, E>) -> Result<Key, E> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                value: None,
            });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        let key = Key {
            index,
            generation: slot.generation,
        };
        match make(key) {
            Ok(value) => {
                slot.value = Some(value);
                Ok(key)
            }
            Err(error) => {
                self.free.push(index);
                Err(error)
            }
        }
    }

    pub fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation == key.generation {
            slot.value.as_ref()
        } else {
            None
        }
    }

    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation == key.generation {
            slot.value.as_mut()
        } else {
            None
        }
    }

    pub fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        // The generation wraps around; the documentation of `Key` explains why that is safe.
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(value)
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.value.as_mut())
    }

    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let generation = slot.generation;
            slot.value.as_ref().map(|v| {
                (
                    Key {
                        index: index as u32,
                        generation,
                    },
                    v,
                )
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_does_not_find_the_slots_next_entry() {
        let mut table = Slab::default();
        let first = table.insert_with(|_| 1);
        assert_eq!(table.remove(first), Some(1));
        let second = table.insert_with(|_| 2);
        assert_eq!(second.index, first.index);
        assert_eq!(table.get(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get(second), Some(&2));
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn a_key_is_restored_from_its_integer() {
        let key = Key {
            index: 77,
            generation: 513,
        };
        assert_eq!(Key::from_u64(key.as_u64()), key);
    }

    #[test]
    fn a_stale_key_of_the_last_generation_does_not_find_the_next_entry() {
        let mut table = Slab::default();
        let first = table.insert_with(|_| 1);
        table.remove(first);
        table.slots[first.index as usize].generation = u16::MAX;
        let last = table.insert_with(|_| 2);
        assert_eq!(last.generation, u16::MAX);
        assert_eq!(table.remove(last), Some(2));
        let next = table.insert_with(|_| 3);
        assert_eq!((next.index, next.generation), (last.index, 0));
        assert_eq!(table.get(last), None);
        assert_eq!(table.remove(last), None);
        assert_eq!(table.get(next), Some(&3));
    }
}
