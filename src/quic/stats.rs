//! Counters of connections and endpoints, as plain data.

use std::time::Duration;

use quinn_proto as quinn;

use super::accept_policy::Cause;

/// Datagrams by their ECN bits (RFC 9000 section 13.4).
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
    /// Congestion window, bytes.
    pub congestion_window: u64,
    pub rtt: Duration,
    pub min_rtt: Duration,
    /// The newest sample.
    pub latest_rtt: Duration,
    /// RFC 9002 section 5.3, without subtracting the peer's delay from the samples.
    pub rtt_variance: Duration,
    /// Bytes sent and neither acknowledged nor lost.
    pub bytes_in_flight: u64,
    /// The end of slow start, bytes; `None` before the first loss.
    pub ssthresh: Option<u64>,
    /// UDP payload bytes.
    pub path_mtu: u16,
    pub mtu_probes_sent: u64,
    pub mtu_probes_lost: u64,
    /// How often the path was found to carry less than before.
    pub black_holes_detected: u64,
    pub ecn: EcnCounters,
    /// The number of key updates, by either side.
    pub key_updates: u64,
    /// Streams that have not ended, in either direction.
    pub streams_open: usize,
    /// The QUIC version on the wire, 0 before it is known.
    pub version: u32,
    /// The cipher suite's number (RFC 8446 section B.4), once negotiated.
    pub cipher_suite: Option<u16>,
    /// The number of the group for the key exchange (RFC 8446 section 4.2.7), once negotiated.
    pub group: Option<u16>,
    /// Bytes of application data of all streams that the state machine has not accepted yet.
    pub send_queue_bytes: usize,
    pub stream_frames_sent: u64,
    pub stream_frames_received: u64,
    pub datagram_frames_sent: u64,
    pub datagram_frames_received: u64,
    /// DATAGRAM frames that were queued and never sent: the oldest, when the queue was full, and those that were
    /// too large once the handshake was complete.
    pub datagram_frames_dropped: u64,
    /// NEW_CONNECTION_ID frames, including repeated ones.
    pub connection_ids_received: u64,
    /// RETIRE_CONNECTION_ID frames, including repeated ones.
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

/// Counters of one endpoint since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndpointStats {
    pub datagrams_received: u64,
    pub bytes_received: u64,
    pub datagrams_sent: u64,
    pub bytes_sent: u64,
    /// Batches returned by `poll_transmit`: the number of system calls if each is sent alone.
    pub transmits: u64,
    pub connections_opened: u64,
    pub connections_accepted: u64,
    pub connections_closed: u64,
    /// Refused incoming connections, in all and by reason: the host accepts no more; `max_connections`;
    /// `max_handshakes`; `max_connections_per_address`.
    pub incoming_refused: u64,
    pub refused_for_closing: u64,
    pub refused_for_connections: u64,
    pub refused_for_handshakes: u64,
    pub refused_for_address: u64,
    /// Incoming connections that had to prove their address.
    pub incoming_retried: u64,
    /// Dropped first packets: because of the accept rate, which are counted in `ignored_for_rate` as well, or
    /// because they could not be authenticated.
    pub incoming_ignored: u64,
    pub ignored_for_rate: u64,
    /// Packets of unknown connections, answered so that the peer drops the connection too.
    pub stateless_resets_sent: u64,
    /// Stateless answers dropped because too many were waiting.
    pub responses_dropped: u64,
    /// Pieces of datagrams dropped because their client, or a spoofed one, migrated too often.
    pub moves_dropped: u64,
    /// First packets of unsupported versions, answered with the supported ones.
    pub versions_negotiated: u64,
    /// Bytes that the clients of a server make it hold now.
    pub held_bytes: u64,
    /// How often a connection's credit was cut because its address held more than its share.
    pub credit_withheld: u64,
    /// Streams and connections that were shed because the process exceeded its budget.
    pub streams_shed: u64,
    pub connections_shed: u64,
    /// Connections of ours that began again because the server required another version.
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
