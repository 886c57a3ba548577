"""One request and its response on their stream.

An :class:`Exchange` is fed by the connection's events (client.py) and read by the program through a
:class:`Response`. At most :data:`BODY_HIGH_WATER` bytes (and one event's worth) of a body wait for
the program; above that the stream is paused, and the server's ``send`` waits in its turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

from uringcore.h3.connection import ErrorCode
from uringcore.http3.errors import RequestFailed, RequestReset

__all__ = ["BODY_HIGH_WATER", "Exchange", "Fields", "Response"]

Fields = list[tuple[bytes, bytes]]

BODY_HIGH_WATER = 1024 * 1024
"""Bytes of a response's body that may wait for the program before the stream is paused."""


class _Credit(Protocol):
    """What an exchange asks of its connection: how much the server may send."""

    def pause_stream(self, stream_id: int) -> None: ...
    def resume_stream(self, stream_id: int) -> None: ...


class Exchange:
    """The state of one request stream."""

    def __init__(self, protocol: _Credit, stream_id: int) -> None:
        self._protocol = protocol
        self.stream_id = stream_id
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._paused = False
        self._changed = asyncio.Event()
        self._error: Exception | None = None
        self.status: int | None = None
        self.headers: Fields = []
        self.trailers: Fields = []
        self.ended = False
        self.request_ended = False
        self.request_stopped = False
        """The server wants no more of the request's body (STOP_SENDING)."""

    # Fed by the connection

    def handle_headers(self, fields: Fields, *, ended: bool) -> None:
        """A field section: interim responses are passed over, the last one may be trailers."""
        status = next((int(value) for name, value in fields if name == b":status"), None)
        if status is None:
            self.trailers = fields
        elif status >= 200:
            self.status = status
            self.headers = [field for field in fields if field[0] != b":status"]
        self._end(ended)

    def handle_data(self, data: bytes, *, ended: bool) -> None:
        """A part of the body."""
        if data:
            self._body.append(data)
            self._body_bytes += len(data)
            if self._body_bytes > BODY_HIGH_WATER and not ended and not self._paused:
                self._paused = True
                self._protocol.pause_stream(self.stream_id)
        self._end(ended)

    def handle_stop(self, code: int) -> None:
        """The server wants no more of the request. With NO_ERROR the response goes on."""
        self.request_stopped = True
        if code != ErrorCode.H3_NO_ERROR and not self.ended:
            self.handle_error(RequestReset(code))

    def handle_error(self, error: Exception) -> None:
        """The end without a complete response."""
        if not self.ended and self._error is None:
            self._error = error
        self._changed.set()

    def _end(self, ended: bool) -> None:
        if ended:
            self.ended = True
            if self.status is None:
                self.handle_error(RequestFailed("the response has no header section"))
        self._changed.set()

    # Read by the program

    async def wait_headers(self) -> None:
        """Waits for the final response's header section. Raises what ended the exchange before."""
        while self.status is None:
            if self._error is not None:
                raise self._error
            await self._wait()

    async def read(self) -> bytes:
        """The next part of the body, empty at its end. Raises what cut it off."""
        while not self._body:
            if self.ended:
                return b""
            if self._error is not None:
                raise self._error
            await self._wait()
        data = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body = []
        self._body_bytes = 0
        if self._paused:
            self._paused = False
            self._protocol.resume_stream(self.stream_id)
        return data

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    @property
    def failed(self) -> bool:
        """Whether the exchange ended with an error."""
        return self._error is not None


class Response:
    """A response whose header section has arrived; its body is read as it comes."""

    def __init__(self, exchange: Exchange) -> None:
        assert exchange.status is not None
        self._exchange = exchange
        self.status: int = exchange.status
        """The status code, 200 to 999."""

        self.headers: Fields = exchange.headers
        """Field names, in lower case, and values, in the server's order."""

        self.content: bytes = b""
        """The whole body, once :meth:`read` has read it."""

    @property
    def http_version(self) -> str:
        """``"HTTP/3"``."""
        return "HTTP/3"

    @property
    def trailers(self) -> Fields:
        """The trailer section; complete when the body has been read to its end."""
        return self._exchange.trailers

    def header(self, name: str, default: str | None = None) -> str | None:
        """The first header field called ``name``, as text."""
        wanted = name.lower().encode("ascii")
        for key, value in self.headers:
            if key == wanted:
                return value.decode("latin-1")
        return default

    @property
    def content_length(self) -> int | None:
        """The body's size in bytes as the server announced it."""
        value = self.header("content-length")
        return int(value) if value is not None and value.isdecimal() else None

    async def iter_bytes(self) -> AsyncIterator[bytes]:
        """The body in the parts in which it arrives.

        Raises :class:`~uringcore.http3.RequestReset` or a ``QuicConnectionError`` if it is cut off.
        """
        while data := await self._exchange.read():
            yield data

    async def read(self) -> bytes:
        """The whole body, in memory however large it is."""
        self.content += b"".join([part async for part in self.iter_bytes()])
        return self.content
