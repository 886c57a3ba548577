"""Events of a QUIC connection: aioquic's, and three for flow control.

The classes are Rust, so that events are built without running Python code. Fields are immutable. Events
take positional and keyword arguments, accept further attributes, compare by value, work with ``match``, can
be copied and pickled, and count as dataclasses. Subclasses cannot have further fields, and ``@dataclass``
cannot make them; :class:`QuicEvent` can be a base of dataclasses.
"""

from __future__ import annotations

from uringcore._rust_event_dataclasses import describe
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

_EARLY = {"early_data": False}
describe(ConnectionIdIssued, connection_id=bytes)
describe(ConnectionIdRetired, connection_id=bytes)
describe(
    ConnectionTerminated,
    {"kind": None, "alert": None, "errno": None},
    error_code=int,
    frame_type=int | None,
    reason_phrase=str,
)
describe(ConnectionWritable, queued_bytes=int)
describe(DatagramFrameReceived, _EARLY, data=bytes)
describe(
    HandshakeCompleted, alpn_protocol=str | None, early_data_accepted=bool, session_resumed=bool
)
describe(MigrationFinished, succeeded=bool)
describe(PingAcknowledged, uid=int)
describe(ProtocolNegotiated, alpn_protocol=str | None)
describe(StopSendingReceived, error_code=int, stream_id=int)
describe(StreamAbandoned, stream_id=int)
describe(StreamDataReceived, _EARLY, data=bytes, end_stream=bool, stream_id=int)
describe(StreamFinished, stream_id=int)
describe(StreamReset, error_code=int, stream_id=int)
describe(StreamWritable, stream_id=int)
