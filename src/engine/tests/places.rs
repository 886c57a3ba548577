//! What is remembered has one place, and gives it up to what comes later.

use std::rc::Rc;

use uringcore_engine::Places;

/// A thing whose hash is its first half.
type Entry = (usize, &'static str);

fn hash(entry: &Entry) -> usize {
    entry.0
}

#[test]
fn nothing_is_found_before_anything_is_kept() {
    let places = Places::<Entry>::default();
    for hash in [0, 1, usize::MAX] {
        assert_eq!(places.get(hash), None);
    }
    assert_eq!(places.iter().count(), 0);
}

#[test]
fn what_is_kept_is_found_by_its_hash() {
    let mut places = Places::default();
    for entry in [(0, "a"), (1, "b"), (6, "c"), (usize::MAX, "d")] {
        assert_eq!(places.keep(entry, hash), None);
        assert_eq!(places.get(entry.0), Some(&entry));
    }
    assert_eq!(places.iter().count(), 4);
}

#[test]
fn the_same_hash_takes_the_place_and_what_was_there_comes_back() {
    let mut places = Places::default();
    places.keep((5, "old"), hash);
    assert_eq!(places.keep((5, "new"), hash), Some((5, "old")));
    assert_eq!(places.get(5), Some(&(5, "new")));
    assert_eq!(places.iter().count(), 1);
}

#[test]
fn places_grow_until_two_hashes_have_one_each() {
    let mut places = Places::default();
    places.keep((3, "other"), hash);
    // These differ first in the bit of 128: each has a place of its own only among all 256.
    assert_eq!(places.keep((0, "a"), hash), None);
    assert_eq!(places.keep((128, "b"), hash), None);
    for entry in [(0, "a"), (128, "b"), (3, "other")] {
        assert_eq!(places.get(entry.0), Some(&entry));
    }
}

#[test]
fn two_that_differ_beyond_the_last_place_share_one() {
    let mut places = Places::default();
    places.keep((7, "first"), hash);
    places.keep((8, "other"), hash);
    assert_eq!(places.keep((7 + 256, "later"), hash), Some((7, "first")));
    // Who asks for the first finds the later one, and has to compare.
    assert_eq!(places.get(7), Some(&(7 + 256, "later")));
    assert_eq!(places.get(8), Some(&(8, "other")));
}

#[test]
fn no_more_are_kept_than_there_are_places() {
    let mut places = Places::default();
    let gone = (0..1000_usize)
        .filter_map(|hash| places.keep((hash, ""), self::hash))
        .count();
    assert_eq!((places.iter().count(), gone), (256, 744));
    assert!((744..1000).all(|hash| places.get(hash) == Some(&(hash, ""))));
}

/// The host's entries may run its program when they are dropped, so it is the caller who drops them.
#[test]
fn nothing_is_dropped_inside() {
    let mut places = Places::default();
    let all: Vec<_> = (0..600_usize).map(Rc::new).collect();
    let mut out = Vec::new();
    for one in &all {
        out.extend(places.keep(one.clone(), |one| (**one).wrapping_mul(37)));
    }
    assert_eq!(out.len() + places.iter().count(), all.len());
    assert!(all.iter().all(|one| Rc::strong_count(one) == 2));
}
