"""An HTTP/3 connection over a QUIC connection, in aioquic's shape.

::

    http = H3Connection(quic)
    stream_id = quic.get_next_available_stream_id()
    http.send_headers(stream_id, [(b":method", b"GET"), ...], end_stream=True)
    ...
    for http_event in http.handle_event(quic_event):
        ...

:class:`H3Connection` is Rust. It serves over any object with aioquic's ``configuration``,
``get_next_available_stream_id``, ``send_stream_data``, ``send_datagram_frame``, ``reset_stream``,
``stop_stream`` and ``close``. It transmits nothing by itself.

What differs from aioquic, in favour of the RFCs and of servers that have to last:

- ``send_headers`` raises ``ValueError`` for fields that would make the message malformed, such as
  a name in upper case or a line feed in a value (RFC 9114 section 4.2), and for a field section
  above the peer's limit.
- White space around a value given to ``send_headers`` is left out, as is ``content-length`` in a
  response that cannot have content (RFC 9110 sections 5.5 and 8.6).
- Requests need ``:scheme`` and ``:path`` too, and the pseudo-header fields have to be what their
  grammar says (RFC 9114 section 4.3.1). There is one ``host`` at most, equal to ``:authority``
  where both are present.
- Extended CONNECT (RFC 9220) is announced only with ``enable_connect_protocol=True`` or
  ``enable_webtransport=True``; without it a request with ``:protocol`` is malformed. A plain
  CONNECT names a host and a port (RFC 9114 section 4.4). WebTransport's newer drafts also want
  ``QuicConfiguration(reset_stream_at=True)``, which is not this class's to set.
- A server's GOAWAY is an event, :class:`~uringcore.h3.events.GoAwayReceived`.
- Our limit on field sections, 64 KiB, is announced and enforced. Those that have not ended may take
  four times as much together, and frames, streams and QPACK instructions that lead to nothing may
  come 4,096 times, and 64 times more with each field section: a peer that goes beyond is closed
  with H3_EXCESSIVE_LOAD.
- ``max_push_id=None`` lets a client refuse pushes; by default it takes as many as aioquic's.
- ``close_on_malformed=False`` gives up only the stream of a malformed message (RFC 9114 section
  4.1.2) and not, as aioquic does, the connection.
- ``send_goaway`` and ``cancel_request`` exist. A request that is reset through the QUIC connection
  itself keeps its HTTP/3 state until the connection ends; ``cancel_request`` frees it.
"""

from __future__ import annotations

import logging

from uringcore._uringcore import H3Connection
from uringcore.buffer import UINT_VAR_MAX_SIZE
from uringcore.h3.codes import (
    RESERVED_FRAME_TYPES,
    RESERVED_SETTINGS,
    ClosedCriticalStream,
    DatagramError,
    ErrorCode,
    FrameError,
    FrameType,
    FrameUnexpected,
    IdError,
    MessageError,
    MissingSettingsError,
    ProtocolError,
    QpackDecoderStreamError,
    QpackDecompressionFailed,
    QpackEncoderStreamError,
    Setting,
    SettingsError,
    StreamCreationError,
    StreamType,
)
from uringcore.h3.events import Headers
from uringcore.h3.messages import (
    CONNECTION_SPECIFIC_HEADERS,
    H3Stream,
    HeadersState,
    encode_frame,
    encode_settings,
    is_interim_response,
    parse_max_push_id,
    parse_settings,
    validate_header_name,
    validate_header_value,
    validate_headers,
    validate_push_promise_headers,
    validate_request_headers,
    validate_response_headers,
    validate_trailers,
)
from uringcore.quic.connection import stream_is_unidirectional

__all__ = [
    "COLON",
    "CONNECTION_SPECIFIC_HEADERS",
    "CR",
    "H3_ALPN",
    "HTAB",
    "LF",
    "NUL",
    "RESERVED_FRAME_TYPES",
    "RESERVED_SETTINGS",
    "SP",
    "UINT_VAR_MAX_SIZE",
    "WHITESPACE",
    "ClosedCriticalStream",
    "DatagramError",
    "ErrorCode",
    "FrameError",
    "FrameType",
    "FrameUnexpected",
    "H3Connection",
    "H3Stream",
    "Headers",
    "HeadersState",
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
    "encode_frame",
    "encode_settings",
    "is_interim_response",
    "logger",
    "parse_max_push_id",
    "parse_settings",
    "stream_is_request_response",
    "stream_is_unidirectional",
    "validate_header_name",
    "validate_header_value",
    "validate_headers",
    "validate_push_promise_headers",
    "validate_request_headers",
    "validate_response_headers",
    "validate_trailers",
]

logger = logging.getLogger("http3")
"aioquic's logger. uringcore itself says nothing here."

H3_ALPN = ["h3"]

# Bytes with a meaning in field names and values.
NUL = 0x00
HTAB = 0x09
LF = 0x0A
CR = 0x0D
SP = 0x20
COLON = 0x3A
WHITESPACE = (SP, HTAB)


def stream_is_request_response(stream_id: int) -> bool:
    """Whether the client opened the stream and both sides send on it (RFC 9000 section 2.1)."""
    return stream_id & 3 == 0
