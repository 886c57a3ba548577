//! Parts that only a host uses. An [`Engine`](crate::Engine) works without them.
//!
//! | file | content |
//! | --- | --- |
//! | `timers` | [`Timers`]: a host's timers, sorted by the time at which they are due |
//! | `sock_operation_queues` | [`OpQueues`]: queues of operations on the host's own sockets, one for each descriptor and direction |
//! | `descriptor_table` | `DescriptorTable`: a table by descriptor, for the queues |
//! | `sock_operation` | [`SocketOp`]: an operation in such a queue, and how it is started |
//! | `poll_timeout` | [`PollTimeout`]: how long a loop iteration may block in the kernel |
//! | `byte_queue` | [`ByteQueue`]: a queue of bytes for a host's decoder |
//! | `direct_mapped_cache` | [`DirectMappedCache`]: a cache with one slot for each hash |
//! | `system_clock` | [`SystemClock`]: the time of day, which the protocols get from the host |
//! | `system_root_certificates` | [`system_roots`]: the root certificates that the operating system trusts |
//!
//! Nothing here depends on the engine's loop iteration.

pub(crate) mod byte_queue;
mod descriptor_table;
pub(crate) mod direct_mapped_cache;
pub(crate) mod poll_timeout;
pub(crate) mod sock_operation;
pub(crate) mod sock_operation_queues;
pub(crate) mod system_clock;
pub(crate) mod system_root_certificates;
pub(crate) mod timers;

pub use byte_queue::ByteQueue;
pub use direct_mapped_cache::DirectMappedCache;
pub use poll_timeout::PollTimeout;
pub use sock_operation::{Attempt, SocketOp};
pub use sock_operation_queues::{OpQueueId, OpQueues, Start};
pub use system_clock::SystemClock;
pub use system_root_certificates::system_roots;
pub use timers::{TimerKey, Timers};
