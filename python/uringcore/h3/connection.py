"""An HTTP/3 connection over a QUIC connection, with aioquic's API.

::

    http = H3Connection(quic)
    stream_id = quic.get_next_available_stream_id()
    http.send_headers(stream_id, [(b":method", b"GET"), ...], end_stream=True)
    ...
    for http_event in http.handle_event(quic_event):
        ...

:class:`H3Connection` is implemented in Rust. It works over any object with aioquic's ``configuration``,
``get_next_available_stream_id``, ``send_stream_data``, ``send_datagram_frame``, ``reset_stream``,
``stop_stream`` and ``close``. It transmits nothing by itself.

Differences from aioquic, which follow the RFCs and protect long-running servers:

- ``send_headers`` raises ``ValueError`` for fields that would make the message malformed, such as
  a name in upper case or a line feed in a value (RFC 9114 section 4.2), and for a field section
  above the peer's limit.
- White space around a value given to ``send_headers`` is removed, and so is ``content-length`` in a
  response that cannot have content (RFC 9110 sections 5.5 and 8.6).
- Requests need ``:scheme`` and ``:path`` too, and pseudo-header fields must match their
  grammar (RFC 9114 section 4.3.1). There is one ``host`` at most, equal to ``:authority``
  where both are present.
- Extended CONNECT (RFC 9220) is announced, as in aioquic, and can be switched off:
  ``enable_connect_protocol=False`` makes a request with ``:protocol`` malformed. A plain
  CONNECT names a host and a port (RFC 9114 section 4.4). WebTransport's newer drafts also require
  ``QuicConfiguration(reset_stream_at=True)``, which the program has to set.
- A server's GOAWAY is an event, :class:`~uringcore.h3.events.GoAwayReceived`.
- The limit of received field sections, 64 KiB, is announced and enforced. Incomplete ones may use
  four times as much together. Useless frames, streams and QPACK instructions may
  come 4,096 times, and 64 times more with each field section. A peer that exceeds these limits is closed
  with H3_EXCESSIVE_LOAD.
- ``max_push_id=None`` lets a client refuse pushes; by default it accepts as many as aioquic's.
- ``close_on_malformed=False`` ends only the stream of a malformed message (RFC 9114 section
  4.1.2) and not, as aioquic does, the connection.
- ``send_goaway`` and ``cancel_request`` exist. A request that is reset or stopped through a QUIC
  connection of another library keeps its HTTP/3 state until the connection ends; ``cancel_request``
  frees it.

Subclasses may have an ``__init__`` of their own, attributes, and aioquic's hooks:
``_get_local_settings``, ``_init_connection``, ``_validate_settings``,
``_handle_request_or_push_frame`` (called with the content of a DATA frame, and with ``None`` for other
frames, whose fields are in the events that ``super()`` returns), ``_max_push_id``,
``_max_table_capacity`` and ``_blocked_streams``. They can use ``_stream``, ``_get_or_create_stream``,
``_is_done`` and ``_quic``. A subclass over a program's own QUIC connection object makes aioquic's calls on
it, one for each stream type, frame and batch of QPACK instructions. The target of its requests (pseudo-header
fields and ``host``) is not checked.
"""

from __future__ import annotations

import logging
import weakref
from typing import Any

