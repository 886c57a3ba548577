"""Numbers of RFC 9000 that programs compare against: error codes, frame types, versions.

It also exports the records of frames and parameters (``_frames_and_transport_parameters``) and the parsers of
headers (``_packet_headers``). Names follow aioquic's ``quic.packet``.
"""

from __future__ import annotations

from enum import IntEnum

from uringcore.quic._frames_and_transport_parameters import (
    QuicPreferredAddress,
    QuicStreamFrame,
    QuicTransportParameters,
    QuicVersionInformation,
)
from uringcore.quic._packet_headers import (
    PACKET_FIXED_BIT,
    PACKET_LONG_HEADER,
    PACKET_TYPE_INITIAL,
    QuicHeader,
    QuicPacketType,
    encode_quic_version_negotiation,
    is_long_header,
    pull_quic_header,
)

__all__ = [
    "CONNECTION_ID_MAX_SIZE",
    "NON_ACK_ELICITING_FRAME_TYPES",
    "PACKET_FIXED_BIT",
    "PACKET_LONG_HEADER",
    "PACKET_TYPE_INITIAL",
    "PROBING_FRAME_TYPES",
    "RETRY_INTEGRITY_TAG_SIZE",
    "STATELESS_RESET_TOKEN_SIZE",
    "QuicErrorCode",
    "QuicFrameType",
    "QuicHeader",
    "QuicPacketType",
    "QuicPreferredAddress",
    "QuicProtocolVersion",
    "QuicStreamFrame",
    "QuicTransportParameters",
    "QuicVersionInformation",
    "encode_quic_version_negotiation",
    "is_long_header",
    "pretty_protocol_version",
    "pull_quic_header",
]

CONNECTION_ID_MAX_SIZE = 20
RETRY_INTEGRITY_TAG_SIZE = 16
STATELESS_RESET_TOKEN_SIZE = 16


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


class QuicProtocolVersion(IntEnum):
    """Versions by their number on the wire (RFC 9000 section 15, RFC 9369)."""

    NEGOTIATION = 0x00000000
    VERSION_1 = 0x00000001
    VERSION_2 = 0x6B3343CF


NON_ACK_ELICITING_FRAME_TYPES = frozenset(
    {
        QuicFrameType.PADDING,
        QuicFrameType.ACK,
        QuicFrameType.ACK_ECN,
        QuicFrameType.TRANSPORT_CLOSE,
        QuicFrameType.APPLICATION_CLOSE,
    }
)
"Frames that do not cause an acknowledgement (RFC 9002 section 2)."

PROBING_FRAME_TYPES = frozenset(
    {
        QuicFrameType.PADDING,
        QuicFrameType.NEW_CONNECTION_ID,
        QuicFrameType.PATH_CHALLENGE,
        QuicFrameType.PATH_RESPONSE,
    }
)
"Frames that may be sent on a path without migrating to it (RFC 9000 section 9.1)."


def pretty_protocol_version(version: int) -> str:
    """Formats a version as ``0x00000001 (VERSION_1)``, with ``UNKNOWN`` for a version that has no name
    here."""
    names = {int(known): known.name for known in QuicProtocolVersion}
    return f"0x{version:08x} ({names.get(version, 'UNKNOWN')})"
