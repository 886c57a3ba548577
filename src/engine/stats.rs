//! [`EngineStats`]: counters and gauges of an engine, for `loop.stats()`.

use uringcore_io::DriverStats;

use crate::engine::Engine;
use crate::readiness_watchers::Direction;
use crate::transport::Transport;

/// Counters and gauges of an [`Engine`].
#[derive(Clone, Copy, Debug)]
pub struct EngineStats {
    pub driver: DriverStats,
    pub iterations: u64,
    /// Sends of streams by system calls that bypassed the driver.
    pub direct_sends: u64,
    pub streams: usize,
    pub listeners: usize,
    pub datagrams: usize,
    pub readers: usize,
    pub writers: usize,
    pub ops: usize,
    pub quic_endpoints: usize,
    pub quic_connections: usize,
    /// Counters of all QUIC sockets since the engine was made, including sockets that have ended.
    pub quic: uringcore_quic::EndpointStats,
    pub events_queued: usize,
    /// Bytes of streams that arrived while their readers were paused, since the engine was made.
    pub bytes_held: u64,
    /// Datagrams that arrived while their readers were paused, since the engine was made.
    pub datagrams_held: u64,
    /// Bytes that wait for paused readers now.
    pub backlog_bytes: usize,
    /// Bytes of streams and datagrams that were written and that the kernel has not taken yet.
    pub write_queue_bytes: usize,
}

impl Engine {
    pub fn stats(&self) -> EngineStats {
        let transports = &self.transports;
        let streams = transports.iter().filter_map(|one| match one {
            Transport::Stream(stream) => Some(stream.backlog_bytes()),
            Transport::Datagram(_) => None,
        });
        let (streams, backlog_bytes) =
            streams.fold((0, 0), |(count, sum), bytes| (count + 1, sum + bytes));
        let queued = transports.iter().map(|one| one.life().shared.queued());
        EngineStats {
            driver: self.driver.stats(),
            iterations: self.iterations,
            direct_sends: transports.counts.direct_sends,
            streams,
            listeners: self.listeners.len(),
            datagrams: transports.iter().count() - streams,
            readers: self.watchers.count(Direction::Read),
            writers: self.watchers.count(Direction::Write),
            ops: self.operations.len(),
            quic_endpoints: self.quic.len(),
            quic_connections: self.quic.connections(),
            quic: self.quic.totals(),
            events_queued: self.events.len(),
            bytes_held: transports.counts.bytes_held,
            datagrams_held: transports.counts.datagrams_held,
            backlog_bytes,
            write_queue_bytes: queued.sum(),
        }
    }
}
