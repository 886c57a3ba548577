"""Frames, SETTINGS and field sections of HTTP/3, for programs that build or check them themselves.

:class:`~uringcore.h3.connection.H3Connection` uses none of this: it has a Rust implementation, which is
stricter (``uringcore.h3.connection`` lists the differences). The names are aioquic's, and
``uringcore.h3.connection`` exports them all, as aioquic's module of that name does.
"""

from __future__ import annotations

from enum import Enum

from uringcore.buffer import UINT_VAR_MAX_SIZE, Buffer, BufferReadError
from uringcore.h3._codes_and_errors import (
    RESERVED_SETTINGS,
    FrameError,
    FrameUnexpected,
    MessageError,
    SettingsError,
)
from uringcore.h3.events import Headers

__all__ = [
    "CONNECTION_SPECIFIC_HEADERS",
    "H3Stream",
    "HeadersState",
    "encode_frame",
    "encode_settings",
    "is_interim_response",
    "parse_max_push_id",
    "parse_settings",
    "validate_header_name",
    "validate_header_value",
    "validate_headers",
    "validate_push_promise_headers",
    "validate_request_headers",
    "validate_response_headers",
    "validate_trailers",
]

CONNECTION_SPECIFIC_HEADERS = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"transfer-encoding", b"upgrade"}
)
"Fields that concern one TCP connection and make a message malformed (RFC 9114 section 4.2)."


class HeadersState(Enum):
    """The progress of one direction of a message (RFC 9114 section 4.1)."""

    INITIAL = 0
    AFTER_HEADERS = 1
    AFTER_TRAILERS = 2


class H3Stream:
    """The results of the ``validate_`` functions for a message, and the state of its two directions.

    ``expected_content_length`` is the value of ``content-length``, or ``None`` without one.
    """

    def __init__(self, stream_id: int) -> None:
        self.stream_id = stream_id
        self.blocked = False
        self.content_length = 0
        self.expected_content_length: int | None = None
        self.headers_recv_state = HeadersState.INITIAL
        self.headers_send_state = HeadersState.INITIAL
        self.push_id: int | None = None
        self.receiving_ended = False
        self.sending_ended: bool = False
        self.session_id: int | None = None
        self.stream_type: int | None = None

    def is_ended(self) -> bool:
        """True if both directions have ended, and no received data waits for QPACK."""
        return self.receiving_ended and self.sending_ended and not self.blocked

    def finish_sending(self) -> None:
        """Marks this side's direction of the stream as ended. Raises ``FrameUnexpected`` if it has ended
        before."""
        if self.sending_ended:
            raise FrameUnexpected("stream was already ended")
        self.sending_ended = True


def encode_frame(frame_type: int, frame_data: bytes) -> bytes:
    """Encodes a frame: its type, its length and its payload (RFC 9114 section 7.1)."""
    buf = Buffer(capacity=2 * UINT_VAR_MAX_SIZE + len(frame_data))
    buf.push_uint_var(frame_type)
    buf.push_uint_var(len(frame_data))
    buf.push_bytes(frame_data)
    return buf.data


def encode_settings(settings: dict[int, int]) -> bytes:
    """Returns the payload of a SETTINGS frame (RFC 9114 section 7.2.4)."""
    buf = Buffer(capacity=2 * UINT_VAR_MAX_SIZE * len(settings))
    for identifier, value in settings.items():
        buf.push_uint_var(identifier)
        buf.push_uint_var(value)
    return buf.data


def parse_settings(data: bytes) -> dict[int, int]:
    """Parses the payload of a SETTINGS frame.

    Raises ``FrameError`` if it ends inside a setting, ``SettingsError`` for one that is included
    twice or is reserved (RFC 9114 section 7.2.4.1).
    """
    buf = Buffer(data=data)
    settings: dict[int, int] = {}
    while not buf.eof():
        try:
            identifier, value = buf.pull_uint_var(), buf.pull_uint_var()
        except BufferReadError:
            raise FrameError("SETTINGS frame ends inside a setting") from None
        if identifier in RESERVED_SETTINGS:
            raise SettingsError(f"setting 0x{identifier:x} is reserved")
        if identifier in settings:
            raise SettingsError(f"setting 0x{identifier:x} is included twice")
        settings[identifier] = value
    return settings


def parse_max_push_id(data: bytes) -> int:
    """Parses the payload of a MAX_PUSH_ID frame. Raises ``FrameError`` if it is not one number."""
    buf = Buffer(data=data)
    try:
        push_id = buf.pull_uint_var()
    except BufferReadError:
        raise FrameError("MAX_PUSH_ID frame ends inside its push ID") from None
    if not buf.eof():
        raise FrameError("MAX_PUSH_ID frame has more than its push ID")
    return push_id


