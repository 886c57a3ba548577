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
    """The newest sample in seconds; 0 before the first."""
    min_rtt: float
    """The smallest sample in seconds."""
    rtt_variance: float
    """How much the samples vary, in seconds (``rttvar`` of RFC 9002 section 5.3, without the peer's
    delay taken off the samples)."""

    congestion_window: int
    """Bytes that may be in flight."""
    bytes_in_flight: int
    """Bytes sent, and neither acknowledged nor lost: exact after each acknowledgement; until the next
    one packets of less than 600 bytes are left out."""
    ssthresh: int | None
    """Bytes at which slow start ends; ``None`` before the first loss, and with BBR."""
    congestion_events: int
    """How often the window was cut, for a loss or an ECN mark."""

    packets_sent: int
    packets_lost: int
    bytes_lost: int
    datagrams_sent: int
    """UDP datagrams."""
    datagrams_received: int
    bytes_sent: int
    """UDP payload."""
    bytes_received: int

    path_mtu: int
    """UDP payload bytes that a packet may have now."""
    mtu_probes_sent: int
    mtu_probes_lost: int
    black_holes_detected: int
    """How often the path turned out to carry less than it had."""

    ect0_sent: int
    """Datagrams sent as capable of ECN; it stops when the path does not carry the marks."""
    ect0_received: int
    ect1_received: int
    ce_received: int
    """Datagrams received with the mark of congestion (RFC 3168)."""

    stream_frames_sent: int
    stream_frames_received: int
    datagram_frames_sent: int
    datagram_frames_received: int
    datagram_frames_dropped: int
    """DATAGRAM frames that were queued and never sent."""
    connection_ids_received: int
    """NEW_CONNECTION_ID frames, repeated ones as well."""
    connection_ids_retired: int
    """RETIRE_CONNECTION_ID frames, repeated ones as well."""

    streams_open: int
    """Streams that are not over, in either direction."""
    send_queue_bytes: int
    """Bytes that wait in the streams' send queues."""

    key_updates: int
    """How often the packet keys were changed, by whichever side."""
    version: int
    """The QUIC version on the wire."""
    cipher_suite: int | None
    """The TLS cipher suite's number (RFC 8446 section B.4), once agreed."""
    group: int | None
    """The number of the group that keys were exchanged in (RFC 8446 section 4.2.7), once agreed:
    :class:`uringcore.tls.Group` has the supported ones."""