from uringcore._uringcore import H3ConnectionCore
from uringcore.buffer import UINT_VAR_MAX_SIZE, encode_uint_var
from uringcore.h3._aioquic_frames_and_headers import (
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
from uringcore.h3._aioquic_stream_views import LiveStream, StreamTable
from uringcore.h3._codes_and_errors import (
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
from uringcore.h3.events import (
    DataReceived,
    H3Event,
    Headers,
    HeadersReceived,
    PushPromiseReceived,
)
from uringcore.quic.connection import QuicConnection, stream_is_unidirectional

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
    "H3Event",
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
    "encode_uint_var",
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

logger: logging.Logger = logging.getLogger("http3")
"aioquic's logger, for programs that use it. uringcore logs nothing here."

H3_ALPN = ["h3"]

# Bytes that have a special meaning in field names and values.
NUL = 0x00
HTAB = 0x09
LF = 0x0A
CR = 0x0D
SP = 0x20
COLON = 0x3A
WHITESPACE = (SP, HTAB)


def stream_is_request_response(stream_id: int) -> bool:
    """True if the client opened the stream and both sides send on it (RFC 9000 section 2.1)."""
    return stream_id & 3 == 0


class H3Connection(H3ConnectionCore):
    """An HTTP/3 connection (RFC 9114) over a QUIC connection object with aioquic's interface.

    See :mod:`uringcore.h3.connection` for the differences from aioquic.

    :param quic: The QUIC connection. Its ``configuration.is_client`` selects the role.
    :param enable_webtransport: Announce and accept WebTransport streams and HTTP datagrams.
        Implies ``enable_connect_protocol``.
    :param close_on_malformed: If true, a malformed message closes the connection, as with aioquic.
        If false, only its stream ends, with :class:`MessageAborted` if its headers had been received.
    :param enable_connect_protocol: Announce extended CONNECT (RFC 9220): requests with
        ``:protocol``, such as those for WebSockets.
    :param max_push_id: The highest push ID that a server may use, at most 1023; ``None`` allows no
        push. Clients only.
    """

    _sent_settings: dict[int, int] | None = None

    def __init__(
        self,
        quic: Any,
        enable_webtransport: bool = False,
        *,
        close_on_malformed: bool = True,
        enable_connect_protocol: bool = True,
        max_push_id: int | None = 8,
    ) -> None:
        self._max_table_capacity = 4096
        self._blocked_streams = 16
        self._enable_webtransport = enable_webtransport
        self._enable_connect_protocol = enable_connect_protocol or enable_webtransport
        self._close_on_malformed = close_on_malformed
        self._is_client = bool(quic.configuration.is_client)
        self._quic = quic
        self._max_push_id = max_push_id if self._is_client else None
        self._local_control_stream_id: int | None = None
        self._local_encoder_stream_id: int | None = None
        self._local_decoder_stream_id: int | None = None
        self._at_hand: list[H3Event] = []
        self._init_connection()
        if not self._has_begun:
            # The subclass's `_init_connection` has opened the streams.
            self._start((self._local_control_stream_id, *self._qpack_streams()))

    # For subclasses, under aioquic's names ---------------------------------------------------------

    def _init_connection(self) -> None:
        """Opens the control stream, with SETTINGS, and the two QPACK streams."""
        self._start(None)

    def _get_local_settings(self) -> dict[int, int]:
        """Returns the SETTINGS by identifier, in the order in which they are sent."""
        settings: dict[int, int] = {
            Setting.QPACK_MAX_TABLE_CAPACITY: self._max_table_capacity,
            Setting.MAX_FIELD_SECTION_SIZE: _MAX_FIELD_SECTION_SIZE,
            Setting.QPACK_BLOCKED_STREAMS: self._blocked_streams,
        }
        if self._enable_connect_protocol:
            settings[Setting.ENABLE_CONNECT_PROTOCOL] = 1
        if self._enable_webtransport:
            settings[Setting.H3_DATAGRAM] = 1
        # A reserved setting tests that the peer ignores it (RFC 9114 section 7.2.4.1).
        settings[Setting.DUMMY] = 1
        if self._enable_webtransport:
            settings[Setting.ENABLE_WEBTRANSPORT] = 1
        return settings

    def _validate_settings(self, settings: dict[int, int]) -> None:
        """Checks the values of the peer's SETTINGS, and may change them; raises ``SettingsError``."""
        # These settings may only have the values 0 and 1 (RFC 8441 section 3, RFC 9297 section 2.1.1).
        for flag in _FLAGS:
            if settings.get(flag, 0) not in (0, 1):
                raise SettingsError(f"setting 0x{flag:x} must be 0 or 1, not {settings[flag]}")
        if not settings.get(Setting.H3_DATAGRAM):
            # draft-ietf-webtrans-http3-02 section 3.1: WebTransport needs HTTP datagrams.
            if settings.get(Setting.ENABLE_WEBTRANSPORT):
                raise SettingsError("ENABLE_WEBTRANSPORT requires H3_DATAGRAM")
        elif getattr(self._quic, "_remote_max_datagram_frame_size", 0) is None:
            # HTTP datagrams need QUIC's DATAGRAM frames (RFC 9297 section 2.1.1).
            raise SettingsError("H3_DATAGRAM requires the max_datagram_frame_size parameter")

    def _handle_request_or_push_frame(
        self, frame_type: int, frame_data: bytes | None, stream: H3Stream, stream_ended: bool
    ) -> list[H3Event]:
        """Returns the events that a frame of a request or push produced."""
        events, self._at_hand = self._at_hand, []
        return events

    def _create_uni_stream(self, stream_type: int, push_id: int | None = None) -> int:
        """Opens a unidirectional stream of the given type."""
        stream_id: int = self._quic.get_next_available_stream_id(is_unidirectional=True)
        self._quic.send_stream_data(stream_id, encode_uint_var(stream_type))
        return stream_id

    def _get_or_create_stream(self, stream_id: int) -> LiveStream:
        """Returns the stream of that number, which may not have begun yet."""
        return self._stream.get_or_create(stream_id)

    @property
    def _stream(self) -> StreamTable:
        table: StreamTable | None = vars(self).get("_streams")
        if table is None:
            table = vars(self)["_streams"] = StreamTable(self)
        return table

    @property
    def _settings_received(self) -> bool:
        return self.received_settings is not None

    @property
    def _received_settings(self) -> dict[int, int] | None:
        return self.received_settings

    # Start, and methods that Rust calls -------------------------------------------------------------

    def _start(self, opened: tuple[int | None, int, int] | None) -> None:
        if self._sent_settings is None:
            self._sent_settings = self._get_local_settings()
        cls = type(self)
        is_ours = isinstance(self._quic, QuicConnection)
        frame = "_handle_request_or_push_frame"
        self._begin(
            self._quic,
            dict(self._sent_settings),
            max_push_id=self._max_push_id,
            webtransport=self._enable_webtransport,
            connect_protocol=self._enable_connect_protocol,
            close_on_malformed=self._close_on_malformed,
            settings_hook=cls._validate_settings is not H3Connection._validate_settings,
            frames_hook=getattr(cls, frame) is not getattr(H3Connection, frame),
            separate_writes=cls is not H3Connection and not is_ours,
            opened=opened,
        )
        (
            self._local_control_stream_id,
            self._local_encoder_stream_id,
            self._local_decoder_stream_id,
        ) = self._own_streams()
        if is_ours:
            self._quic._http = weakref.ref(self)

    def _qpack_streams(self) -> tuple[int, int]:
        """Returns the two QPACK streams. Opens them if the subclass has not done so."""
        if self._local_encoder_stream_id is None:
            self._local_encoder_stream_id = self._create_uni_stream(StreamType.QPACK_ENCODER)
        if self._local_decoder_stream_id is None:
            self._local_decoder_stream_id = self._create_uni_stream(StreamType.QPACK_DECODER)
        return self._local_encoder_stream_id, self._local_decoder_stream_id

    def _check_received_settings(self) -> None:
        """Calls a subclass's check of the peer's SETTINGS."""
        settings = self.received_settings or {}
        try:
            self._validate_settings(settings)
        except ProtocolError as error:
            self._fail(error.error_code, error.reason_phrase)
        else:
            self._set_received_settings(settings)

    def _hand_frame(self, event: H3Event) -> list[H3Event]:
        """Passes a frame's ``event`` to a subclass and returns the events to report."""
        frame_data: bytes | None = None
        if isinstance(event, DataReceived):
            frame_type, frame_data = FrameType.DATA, event.data
        else:
            assert isinstance(event, (HeadersReceived, PushPromiseReceived))
            is_headers = isinstance(event, HeadersReceived)
            frame_type = FrameType.HEADERS if is_headers else FrameType.PUSH_PROMISE
        stream = self._get_or_create_stream(event.stream_id)
        if isinstance(event, HeadersReceived) and not is_interim_response(event.headers):
            stream.advance()
        self._at_hand = [event]
        is_last = getattr(event, "stream_ended", False)
        try:
            return self._handle_request_or_push_frame(frame_type, frame_data, stream, is_last)
        except ProtocolError as error:
            self._fail(error.error_code, error.reason_phrase)
            return []
        finally:
            self._at_hand = []


_MAX_FIELD_SECTION_SIZE = 65536
_FLAGS = (Setting.ENABLE_CONNECT_PROTOCOL, Setting.H3_DATAGRAM, Setting.ENABLE_WEBTRANSPORT)
