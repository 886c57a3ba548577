"""The keys of ``protocol.stats()`` and their meanings."""

from __future__ import annotations

from typing import TypedDict

__all__ = ["QuicConnectionStats"]


class QuicConnectionStats(TypedDict):
    """Counters since the connection began, and present estimates. After the end they keep their last values.

    They lack the count of probe time-outs, which the state machine does not expose.
    """

    rtt: float
    """Smoothed round-trip time in seconds (RFC 9002 section 5.3); ``initial_rtt`` before a sample."""
    latest_rtt: float
    """The newest sample of the round-trip time in seconds. 0 before the first sample."""
    min_rtt: float
    """The smallest sample in seconds."""
    rtt_variance: float
    """The variation of the samples in seconds: ``rttvar`` of RFC 9002 section 5.3, computed without
    subtracting the peer's ACK delay."""

    congestion_window: int
    """The congestion window in bytes."""
    bytes_in_flight: int
    """Bytes sent, and neither acknowledged nor lost. The number is exact after each acknowledgement; packets
    of less than 600 bytes that were sent since are not included."""
    ssthresh: int | None
    """Bytes at which slow start ends; ``None`` before the first loss, and with BBR."""
    congestion_events: int
    """The number of times that the congestion window was reduced, because of a loss or an ECN mark."""

    packets_sent: int
    packets_lost: int
    bytes_lost: int
    datagrams_sent: int
    """UDP datagrams that were sent."""
    datagrams_received: int
    bytes_sent: int
    """Bytes of UDP payload that were sent."""
    bytes_received: int

    path_mtu: int
    """The maximum UDP payload in bytes on the present path."""
    mtu_probes_sent: int
    mtu_probes_lost: int
    black_holes_detected: int
    """The number of times that the path carried only smaller packets than before."""

    ect0_sent: int
    """Datagrams sent with the ECT(0) mark. None are sent once the path has proved not to carry such marks."""
    ect0_received: int
    ect1_received: int
    ce_received: int
    """Datagrams received with the mark for congestion (CE, RFC 3168)."""

    stream_frames_sent: int
    stream_frames_received: int
    datagram_frames_sent: int
    datagram_frames_received: int
    datagram_frames_dropped: int
    """DATAGRAM frames that were queued and never sent."""
    connection_ids_received: int
    """NEW_CONNECTION_ID frames that were received, including repeated ones."""
    connection_ids_retired: int
    """RETIRE_CONNECTION_ID frames that were received, including repeated ones."""

    streams_open: int
    """Streams of which at least one direction has not ended."""
    send_queue_bytes: int
    """Bytes that wait in the streams' send queues."""

    key_updates: int
    """The number of changes of the packet keys that this side and the peer have begun."""
    version: int
    """The QUIC version on the wire."""
    cipher_suite: int | None
    """The TLS cipher suite's number (RFC 8446 section B.4), once agreed."""
    group: int | None
    """The number of the group of the key exchange (RFC 8446 section 4.2.7), once it is negotiated.
    :class:`uringcore.tls.Group` has the supported groups."""
