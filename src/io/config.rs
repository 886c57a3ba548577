//! The driver's settings and counters.

/// Which kernel interface carries the operations.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum Backend {
    /// io_uring, Linux 6.1 or later.
    Uring,
    /// epoll and ordinary system calls, any Linux.
    Epoll,
}

impl Backend {
    /// The name users see: `"uring"` or `"epoll"`.
    pub fn as_str(self) -> &'static str {
        match self {
            Backend::Uring => "uring",
            Backend::Epoll => "epoll",
        }
    }
}

/// Settings of a [`Driver`](crate::Driver). The defaults suit a server of thousands of connections.
#[derive(Clone, Debug)]
pub struct DriverConfig {
    /// `None` takes io_uring where it works and epoll elsewhere; `Some` insists.
    pub backend: Option<Backend>,
    /// Submission queue entries; the kernel rounds up to a power of two. A full queue is submitted
    /// inline, so this bounds a batch, not the number of operations.
    pub ring_entries: u32,
    /// Completion queue entries. When it overflows the kernel keeps the rest and multishot
    /// operations are armed again.
    pub cq_entries: u32,
    /// Receive buffers for streams, a power of two up to 32,768. When all are held the sockets
    /// keep the data until one returns.
    pub stream_buffers: u16,
    /// Bytes of one stream buffer.
    pub stream_buffer_size: u32,
    /// Receive buffers for datagrams, a power of two up to 32,768. Few stay in the cache: 32
    /// measured better than 128.
    pub datagram_buffers: u16,
    /// Payload bytes of one datagram buffer; GRO joins up to 65,535. A longer datagram is cut and
    /// marked truncated.
    pub datagram_buffer_size: u32,
    /// The most operations in flight at once. One more completes with `ENOBUFS` at once.
    pub operations_max: u32,
}

impl Default for DriverConfig {
    fn default() -> DriverConfig {
        DriverConfig {
            backend: None,
            ring_entries: 1024,
            cq_entries: 4096,
            stream_buffers: 256,
            stream_buffer_size: 16 * 1024,
            datagram_buffers: 32,
            datagram_buffer_size: 64 * 1024,
            operations_max: 1 << 20,
        }
    }
}

/// Counters of a [`Driver`](crate::Driver), cumulative unless they say "now".
#[derive(Copy, Clone, Default, Eq, PartialEq, Debug)]
pub struct DriverStats {
    /// Calls of `enter` that reached the kernel.
    pub enters: u64,
    /// All system calls that the driver made for operations, `enters` included.
    pub syscalls: u64,
    /// Operations queued, re-arms not counted.
    pub submissions: u64,
    /// Completions handed out.
    pub completions: u64,
    /// Operations in flight now (occupied slab slots, discarded ones included).
    pub in_flight: u64,
    /// Slab slots allocated now; it grows on demand and never shrinks.
    pub slots_capacity: u64,
    /// Receive buffers, streams and datagrams together.
    pub buffers_total: u64,
    /// Receive buffers held now by `RecvBuf` and `Datagram` values.
    pub buffers_out: u64,
    /// Times that a receive found no free buffer.
    pub enobufs: u64,
    /// Multishot operations armed again.
    pub rearms: u64,
    /// Wakes from other threads that ended an `enter`.
    pub wakes: u64,
}
