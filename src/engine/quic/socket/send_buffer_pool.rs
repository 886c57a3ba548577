//! Send buffers of a QUIC socket. The state machine writes packets into a buffer, the kernel sends them, and then the
//! buffer is used again.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Buffers that are free.
pub(crate) struct BufferPool {
    /// At most [`AT_HAND`] free buffers that were never lent to the kernel. Taking one needs no lock.
    at_hand: Vec<Vec<u8>>,
    /// Free buffers that the kernel has read. A buffer is added by any thread, when the last clone of its bytes is
    /// dropped.
    free: Arc<Mutex<Vec<Vec<u8>>>>,
    kept_max: usize,
}

/// A buffer that the kernel reads while it is sent.
struct PooledBuffer {
    vec: Vec<u8>,
    free: Arc<Mutex<Vec<Vec<u8>>>>,
    kept_max: usize,
}

impl BufferPool {
    /// Makes a pool that keeps at most `kept_max` free buffers that the kernel has used, and [`AT_HAND`] free buffers
    /// that it has not.
    pub fn new(kept_max: usize) -> Self {
        Self {
            at_hand: Vec::new(),
            free: Arc::default(),
            kept_max,
        }
    }

    /// Takes a buffer to fill, which may have old content. The caller passes it to [`give_back`](Self::give_back) or [`lend`](Self::lend).
    pub fn take(&mut self) -> Vec<u8> {
        self.at_hand
            .pop()
            .or_else(|| lock(&self.free).pop())
            .unwrap_or_default()
    }

    /// Takes back a buffer that was not passed to the kernel.
    pub fn give_back(&mut self, vec: Vec<u8>) {
        if self.at_hand.len() < AT_HAND && vec.capacity() > 0 {
            self.at_hand.push(vec);
        } else {
            drop(self.pooled(vec));
        }
    }

    /// Converts the buffer to `Bytes`. It returns to the pool when the last clone of the `Bytes` is dropped.
    pub fn lend(&self, vec: Vec<u8>) -> Bytes {
        Bytes::from_owner(self.pooled(vec))
    }

    fn pooled(&self, vec: Vec<u8>) -> PooledBuffer {
        PooledBuffer {
            vec,
            free: self.free.clone(),
            kept_max: self.kept_max,
        }
    }
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.vec
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let vec = std::mem::take(&mut self.vec);
        if vec.capacity() == 0 {
            return;
        }
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

/// The number of buffers that a socket fills at a time: it asks for a second batch before it sends the first one.
const AT_HAND: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lent_buffer_comes_back_with_its_capacity_when_the_last_bytes_drop() {
        let mut pool = BufferPool::new(2);
        let mut buffer = pool.take();
        buffer.extend_from_slice(&[7; 5000]);
        let bytes = pool.lend(buffer);
        let part = bytes.slice(10..20);
        drop(bytes);
        assert_eq!(lock(&pool.free).len(), 0);
        drop(part);
        assert!(pool.take().capacity() >= 5000);
    }

    #[test]
    fn buffers_that_were_not_lent_are_used_again_the_last_one_first() {
        let mut pool = BufferPool::new(1);
        for size in [100, 200, 300, 400] {
            pool.give_back(Vec::with_capacity(size));
        }
        let taken: Vec<usize> = (0..4).map(|_| pool.take().capacity()).collect();
        assert_eq!(taken, [200, 100, 300, 0]);
    }

    #[test]
    fn the_pool_keeps_no_more_than_its_bound() {
        let mut pool = BufferPool::new(1);
        let buffers: Vec<Bytes> = (0..3)
            .map(|_| {
                let mut buffer = pool.take();
                buffer.push(1);
                pool.lend(buffer)
            })
            .collect();
        drop(buffers);
        assert_eq!(lock(&pool.free).len(), 1);
    }
}
