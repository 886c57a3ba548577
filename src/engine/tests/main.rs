//! The engine's tests through its public interface. They are one program, because linking takes longer than running
//! it.
//!
//! Not here: `allocations`, which needs an allocator of its own.

mod common;
mod direct_mapped_cache;
mod listeners_datagrams_and_watchers;
mod paused_readers;
mod quic;
mod sock_operation_queues;
mod sockets_shared_by_engines;
mod stream;
mod transport_lifecycle;
