"""Numbers of RFC 9000 that programs compare against: error codes, frame types, versions.

No packet is parsed or built here; that is Rust's. Names follow aioquic's ``quic.packet``.
"""

from __future__ import annotations

from enum import Enum, IntEnum

__all__ = [
    "CONNECTION_ID_MAX_SIZE",
    "QuicErrorCode",
    "QuicFrameType",
    "QuicPacketType",
    "QuicProtocolVersion",
]

CONNECTION_ID_MAX_SIZE = 20


class QuicErrorCode(IntEnum):
    """Transport error codes (RFC 9000 section 20.1)."""

    NO_ERROR = 0x0
    INTERNAL_ERROR = 0x1
    CONNECTION_REFUSED = 0x2
    FLOW_CONTROL_ERROR = 0x3
    STREAM_LIMIT_ERROR = 0x4
    STREAM_STATE_ERROR = 0x5
    FINAL_SIZE_ERROR = 0x6
    FRAME_ENCODING_ERROR = 0x7
    TRANSPORT_PARAMETER_ERROR = 0x8
    CONNECTION_ID_LIMIT_ERROR = 0x9
    PROTOCOL_VIOLATION = 0xA
    INVALID_TOKEN = 0xB
    APPLICATION_ERROR = 0xC
    CRYPTO_BUFFER_EXCEEDED = 0xD
    KEY_UPDATE_ERROR = 0xE
    AEAD_LIMIT_REACHED = 0xF
    NO_VIABLE_PATH = 0x10
    VERSION_NEGOTIATION_ERROR = 0x11
    CRYPTO_ERROR = 0x100


class QuicFrameType(IntEnum):
    """Frame types (RFC 9000 section 19, RFC 9221)."""

    PADDING = 0x00
    PING = 0x01
    ACK = 0x02
    ACK_ECN = 0x03
    RESET_STREAM = 0x04
    STOP_SENDING = 0x05
    CRYPTO = 0x06
    NEW_TOKEN = 0x07
    STREAM_BASE = 0x08
    MAX_DATA = 0x10
    MAX_STREAM_DATA = 0x11
    MAX_STREAMS_BIDI = 0x12
    MAX_STREAMS_UNI = 0x13
    DATA_BLOCKED = 0x14
    STREAM_DATA_BLOCKED = 0x15
    STREAMS_BLOCKED_BIDI = 0x16
    STREAMS_BLOCKED_UNI = 0x17
    NEW_CONNECTION_ID = 0x18
    RETIRE_CONNECTION_ID = 0x19
    PATH_CHALLENGE = 0x1A
    PATH_RESPONSE = 0x1B
    TRANSPORT_CLOSE = 0x1C
    APPLICATION_CLOSE = 0x1D
    HANDSHAKE_DONE = 0x1E
    DATAGRAM = 0x30
    DATAGRAM_WITH_LENGTH = 0x31


class QuicPacketType(Enum):
    """Kinds of packets (RFC 9000 section 17)."""

    INITIAL = 0
    ZERO_RTT = 1
    HANDSHAKE = 2
    RETRY = 3
    VERSION_NEGOTIATION = 4
    ONE_RTT = 5


class QuicProtocolVersion(IntEnum):
    """Versions by their number on the wire (RFC 9000 section 15, RFC 9369)."""

    NEGOTIATION = 0x00000000
    VERSION_1 = 0x00000001
    VERSION_2 = 0x6B3343CF
