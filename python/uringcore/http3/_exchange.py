"""One request and its response on their stream.

``_connection`` feeds an :class:`Exchange` with events, the program reads it through a :class:`Response`. At
most :data:`BODY_HIGH_WATER` bytes of a body, and one event more, wait for the program; then the stream is
paused, and flow control stops the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from uringcore._stored_exceptions import without_traceback
from uringcore.h3.connection import ErrorCode
from uringcore.http3._errors import ReadTimeoutError, RequestFailedError, RequestResetError
from uringcore.http3._request import Fields
from uringcore.http3._timeouts_and_limits import Timeouts

__all__ = ["BODY_HIGH_WATER", "Exchange", "InterimHandler", "Response"]

BODY_HIGH_WATER = 1024 * 1024
"""Bytes of a response's body that may wait for the program before the stream is paused."""

INTERIM_MAX = 64
"""Interim responses before the final one; a further one is an error."""

InterimHandler = Callable[[int, Fields], object]
"""Called with the status, 100 to 199, and the header fields of each interim response (RFC 9110
section 15.2), such as 103 (Early Hints)."""


class _Connection(Protocol):
    """The interface of the connection that an exchange belongs to."""

    def pause_stream(self, stream_id: int) -> None: ...
    def resume_stream(self, stream_id: int) -> None: ...
    def finish(self, exchange: Exchange) -> None: ...
    def get_extra_info(self, name: str, default: Any = None) -> Any: ...


class Exchange:
    """The state of one request stream."""

    def __init__(
        self,
        connection: _Connection,
        stream_id: int,
        on_interim: InterimHandler | None = None,
        *,
        was_early: bool = False,
    ) -> None:
        self.connection = connection
        self.stream_id = stream_id
        self.was_early = was_early
        """The request was sent as 0-RTT data."""
        self._on_interim = on_interim
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._paused = False
        self._waiters: list[asyncio.Future[None]] = []
        self._error: Exception | None = None
        self._interim_error: Exception | None = None
        self._interim_count = 0
        self.status: int | None = None
        self.headers: Fields = []
        self.trailers: Fields = []
        self.ended: bool = False
        self.timed_out: bool = False
        self.request_ended: bool = False
        self.request_stopped: bool = False
        """The server has sent STOP_SENDING for the request's body."""

    # Fed by the connection

    def handle_headers(self, fields: Fields, *, ended: bool) -> None:
        """A field section: of interim responses, of the response, and at last its trailers."""
        status = next((int(value) for name, value in fields if name == b":status"), None)
        if status is None:
            self.trailers = fields
        elif status >= 200:
            self.status = status
            self.headers = [field for field in fields if field[0] != b":status"]
        else:
            self._handle_interim(status, [field for field in fields if field[0] != b":status"])
        self._end(ended)

    def _handle_interim(self, status: int, fields: Fields) -> None:
        self._interim_count += 1
        if self._interim_count > INTERIM_MAX:
            self.handle_error(RequestFailedError(f"more than {INTERIM_MAX} interim responses"))
        elif self._on_interim is not None:
            try:
                self._on_interim(status, fields)
            except Exception as exc:  # noqa: BLE001 - the program's; raised where it waits
                self._interim_error = exc

    def handle_data(self, data: bytes, *, ended: bool) -> None:
        """Handles a part of the response's body."""
        if data:
            self._body.append(data)
            self._body_bytes += len(data)
            if self._body_bytes > BODY_HIGH_WATER and not ended and not self._paused:
                self._paused = True
                self.connection.pause_stream(self.stream_id)
        self._end(ended)

    def handle_stop(self, code: int) -> None:
        """Stops the upload. A response may follow (RFC 9114 section 4.1), whatever the code: servers send 0,
        H3_NO_ERROR and others before they answer. Only a rejected request gets no response (section 4.1.1).

        The request counts as sent: the dropped part of the upload is no error."""
        self.request_stopped = True
        if code == ErrorCode.H3_REQUEST_REJECTED and self.status is None:
            self.handle_error(RequestResetError(code))
        # The program's wait starts again: the request has ended now, and from here on the server has
        # `Timeouts.read` to answer.
        self._wake()

    def handle_error(self, error: Exception) -> None:
        """Ends the exchange without a complete response."""
        if not self.ended and self._error is None:
            self._error = error
        self._wake()

    def handle_request_ended(self) -> None:
        """The whole request is queued: the server's time limit begins."""
        self.request_ended = True
        self._wake()

    def _end(self, ended: bool) -> None:
        if ended:
            if self.status is None:
                self.handle_error(RequestFailedError("the response has no header section"))
            self.ended = True
        self._wake()

    # Read by the program

    async def wait_headers(self, timeout: float | None = None) -> None:
        """Waits for the final response's header section, ``timeout`` seconds at most from the end of the
        request. Raises the exception that ended the exchange before."""
        while self.status is None and self._interim_error is None:
            if self._error is not None:
                raise without_traceback(self._error)
            is_awaited = self.request_ended or self.request_stopped
            await self._wait(timeout if is_awaited else None)
        if self._interim_error is not None:
            raise without_traceback(self._interim_error)

    async def read(self, timeout: float | None = None) -> bytes:
        """Returns the next part of the body; empty bytes at its end. Raises the exception that has cut the
        body off."""
        while not self._body:
            if self.ended:
                return b""
            if self._error is not None:
                raise without_traceback(self._error)
            await self._wait(timeout)
        data = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body = []
        self._body_bytes = 0
        if self._paused:
            self._paused = False
            self.connection.resume_stream(self.stream_id)
        return data

    async def _wait(self, timeout: float | None) -> None:
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiters.append(waiter)
        timer = None if timeout is None else loop.call_later(timeout, _expire, waiter, timeout)
        try:
            await waiter
        except ReadTimeoutError:
            self.timed_out = True
            raise
        finally:
            if timer is not None:
                timer.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    @property
    def failed(self) -> bool:
        """True if the exchange ended with an error."""
        return self._error is not None or self._interim_error is not None


