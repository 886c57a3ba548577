//! Send buffers of a QUIC socket. The state machine writes packets into a buffer, the kernel sends them, and then the
//! buffer is used again.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Buffers that are free.
pub(crate) struct BufferPool {
    free: Arc<Mutex<Vec<Vec<u8>>>>,
    kept_max: usize,
}

/// A buffer that is being filled or sent.
pub(crate) struct PooledBuffer {
    vec: Vec<u8>,
    free: Arc<Mutex<Vec<Vec<u8>>>>,
    kept_max: usize,
}

impl BufferPool {
    /// The pool keeps at most `kept_max` free buffers.
    pub fn new(kept_max: usize) -> Self {
        Self {
            free: Arc::default(),
            kept_max,
        }
    }

    pub fn take(&mut self) -> PooledBuffer {
        let vec = lock(&self.free).pop().unwrap_or_default();
        PooledBuffer {
            vec,
            free: self.free.clone(),
            kept_max: self.kept_max,
        }
    }
}

impl PooledBuffer {
    pub fn vec(&mut self) -> &mut Vec<u8> {
        &mut self.vec
    }

    /// Converts the buffer to `Bytes`. It returns to the pool when the last clone of these is dropped.
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }

    /// Returns an unused buffer to the pool.
    pub fn give_back(self) {
        drop(self);
    }
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.vec
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let mut vec = std::mem::take(&mut self.vec);
        if vec.capacity() == 0 {
            return;
        }
        vec.clear();
        let mut free = lock(&self.free);
        if free.len() < self.kept_max {
            free.push(vec);
        }
    }
}

/// Locks the list of free buffers. A poisoned lock is ignored, because a panic cannot leave the list half-changed.
fn lock(free: &Mutex<Vec<Vec<u8>>>) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
    free.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_with_its_capacity_when_the_last_bytes_drop() {
        let mut pool = BufferPool::new(2);
        let mut buffer = pool.take();
        buffer.vec().extend_from_slice(&[7; 5000]);
        let bytes = buffer.into_bytes();
        let part = bytes.slice(10..20);
        drop(bytes);
        assert_eq!(lock(&pool.free).len(), 0);
        drop(part);
        let mut again = pool.take();
        assert!(again.vec().is_empty() && again.vec().capacity() >= 5000);
    }

    #[test]
    fn the_pool_keeps_no_more_than_its_bound() {
        let mut pool = BufferPool::new(1);
        let buffers: Vec<Bytes> = (0..3)
            .map(|_| {
                let mut buffer = pool.take();
                buffer.vec().push(1);
                buffer.into_bytes()
            })
            .collect();
        drop(buffers);
        assert_eq!(lock(&pool.free).len(), 1);
    }
}
