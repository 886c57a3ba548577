"""HTTP/0.9 over a QUIC connection: a line with the method and path, then raw content.

It exists for QUIC's interoperability tests, which call it ``hq-interop``. The interface is
that of :class:`uringcore.h3.connection.H3Connection`.
"""

from __future__ import annotations

from typing import Any

from uringcore.h3.events import DataReceived, H3Event, Headers, HeadersReceived

__all__ = ["H0_ALPN", "REQUESTS_MAX", "REQUEST_SIZE_MAX", "H0Connection"]

H0_ALPN = ["hq-interop"]

REQUEST_SIZE_MAX = 8192
"The longest request that a server accepts, in bytes. A longer one closes the connection."

REQUESTS_MAX = 1024
"""The maximum number of requests whose state is kept. If more requests have an incomplete first line, the
connection is closed. If more have a complete one, the oldest are dropped, as if they had ended."""

# HTTP/3's code for other errors (RFC 9114 section 8.1). hq-interop defines no codes.
_GENERAL_PROTOCOL_ERROR = 0x101
_EXCESSIVE_LOAD = 0x107


class H0Connection:
    """An HTTP/0.9 connection.

    :param quic: A QUIC connection object, uringcore's or one with the same interface.
    """

    def __init__(self, quic: Any) -> None:
        self._quic = quic
        self._is_client: bool = quic.configuration.is_client
        # The received part of each request whose first line is incomplete: at most REQUEST_SIZE_MAX bytes.
        self._incomplete: dict[int, bytes] = {}
        # Open streams whose headers were reported, the oldest first.
        self._headers_received: dict[int, None] = {}

    def handle_event(self, event: Any) -> list[H3Event]:
        """Handles a QUIC event and returns the resulting HTTP events."""
        # Events are recognised by the names of their classes, so that events of any library with aioquic's
        # API work.
        kind = type(event).__name__
        if kind == "StreamReset":
            self._forget(event.stream_id)
        elif kind == "ConnectionTerminated":
            self._incomplete.clear()
            self._headers_received.clear()
        if kind != "StreamDataReceived" or event.stream_id % 4 != 0:
            return []
        stream_id: int = event.stream_id
        data: bytes = event.data
        events: list[H3Event] = []
        if stream_id not in self._headers_received:
            if self._is_client:
                events.append(HeadersReceived([], stream_id, False))
            else:
                headers = self._read_request(stream_id, data, event.end_stream)
                if headers is None:
                    return []
                events.append(HeadersReceived(headers, stream_id, False))
                data = b""
            # The oldest are dropped, because no event reports the end of a stream that the program has
            # stopped.
            while len(self._headers_received) >= REQUESTS_MAX:
                self._forget(next(iter(self._headers_received)))
            self._headers_received[stream_id] = None
        if event.end_stream:
            self._forget(stream_id)
        events.append(DataReceived(data, stream_id, event.end_stream))
        return events

    def send_data(self, stream_id: int, data: bytes, end_stream: bool) -> None:
        """Sends content."""
        self._quic.send_stream_data(stream_id, data, end_stream)

    def send_headers(self, stream_id: int, headers: Headers, end_stream: bool = False) -> None:
        """Sends a client's request line. A server's response has none, so this sends nothing.

        :raises ValueError: if a client's headers lack ``:method`` or ``:path``.
        """
        line = b""
        if self._is_client:
            fields = dict(headers)
            if b":method" not in fields or b":path" not in fields:
                raise ValueError("headers: an HTTP/0.9 request needs :method and :path")
            line = fields[b":method"] + b" " + fields[b":path"] + b"\r\n"
        if line or end_stream:
            self._quic.send_stream_data(stream_id, line, end_stream)

    def _forget(self, stream_id: int) -> None:
        self._incomplete.pop(stream_id, None)
        self._headers_received.pop(stream_id, None)

    def _read_request(self, stream_id: int, data: bytes, ended: bool) -> Headers | None:
        """Returns the request as header fields. None if the request is incomplete or invalid."""
        line = self._incomplete.pop(stream_id, b"") + data
        if len(line) > REQUEST_SIZE_MAX:
            self._quic.close(_GENERAL_PROTOCOL_ERROR, None, "the HTTP/0.9 request is too long")
            return None
        if not ended and not line.endswith(b"\r\n"):
            if len(self._incomplete) >= REQUESTS_MAX:
                self._quic.close(_EXCESSIVE_LOAD, None, "too many incomplete HTTP/0.9 requests")
                return None
            self._incomplete[stream_id] = line
            return None
        method, space, path = line.rstrip().partition(b" ")
        if not method or not space or not path:
            self._quic.close(_GENERAL_PROTOCOL_ERROR, None, "the HTTP/0.9 request has no path")
            return None
        return [(b":method", method), (b":path", path)]
