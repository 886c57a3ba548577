"""Numbers of HTTP/3 and the exceptions that carry its error codes.

``uringcore.h3.connection`` exports them all, as aioquic's module of that name does.
"""

from __future__ import annotations

from enum import IntEnum

from uringcore._exception_pickling import PickledWithFields

__all__ = [
    "RESERVED_FRAME_TYPES",
    "RESERVED_SETTINGS",
    "ClosedCriticalStream",
    "DatagramError",
    "ErrorCode",
    "FrameError",
    "FrameType",
    "FrameUnexpected",
    "IdError",
    "MessageError",
    "MissingSettingsError",
    "ProtocolError",
    "QpackDecoderStreamError",
    "QpackDecompressionFailed",
    "QpackEncoderStreamError",
    "Setting",
    "SettingsError",
    "StreamCreationError",
    "StreamType",
]

RESERVED_FRAME_TYPES = (0x2, 0x6, 0x8, 0x9)
"Frame types of HTTP/2 without an equivalent; receiving one is an error (RFC 9114 section 7.2.8)."

RESERVED_SETTINGS = (0x0, 0x2, 0x3, 0x4, 0x5)
"Settings of HTTP/2 without an equivalent (RFC 9114 section 7.2.4.1)."


class ErrorCode(IntEnum):
    """Error codes (RFC 9114 section 8.1, RFC 9204 section 6, RFC 9297 section 5.2)."""

    H3_DATAGRAM_ERROR = 0x33
    H3_NO_ERROR = 0x100
    H3_GENERAL_PROTOCOL_ERROR = 0x101
    H3_INTERNAL_ERROR = 0x102
    H3_STREAM_CREATION_ERROR = 0x103
    H3_CLOSED_CRITICAL_STREAM = 0x104
    H3_FRAME_UNEXPECTED = 0x105
    H3_FRAME_ERROR = 0x106
    H3_EXCESSIVE_LOAD = 0x107
    H3_ID_ERROR = 0x108
    H3_SETTINGS_ERROR = 0x109
    H3_MISSING_SETTINGS = 0x10A
    H3_REQUEST_REJECTED = 0x10B
    H3_REQUEST_CANCELLED = 0x10C
    H3_REQUEST_INCOMPLETE = 0x10D
    H3_MESSAGE_ERROR = 0x10E
    H3_CONNECT_ERROR = 0x10F
    H3_VERSION_FALLBACK = 0x110
    QPACK_DECOMPRESSION_FAILED = 0x200
    QPACK_ENCODER_STREAM_ERROR = 0x201
    QPACK_DECODER_STREAM_ERROR = 0x202


class FrameType(IntEnum):
    """Frame types (RFC 9114 section 7.2; 0x41 is WebTransport's)."""

    DATA = 0x0
    HEADERS = 0x1
    CANCEL_PUSH = 0x3
    SETTINGS = 0x4
    PUSH_PROMISE = 0x5
    GOAWAY = 0x7
    MAX_PUSH_ID = 0xD
    WEBTRANSPORT_STREAM = 0x41


class Setting(IntEnum):
    """Settings (RFC 9114 section 7.2.4.1, RFC 9204 section 5, RFC 9220, RFC 9297).

    ``ENABLE_WEBTRANSPORT`` is the setting of draft-ietf-webtrans-http3-02; ``DUMMY`` is a reserved one that
    every peer must ignore.
    """

    QPACK_MAX_TABLE_CAPACITY = 0x1
    MAX_FIELD_SECTION_SIZE = 0x6
    QPACK_BLOCKED_STREAMS = 0x7
    ENABLE_CONNECT_PROTOCOL = 0x8
    H3_DATAGRAM = 0x33
    ENABLE_WEBTRANSPORT = 0x2B603742
    DUMMY = 0x21


class StreamType(IntEnum):
    """Types of unidirectional streams (RFC 9114 section 6.2, RFC 9204 section 4.2)."""

    CONTROL = 0
    PUSH = 1
    QPACK_ENCODER = 2
    QPACK_DECODER = 3
    WEBTRANSPORT = 0x54


class ProtocolError(PickledWithFields, Exception):
    """Base class of the protocol's errors, by their codes.

    A peer's error closes the QUIC connection and raises nothing. Only :class:`FrameUnexpected`
    is raised, for a caller that sends out of order.
    """

    error_code = ErrorCode.H3_GENERAL_PROTOCOL_ERROR

    def __init__(self, reason_phrase: str = "") -> None:
        super().__init__(reason_phrase)
        self.reason_phrase = reason_phrase


class QpackDecompressionFailed(ProtocolError):
    """A field section could not be decoded."""

    error_code = ErrorCode.QPACK_DECOMPRESSION_FAILED


class QpackDecoderStreamError(ProtocolError):
    """An instruction on the QPACK decoder stream was invalid."""

    error_code = ErrorCode.QPACK_DECODER_STREAM_ERROR


class QpackEncoderStreamError(ProtocolError):
    """An instruction on the QPACK encoder stream was invalid."""

    error_code = ErrorCode.QPACK_ENCODER_STREAM_ERROR


class ClosedCriticalStream(ProtocolError):
    """A control or QPACK stream was closed."""

    error_code = ErrorCode.H3_CLOSED_CRITICAL_STREAM


class DatagramError(ProtocolError):
    """An HTTP datagram could not be parsed."""

    error_code = ErrorCode.H3_DATAGRAM_ERROR


class FrameError(ProtocolError):
    """A frame's layout or size was wrong."""

    error_code = ErrorCode.H3_FRAME_ERROR


class FrameUnexpected(ProtocolError):
    """A frame is not allowed in the stream's present state."""

    error_code = ErrorCode.H3_FRAME_UNEXPECTED


class IdError(ProtocolError):
    """A stream ID or push ID was used incorrectly."""

    error_code = ErrorCode.H3_ID_ERROR


class MessageError(ProtocolError):
    """An HTTP message was malformed."""

    error_code = ErrorCode.H3_MESSAGE_ERROR


class MissingSettingsError(ProtocolError):
    """The control stream did not begin with SETTINGS."""

    error_code = ErrorCode.H3_MISSING_SETTINGS


class SettingsError(ProtocolError):
    """The SETTINGS were wrong."""

    error_code = ErrorCode.H3_SETTINGS_ERROR


class StreamCreationError(ProtocolError):
    """A stream was opened that is not allowed."""

    error_code = ErrorCode.H3_STREAM_CREATION_ERROR
