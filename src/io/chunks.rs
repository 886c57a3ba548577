//! A vector that grows by the piece: nothing in it ever moves.
//!
//! For tables of what idle connections keep. A `Vec` copies itself to a place of twice the size as it grows,
//! and leaves holes in the heap that are as large as itself, which a process with thousands of connections
//! pays for as long as it lives.

use std::ops::{Index, IndexMut};

/// Elements are pushed and stay.
pub struct Chunks<T> {
    /// All but the last are full.
    chunks: Vec<Vec<T>>,
}

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<T> Chunks<T> {
    /// Adds an element behind the others.
    pub fn push(&mut self, value: T) {
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK => last.push(value),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(value);
                self.chunks.push(chunk);
            }
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        let before = self.chunks.len().saturating_sub(1) * CHUNK;
        before + self.chunks.last().map_or(0, Vec::len)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// So many fit without another piece.
    pub fn capacity(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    /// The element at `index`, if there is one.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)
    }

    /// The same to be changed.
    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }

    /// The same to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.chunks.iter_mut().flatten()
    }
}

impl<T> Index<usize> for Chunks<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        &self.chunks[index / CHUNK][index % CHUNK]
    }
}

impl<T> IndexMut<usize> for Chunks<T> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        &mut self.chunks[index / CHUNK][index % CHUNK]
    }
}

/// Elements of a piece.
const CHUNK: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_where_they_were_pushed_and_do_not_move() {
        let mut chunks = Chunks::default();
        assert!(chunks.is_empty() && chunks.get(0).is_none());
        chunks.push(0);
        let first = std::ptr::from_ref(&chunks[0]);
        for number in 1..1000 {
            chunks.push(number);
        }
        assert_eq!(chunks.len(), 1000);
        assert_eq!(chunks.capacity(), 1024);
        assert!(chunks.iter().copied().eq(0..1000));
        chunks[700] += 1;
        assert_eq!(chunks.get(700), Some(&701));
        assert!(chunks.get(1000).is_none() && chunks.get_mut(1000).is_none());
        assert_eq!(first, std::ptr::from_ref(&chunks[0]));
    }
}
