//! The driver's settings and counters.

use std::time::Duration;

/// The kernel interface that carries out the operations.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum Backend {
    /// io_uring, Linux 6.1 or later.
    Uring,
    /// epoll and ordinary system calls, any Linux.
    Epoll,
}

impl Backend {
    /// The public name: `"uring"` or `"epoll"`.
    pub fn as_str(self) -> &'static str {
        match self {
            Backend::Uring => "uring",
            Backend::Epoll => "epoll",
        }
    }
}

/// Settings of a [`Driver`](crate::Driver). The defaults suit a server with thousands of connections.
#[derive(Clone, Debug)]
pub struct DriverConfig {
    /// `None` uses io_uring if it works and epoll otherwise; `Some` has no fallback.
    pub backend: Option<Backend>,
    /// Entries of the submission queue; the kernel rounds up to a power of two. The driver submits a full queue at
    /// once, so this limits one batch of submissions, and not the number of operations.
    pub ring_entries: u32,
    /// Entries of the completion queue. If it is full, the kernel keeps further completions in a list of its own and
    /// ends multishot operations, which the driver arms again.
    pub cq_entries: u32,
    /// Receive buffers for streams, a power of two up to 32,768. While the host holds all of them, data waits in the
    /// sockets. The kernel takes the buffers in a circle, so few buffers stay in the processor's cache: 8 measured
    /// better than 64, even with a thousand connections.
    pub stream_buffers: u16,
    /// Bytes of one stream buffer, and so the limit of one completion's data. Small receives share a buffer.
    pub stream_buffer_size: u32,
    /// Lets several receives share a stream buffer; io_uring supports this from Linux 6.12 on. Without sharing each
    /// receive takes a whole buffer, so the driver makes four times as many buffers of a quarter of the size.
    pub share_stream_buffers: bool,
    /// Receive buffers for datagrams, a power of two up to 32,768. Few buffers stay in the processor's cache: 32
    /// measured better than 128.
    pub datagram_buffers: u16,
    /// Payload bytes of one datagram buffer. GRO joins datagrams to batches of up to 65,535 bytes. A datagram or batch
    /// that is longer than the buffer is cut and marked as truncated.
    pub datagram_buffer_size: u32,
    /// The limit of operations in flight. Beyond it a new operation completes at once with `ENOBUFS`.
    pub operations_max: u32,
    /// The time that a blocking `enter` polls for completions before it sleeps. Polling uses CPU time and saves the
    /// sleep and the wake-up, which take some tens of microseconds. With zero the driver never polls. With `None` the
    /// lengths of the last waits decide (`spin_policy`).
    pub busy_poll: Option<Duration>,
}

impl Default for DriverConfig {
    fn default() -> DriverConfig {
        DriverConfig {
            backend: None,
            ring_entries: 512,
            cq_entries: 2048,
            stream_buffers: 8,
            stream_buffer_size: 64 * 1024,
            share_stream_buffers: true,
            datagram_buffers: 32,
            datagram_buffer_size: 64 * 1024,
            operations_max: 1 << 20,
            busy_poll: None,
        }
    }
}

impl DriverConfig {
    /// Describes the first invalid setting; `None` if all are valid.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        let buffers_wrong = |count: u16| !count.is_power_of_two() || count > BUFFERS_MAX;
        let size_wrong = |size: u32| !(64..=BUFFER_SIZE_MAX).contains(&size);
        match self {
            _ if self.ring_entries == 0 => Some("DriverConfig::ring_entries must not be 0"),
            _ if buffers_wrong(self.stream_buffers) => {
                Some("DriverConfig::stream_buffers must be a power of two up to 32,768")
            }
            _ if buffers_wrong(self.datagram_buffers) => {
                Some("DriverConfig::datagram_buffers must be a power of two up to 32,768")
            }
            _ if size_wrong(self.stream_buffer_size) => {
                Some("DriverConfig::stream_buffer_size must be between 64 bytes and 16 MiB")
            }
            _ if size_wrong(self.datagram_buffer_size) => {
                Some("DriverConfig::datagram_buffer_size must be between 64 bytes and 16 MiB")
            }
            _ => None,
        }
    }
}

const BUFFERS_MAX: u16 = 1 << 15;
const BUFFER_SIZE_MAX: u32 = 16 << 20;

/// The counters of a [`Driver`](crate::Driver). They are sums since its start, except those that are marked "now".
#[derive(Copy, Clone, Default, Eq, PartialEq, Debug)]
pub struct DriverStats {
    /// Calls of `enter` that reached the kernel.
    pub enters: u64,
    /// All system calls that the driver made for operations, including `enters`.
    pub syscalls: u64,
    /// Operations queued, without re-arms.
    pub submissions: u64,
    /// Completions returned.
    pub completions: u64,
    /// Operations in flight now, including discarded ones that have not ended.
    pub in_flight: u64,
    /// Slots of the operation table now. The table grows on demand and never shrinks.
    pub slots_capacity: u64,
    /// Receive buffers, streams and datagrams together.
    pub buffers_total: u64,
    /// Receive buffers held now by `RecvBuf` and `Datagram` values.
    pub buffers_out: u64,
    /// Receives that found no free buffer.
    pub enobufs: u64,
    /// Operations that the driver armed again in the same slot.
    pub rearms: u64,
    /// Wakes from other threads that ended an `enter`.
    pub wakes: u64,
    /// Waits that ended while the driver polled ([`DriverConfig::busy_poll`]).
    pub busy_polls: u64,
    /// Bytes of the receive buffers now. A page of them uses memory only after its first use.
    pub buffers_bytes: u64,
    /// Bytes of the driver now: buffers, queues shared with the kernel, slots. Memory that callers provide for sends
    /// and reads is not included.
    pub memory_bytes: u64,
}