def _expire(waiter: asyncio.Future[None], timeout: float) -> None:
    if not waiter.done():
        waiter.set_exception(ReadTimeoutError(f"the server has sent nothing for {timeout:g} s"))


class Response:
    """A response whose header section has arrived; its body is read as it arrives.

    :meth:`Client.stream <uringcore.http3.Client.stream>` closes it at the end of its block.
    """

    def __init__(
        self,
        exchange: Exchange,
        timeouts: Timeouts,
        upload: asyncio.Future[None] | None = None,
    ) -> None:
        assert exchange.status is not None
        self._exchange = exchange
        self._timeouts = timeouts
        self._upload = upload
        self._is_closed = False
        self._is_streamed = False
        self._parts: list[bytes] = []
        self._is_read = False
        self._on_close: Callable[[], None] = lambda: None
        self.status: int = exchange.status
        """The status code, 200 to 999."""

        self.headers: Fields = exchange.headers
        """The field names in lower case, with their values, in the order in which the server has sent
        them."""

        self.content: bytes = b""
        """The whole body, after :meth:`read` has read it."""

    @property
    def http_version(self) -> str:
        """``"HTTP/3"``."""
        return "HTTP/3"

    @property
    def stream_id(self) -> int:
        """The ID of the request's QUIC stream (RFC 9000 section 2.1)."""
        return self._exchange.stream_id

    @property
    def was_early(self) -> bool:
        """True if the request was sent as 0-RTT data, before the handshake was complete."""
        return self._exchange.was_early

    @property
    def timed_out(self) -> bool:
        """True if a read of the body has timed out (``ReadTimeoutError``)."""
        return self._exchange.timed_out

    @property
    def trailers(self) -> Fields:
        """The trailer section. It is complete when the body has been read to its end."""
        return self._exchange.trailers

    def header(self, name: str, default: str | None = None) -> str | None:
        """Returns the value of the first header field with the name ``name``, as text."""
        wanted = name.lower().encode("ascii")
        for key, value in self.headers:
            if key == wanted:
                return value.decode("latin-1")
        return default

    @property
    def content_length(self) -> int | None:
        """The value of ``content-length``: the size of the body in bytes."""
        value = self.header("content-length")
        return int(value) if value is not None and value.isdecimal() else None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """An attribute of the connection: ``peername``, ``sockname``, ``session_resumed``,
        ``peer_certificates`` (DER, leaf first) or ``stats``
        (:class:`~uringcore.quic.stats.QuicConnectionStats`)."""
        return self._exchange.connection.get_extra_info(name, default)

    async def iter_bytes(self) -> AsyncIterator[bytes]:
        """The body in parts, as they arrive. Parts that are not taken hold the server back by flow control.

        After :meth:`read` it yields the body that :meth:`read` has returned. Raises an
        :class:`~uringcore.http3.HTTP3Error` if the body is cut off, and ``RuntimeError`` if the response was
        closed before its end was read.
        """
        if self._is_read:
            if self.content:
                yield self.content
            return
        self._is_streamed = True
        while data := await self._exchange.read(self._timeouts.read):
            yield data

    async def read(self) -> bytes:
        """The whole body, in memory however large it is. A second call returns it again.

        Raises ``RuntimeError`` if :meth:`iter_bytes` has begun to read it, whose parts are not kept. Raises
        an :class:`~uringcore.http3.HTTP3Error` if the body is cut off.
        """
        if self._is_streamed:
            raise RuntimeError("iter_bytes() has begun to read this response's body")
        while not self._is_read:
            part = await self._exchange.read(self._timeouts.read)
            self._parts.append(part)
            self._is_read = not part
        if self._parts:
            self.content, self._parts = b"".join(self._parts), []
        return self.content

    async def aclose(self) -> None:
        """Releases the stream. What is left of the request and the response is cancelled."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await end_upload(self._upload)
        finally:
            self._exchange.connection.finish(self._exchange)
            self._on_close()


async def end_upload(upload: asyncio.Future[None] | None) -> None:
    """Stops sending a request's body, and waits until the body's iterator is closed."""
    if upload is not None:
        upload.cancel()
        await asyncio.gather(upload, return_exceptions=True)
