"""What a QUIC connection tells its user: aioquic's events, and three for flow control.

The classes are Rust, so that a turn's events are built without running Python. They are immutable,
take positional and keyword arguments, compare by value, and work with ``match``.
"""

from __future__ import annotations

from uringcore._uringcore import (
    ConnectionIdIssued,
    ConnectionIdRetired,
    ConnectionTerminated,
    ConnectionWritable,
    DatagramFrameReceived,
    HandshakeCompleted,
    MigrationFinished,
    PingAcknowledged,
    ProtocolNegotiated,
    QuicEvent,
    StopSendingReceived,
    StreamAbandoned,
    StreamDataReceived,
    StreamFinished,
    StreamReset,
    StreamWritable,
)

__all__ = [
    "ConnectionIdIssued",
    "ConnectionIdRetired",
    "ConnectionTerminated",
    "ConnectionWritable",
    "DatagramFrameReceived",
    "HandshakeCompleted",
    "MigrationFinished",
    "PingAcknowledged",
    "ProtocolNegotiated",
    "QuicEvent",
    "StopSendingReceived",
    "StreamAbandoned",
    "StreamDataReceived",
    "StreamFinished",
    "StreamReset",
    "StreamWritable",
]