def is_interim_response(headers: Headers) -> bool:
    """True if these are the fields of an interim response, with a status 1xx."""
    status = next((value for name, value in headers if name == b":status"), b"")
    return status[:1] == b"1"


def validate_header_name(key: bytes) -> None:
    """Raises ``MessageError`` unless ``key`` is a valid field name (RFC 9114 section 4.2)."""
    if any(byte <= 0x20 or byte >= 0x7F or 0x41 <= byte <= 0x5A for byte in key):
        raise MessageError(f"Header {key!r} contains invalid characters")
    if b":" in key[1:]:
        raise MessageError(f"Header {key!r} contains a non-initial colon")


def validate_header_value(key: bytes, value: bytes) -> None:
    """Raises ``MessageError`` unless ``value`` is a valid field value (RFC 9110 section 5.5)."""
    if any(byte in (0x00, 0x0A, 0x0D) for byte in value):
        raise MessageError(f"Header {key!r} value has forbidden characters")
    if value[:1] in (b" ", b"\t"):
        raise MessageError(f"Header {key!r} value starts with whitespace")
    if value[-1:] in (b" ", b"\t"):
        raise MessageError(f"Header {key!r} value ends with whitespace")


def validate_headers(
    headers: Headers,
    *,
    allow_te: bool = False,
    allowed_pseudo_headers: frozenset[bytes],
    required_pseudo_headers: frozenset[bytes],
    stream: H3Stream | None = None,
) -> None:
    """Checks a field section: names, values, and the set of pseudo-headers.

    Raises ``MessageError``. Stores a ``content-length`` in ``stream``.
    """
    pseudo: dict[bytes, bytes] = {}
    regular = False
    for key, value in headers:
        validate_header_name(key)
        validate_header_value(key, value)
        if key[:1] == b":":
            if regular:
                raise MessageError(f"Pseudo-header {key!r} is not allowed after regular headers")
            if key not in allowed_pseudo_headers:
                raise MessageError(f"Pseudo-header {key!r} is not valid")
            if key in pseudo:
                raise MessageError(f"Pseudo-header {key!r} is included twice")
            pseudo[key] = value
            continue
        regular = True
        if key == b"content-length":
            if not value.isdigit():
                raise MessageError("content-length is not a non-negative integer")
            if stream is not None:
                stream.expected_content_length = int(value)
        elif key == b"te" and allow_te:
            if value.lower() != b"trailers":
                raise MessageError(f"Header {key!r} value is not trailers")
        elif key in CONNECTION_SPECIFIC_HEADERS:
            raise MessageError(f"Header {key!r} is connection-specific")
    missing = sorted(required_pseudo_headers - pseudo.keys())
    if missing:
        raise MessageError(f"Pseudo-headers {missing} are missing")
    if pseudo.get(b":scheme") in (b"http", b"https"):
        for name in (b":authority", b":path"):
            if not pseudo.get(name):
                raise MessageError(f"Pseudo-header {name!r} cannot be empty")


def validate_push_promise_headers(headers: Headers) -> None:
    """Checks the request that a server promises to answer (RFC 9114 section 7.2.5)."""
    validate_headers(
        headers,
        allow_te=True,
        allowed_pseudo_headers=_TARGET,
        required_pseudo_headers=_TARGET,
    )


def validate_request_headers(headers: Headers, stream: H3Stream | None = None) -> None:
    """Checks a request's header section (RFC 9114 section 4.3.1, RFC 9220)."""
    validate_headers(
        headers,
        allow_te=True,
        allowed_pseudo_headers=_TARGET | {b":protocol"},
        required_pseudo_headers=frozenset({b":method", b":authority"}),
        stream=stream,
    )


def validate_response_headers(headers: Headers, stream: H3Stream | None = None) -> None:
    """Checks a response's header section (RFC 9114 section 4.3.2)."""
    only_status = frozenset({b":status"})
    validate_headers(
        headers,
        allowed_pseudo_headers=only_status,
        required_pseudo_headers=only_status,
        stream=stream,
    )
    status = dict(headers)[b":status"]
    if len(status) != 3 or not status.isdigit():
        raise MessageError(f"Pseudo-header b':status' has invalid value {status!r}")
    if status == b"101":
        raise MessageError("Pseudo-header b':status' cannot be 101")


def validate_trailers(headers: Headers) -> None:
    """Checks a trailer section, which has no pseudo-headers (RFC 9114 section 4.3)."""
    validate_headers(
        headers, allowed_pseudo_headers=frozenset(), required_pseudo_headers=frozenset()
    )


_TARGET = frozenset({b":method", b":scheme", b":authority", b":path"})
