//! The engine from outside: one program, because linking it takes longer than its tests.
//!
//! Not here: `allocations`, which counts in an allocator of its own.

mod common;
mod direct_mapped_cache;
mod lifecycle;
mod op_queues;
mod pausing;
mod quic;
mod shared_sockets;
mod sockets;
mod stream;
