//! Tests of the direct-mapped cache: each entry has one slot, and a later entry in that slot replaces it.

use std::rc::Rc;

use uringcore_engine::DirectMappedCache;

/// An entry whose first field is its hash.
type Entry = (usize, &'static str);

fn hash(entry: &Entry) -> usize {
    entry.0
}

#[test]
fn an_empty_cache_finds_no_entry() {
    let direct_mapped_cache = DirectMappedCache::<Entry>::default();
    for hash in [0, 1, usize::MAX] {
        assert_eq!(direct_mapped_cache.get(hash), None);
    }
    assert_eq!(direct_mapped_cache.iter().count(), 0);
}

#[test]
fn an_entry_is_found_by_its_hash() {
    let mut direct_mapped_cache = DirectMappedCache::default();
    for entry in [(0, "a"), (1, "b"), (6, "c"), (usize::MAX, "d")] {
        assert_eq!(direct_mapped_cache.keep(entry, hash), None);
        assert_eq!(direct_mapped_cache.get(entry.0), Some(&entry));
    }
    assert_eq!(direct_mapped_cache.iter().count(), 4);
}

#[test]
fn an_entry_with_an_equal_hash_replaces_and_returns_the_old_one() {
    let mut direct_mapped_cache = DirectMappedCache::default();
    direct_mapped_cache.keep((5, "old"), hash);
    assert_eq!(direct_mapped_cache.keep((5, "new"), hash), Some((5, "old")));
    assert_eq!(direct_mapped_cache.get(5), Some(&(5, "new")));
    assert_eq!(direct_mapped_cache.iter().count(), 1);
}

#[test]
fn the_cache_grows_until_two_hashes_have_different_slots() {
    let mut direct_mapped_cache = DirectMappedCache::default();
    direct_mapped_cache.keep((3, "other"), hash);
    // The hashes differ first in the bit 128, so they have different slots only if there are 256.
    assert_eq!(direct_mapped_cache.keep((0, "a"), hash), None);
    assert_eq!(direct_mapped_cache.keep((128, "b"), hash), None);
    for entry in [(0, "a"), (128, "b"), (3, "other")] {
        assert_eq!(direct_mapped_cache.get(entry.0), Some(&entry));
    }
}

#[test]
fn hashes_that_differ_only_above_the_largest_size_share_a_slot() {
    let mut direct_mapped_cache = DirectMappedCache::default();
    direct_mapped_cache.keep((7, "first"), hash);
    direct_mapped_cache.keep((8, "other"), hash);
    assert_eq!(
        direct_mapped_cache.keep((7 + 256, "later"), hash),
        Some((7, "first"))
    );
    // The later entry has the same hash, so a look-up of the first entry finds the later one. The caller has to
    // compare.
    assert_eq!(direct_mapped_cache.get(7), Some(&(7 + 256, "later")));
    assert_eq!(direct_mapped_cache.get(8), Some(&(8, "other")));
}

#[test]
fn the_cache_keeps_at_most_its_number_of_slots() {
    let mut direct_mapped_cache = DirectMappedCache::default();
    let gone = (0..1000_usize)
        .filter_map(|hash| direct_mapped_cache.keep((hash, ""), self::hash))
        .count();
    assert_eq!((direct_mapped_cache.iter().count(), gone), (256, 744));
    assert!((744..1000).all(|hash| direct_mapped_cache.get(hash) == Some(&(hash, ""))));
}

/// Dropping an entry may run code of the host's program, so the cache leaves it to the caller.
#[test]
fn the_cache_returns_replaced_entries_instead_of_dropping_them() {
    let mut direct_mapped_cache = DirectMappedCache::default();
    let all: Vec<_> = (0..600_usize).map(Rc::new).collect();
    let mut out = Vec::new();
    for one in &all {
        out.extend(direct_mapped_cache.keep(one.clone(), |one| (**one).wrapping_mul(37)));
    }
    assert_eq!(out.len() + direct_mapped_cache.iter().count(), all.len());
    assert!(all.iter().all(|one| Rc::strong_count(one) == 2));
}
