//! Counters of connections and endpoints, as plain data.

use std::time::Duration;

use quinn_proto as quinn;

/// Counters and estimates of one connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConnectionStats {
    pub datagrams_sent: u64,
    pub bytes_sent: u64,
    pub datagrams_received: u64,
    pub bytes_received: u64,
    pub packets_sent: u64,
    pub packets_lost: u64,
    pub bytes_lost: u64,
    pub congestion_events: u64,
    /// Congestion window, bytes.
    pub congestion_window: u64,
    pub rtt: Duration,
    pub min_rtt: Duration,
    /// UDP payload bytes.
    pub path_mtu: u16,
    /// Application data waiting in front of the state machine, all streams together, bytes.
    pub send_queue_bytes: usize,
    pub stream_frames_sent: u64,
    pub stream_frames_received: u64,
    pub datagram_frames_sent: u64,
    pub datagram_frames_received: u64,
    /// DATAGRAM frames that were queued and never sent: the oldest, when the queue was full, and
    /// those that turned out not to be sendable once the handshake was complete.
    pub datagram_frames_dropped: u64,
}

impl ConnectionStats {
    pub(super) fn from_quinn(stats: quinn::ConnectionStats) -> Self {
        Self {
            datagrams_sent: stats.udp_tx.datagrams,
            bytes_sent: stats.udp_tx.bytes,
            datagrams_received: stats.udp_rx.datagrams,
            bytes_received: stats.udp_rx.bytes,
            packets_sent: stats.path.sent_packets,
            packets_lost: stats.path.lost_packets,
            bytes_lost: stats.path.lost_bytes,
            congestion_events: stats.path.congestion_events,
            congestion_window: stats.path.cwnd,
            rtt: stats.path.rtt,
            min_rtt: stats.path.min_rtt,
            path_mtu: stats.path.current_mtu,
            stream_frames_sent: stats.frame_tx.stream,
            stream_frames_received: stats.frame_rx.stream,
            datagram_frames_sent: stats.frame_tx.datagram,
            datagram_frames_received: stats.frame_rx.datagram,
            ..Self::default()
        }
    }
}

/// Counters of one endpoint since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndpointStats {
    pub datagrams_received: u64,
    pub bytes_received: u64,
    pub datagrams_sent: u64,
    pub bytes_sent: u64,
    /// Batches handed out by `poll_transmit`: the number of system calls, were each sent alone.
    pub transmits: u64,
    pub connections_opened: u64,
    pub connections_accepted: u64,
    pub connections_closed: u64,
    /// Incoming connections that were refused: because of `max_connections`, or because the host
    /// takes no more.
    pub incoming_refused: u64,
    /// Incoming connections that were asked to prove their address.
    pub incoming_retried: u64,
    /// First packets dropped because of `max_incoming`, or because they could not be authenticated.
    pub incoming_ignored: u64,
    /// Stateless answers dropped because too many were waiting.
    pub responses_dropped: u64,
}
