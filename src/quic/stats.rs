//! Counters of connections and endpoints, as plain data.

use std::time::Duration;

use quinn_proto as quinn;

use super::accept_policy::Cause;

/// The numbers of datagrams by their ECN bits (RFC 9000 section 13.4).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EcnCounters {
    pub ect0_sent: u64,
    pub ect0_received: u64,
    pub ect1_received: u64,
    pub ce_received: u64,
}

impl EcnCounters {
    pub(super) fn received(&mut self, codepoint: Option<quinn::EcnCodepoint>) {
        match codepoint {
            Some(quinn::EcnCodepoint::Ect0) => self.ect0_received += 1,
            Some(quinn::EcnCodepoint::Ect1) => self.ect1_received += 1,
            Some(quinn::EcnCodepoint::Ce) => self.ce_received += 1,
            None => {}
        }
    }

    pub(super) fn sent(&mut self, transmit: &quinn::Transmit) {
        if transmit.ecn.is_some() {
            let size = transmit.segment_size.unwrap_or(transmit.size).max(1);
            self.ect0_sent += transmit.size.div_ceil(size) as u64;
        }
    }
}

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
    /// The congestion window in bytes.
    pub congestion_window: u64,
    pub rtt: Duration,
    pub min_rtt: Duration,
    /// The newest sample of the round-trip time.
    pub latest_rtt: Duration,
    /// The variation of the round-trip time (RFC 9002 section 5.3). The peer's delay is not subtracted from the
    /// samples.
    pub rtt_variance: Duration,
    /// Bytes that were sent and are neither acknowledged nor lost.
    pub bytes_in_flight: u64,
    /// The congestion window at which slow start ends, in bytes. `None` before the first loss.
    pub ssthresh: Option<u64>,
    /// The largest UDP payload of the path, in bytes.
    pub path_mtu: u16,
    pub mtu_probes_sent: u64,
    pub mtu_probes_lost: u64,
    /// How often the path was found to carry smaller datagrams than before.
    pub black_holes_detected: u64,
    pub ecn: EcnCounters,
    /// The number of key updates that this side and the peer have begun.
    pub key_updates: u64,
    /// The number of streams of which at least one direction has not ended.
    pub streams_open: usize,
    /// The QUIC version of sent packets. 0 until it is known.
    pub version: u32,
    /// The number of the TLS cipher suite (RFC 8446 section B.4). `None` until it is negotiated.
    pub cipher_suite: Option<u16>,
    /// The number of the key exchange group (RFC 8446 section 4.2.7). `None` until it is negotiated.
    pub group: Option<u16>,
    /// Bytes of all streams that wait to be passed to quinn-proto.
    pub send_queue_bytes: usize,
    pub stream_frames_sent: u64,
    pub stream_frames_received: u64,
    pub datagram_frames_sent: u64,
    pub datagram_frames_received: u64,
    /// DATAGRAM frames that were queued and never sent: the oldest when the queue was full, and those that were too
    /// large for the peer once the handshake was complete.
    pub datagram_frames_dropped: u64,
    /// Received NEW_CONNECTION_ID frames, including repeated ones.
    pub connection_ids_received: u64,
    /// Received RETIRE_CONNECTION_ID frames, including repeated ones.
    pub connection_ids_retired: u64,
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
            mtu_probes_sent: stats.path.sent_plpmtud_probes,
            mtu_probes_lost: stats.path.lost_plpmtud_probes,
            black_holes_detected: stats.path.black_holes_detected,
            connection_ids_received: stats.frame_rx.new_connection_id,
            connection_ids_retired: stats.frame_tx.retire_connection_id,
            stream_frames_sent: stats.frame_tx.stream,
            stream_frames_received: stats.frame_rx.stream,
            datagram_frames_sent: stats.frame_tx.datagram,
            datagram_frames_received: stats.frame_rx.datagram,
            ..Self::default()
        }
    }
}

/// Counters of one endpoint since it was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndpointStats {
    pub datagrams_received: u64,
    pub bytes_received: u64,
    pub datagrams_sent: u64,
    pub bytes_sent: u64,
    /// Batches that `poll_transmit` has returned. If each is sent alone, this is the number of system calls.
    pub transmits: u64,
    pub connections_opened: u64,
    pub connections_accepted: u64,
    pub connections_closed: u64,
    /// Incoming connections that were refused: all, then by the limit that they exceeded. `refused_for_closing` counts
    /// those that were refused because the application accepts no more.
    pub incoming_refused: u64,
    pub refused_for_closing: u64,
    pub refused_for_connections: u64,
    pub refused_for_handshakes: u64,
    pub refused_for_address: u64,
    /// Incoming connections that had to prove their address by a Retry.
    pub incoming_retried: u64,
    /// First packets that were dropped: those above the accept rate, which `ignored_for_rate` counts as well, and those
    /// that were not authentic.
    pub incoming_ignored: u64,
    pub ignored_for_rate: u64,
    /// Stateless resets for packets of unknown connections. A reset ends the connection at the peer.
    pub stateless_resets_sent: u64,
    /// Packets without a connection that were dropped, because too many were waiting.
    pub responses_dropped: u64,
    /// Received datagrams, or parts of datagrams, that were dropped because their client has migrated too often.
    pub moves_dropped: u64,
    /// First packets of unsupported versions that were answered with a Version Negotiation packet.
    pub versions_negotiated: u64,
    /// The bytes that the process holds for the clients of its servers at present.
    pub held_bytes: u64,
    /// The number of times that a connection's credit for stream data was reduced, because its address held more than
    /// its share of memory.
    pub credit_withheld: u64,
    /// Streams and connections that were ended to free memory, because the process exceeded its budget.
    pub streams_shed: u64,
    pub connections_shed: u64,
    /// Client connections that were restarted, because the server required another version.
    pub connections_begun_again: u64,
}

impl std::ops::AddAssign for EndpointStats {
    fn add_assign(&mut self, other: Self) {
        self.datagrams_received += other.datagrams_received;
        self.bytes_received += other.bytes_received;
        self.datagrams_sent += other.datagrams_sent;
        self.bytes_sent += other.bytes_sent;
        self.transmits += other.transmits;
        self.connections_opened += other.connections_opened;
        self.connections_accepted += other.connections_accepted;
        self.connections_closed += other.connections_closed;
        self.incoming_refused += other.incoming_refused;
        self.incoming_retried += other.incoming_retried;
        self.incoming_ignored += other.incoming_ignored;
        self.responses_dropped += other.responses_dropped;
    }
}

impl EndpointStats {
    pub(super) fn refused(&mut self, cause: Cause) -> &mut u64 {
        match cause {
            Cause::Closing => &mut self.refused_for_closing,
            Cause::Connections => &mut self.refused_for_connections,
            Cause::Handshakes => &mut self.refused_for_handshakes,
            Cause::Address => &mut self.refused_for_address,
        }
    }
}
