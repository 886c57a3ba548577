"""WebSocket over HTTP/3 (RFC 9220): one request stream with messages in both directions.

::

    async with client.websocket("wss://example.org/chat") as websocket:
        await websocket.send("hello")
        async for message in websocket:
            ...

Not here: frames, which the extension reads and writes, and the stream below (_connection.py, _exchange.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any, TypeVar

from uringcore._stored_exceptions import without_traceback
from uringcore._time_limit import within
from uringcore._uringcore import (
    WebSocketFault,
    WebSocketReader,
    websocket_close_frame,
    websocket_frame,
)
from uringcore.http3._connection import HTTP3ClientProtocol
from uringcore.http3._errors import HTTP3Error, ReadTimeoutError, RequestFailedError
from uringcore.http3._exchange import Exchange
from uringcore.http3._request import Fields, Headers, Request, pairs
from uringcore.http3._timeouts_and_limits import Timeouts
from uringcore.http3._url import Origin
from uringcore.quic._close_argument_checks import check_reason

__all__ = [
    "MAX_MESSAGE_BYTES",
    "WebSocket",
    "WebSocketClosedError",
    "WebSocketRefusedError",
    "opened",
]

MAX_MESSAGE_BYTES = 1 << 20
"""The default bound of a received message, in bytes."""

# Status codes of a close (RFC 6455 section 7.4.1).
NORMAL, NO_CODE, ABNORMAL = 1000, 1005, 1006

PING_BYTES_MAX = 125

MASK_BYTES = 4

T = TypeVar("T")

CLOSE_SECONDS = 10.0
"""Seconds that the server has to send its Close frame."""


class WebSocketRefusedError(RequestFailedError):
    """The server refused the WebSocket. ``status`` is the status of its answer, or ``None`` if the server
    does not support extended CONNECT (RFC 9220)."""

    def __init__(self, status: int | None, headers: Fields) -> None:
        what = "does not offer WebSockets over HTTP/3" if status is None else f"answered {status}"
        super().__init__(f"the server {what}")
        self.status = status
        self.headers = headers


class WebSocketClosedError(HTTP3Error):
    """The WebSocket is closed: ``code`` and ``reason`` are those of RFC 6455 section 7.4, with 1006 for
    a stream that ended without a Close frame."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"the WebSocket is closed: {code}{f' ({reason})' if reason else ''}")
        self.code = code
        self.reason = reason


class WebSocket:
    """An open WebSocket. One task may receive while others send.

    Nothing is read ahead of :meth:`receive`: while the program does not receive, flow control stops the
    server, and pings are not answered.
    """

    def __init__(
        self,
        connection: HTTP3ClientProtocol,
        exchange: Exchange,
        timeouts: Timeouts,
        max_size: int,
    ) -> None:
        self._connection = connection
        self._exchange = exchange
        self._timeouts = timeouts
        self._reader = WebSocketReader(max_size)
        self._closed: WebSocketClosedError | None = None
        self._close_sent = False
        self.headers: Fields = exchange.headers
        """The header fields of the server's answer."""
        self.subprotocol: str | None = next(
            (
                value.decode("latin-1")
                for name, value in exchange.headers
                if name == b"sec-websocket-protocol"
            ),
            None,
        )
        """The subprotocol that the server chose, if any (RFC 6455 section 1.9)."""

    async def send(self, message: str | bytes) -> None:
        """Sends text or bytes; waits while the send buffer is full.

        Raises :class:`WebSocketClosedError` when it is closed, and
        :class:`~uringcore.http3.WriteTimeoutError`. Code 1006 also means that the server reads no more;
        :meth:`receive` then still returns the messages that the server has sent, and raises with the code of
        its Close frame.
        """
        if isinstance(message, str):
            await self._send("text", message.encode())
        else:
            await self._send("binary", bytes(message))

    async def ping(self, data: bytes = b"") -> None:
        """Sends a ping of at most 125 bytes. A longer one raises ``ValueError``."""
        if len(data) > PING_BYTES_MAX:
            raise ValueError("data: a ping has at most 125 bytes")
        await self._send("ping", data)

    async def receive(self) -> str | bytes:
        """The next message, text or bytes.

        Raises :class:`WebSocketClosedError` after the last message, and another
        :class:`~uringcore.http3.HTTP3Error` when the stream or the connection fails.
        """
        while True:
            if self._closed is not None:
                raise without_traceback(self._closed)
            try:
                kind, *content = await self._next()
            except WebSocketFault as fault:
                code, reason = fault.args
                await self._end(code, reason)
                raise WebSocketClosedError(code, reason) from fault
            if kind in ("text", "binary"):
                message: str | bytes = content[0]
                return message
            await self._handle(kind, *content)

    def __aiter__(self) -> AsyncIterator[str | bytes]:
        return self._messages()

    async def close(self, code: int = NORMAL, reason: str = "") -> None:
        """Sends a Close frame and waits for the server's, for ten seconds at most.

        Raises ``ValueError`` for a code that may not be sent (RFC 6455 section 7.4), and then nothing is
        closed.
        """
        check_reason(reason)
        frame = websocket_close_frame(code, reason, os.urandom(MASK_BYTES))
        if self._closed is None and not self._close_sent:
            self._close_sent = True
            with contextlib.suppress(WebSocketClosedError):
                await self._write(frame)
        with contextlib.suppress(HTTP3Error, asyncio.TimeoutError):
            await within(self._drain(), CLOSE_SECONDS)
        await self._end(code, reason)

    async def _messages(self) -> AsyncIterator[str | bytes]:
        """Yields messages until the server's Close frame. Any other end raises an exception."""
        while True:
            try:
                yield await self.receive()
            except WebSocketClosedError as closed:
                if closed.code == ABNORMAL or closed.__cause__ is not None:
                    raise
                return

    async def _drain(self) -> None:
        while self._closed is None:
            await self.receive()

    async def _next(self) -> tuple[Any, ...]:
        while (found := self._reader.next()) is None:
            data = await self._exchange.read(self._timeouts.read)
            if not data:
                self._closed = self._closed or WebSocketClosedError(ABNORMAL, "the stream ended")
                raise without_traceback(self._closed)
            self._reader.feed(data)
        return found

    async def _handle(self, kind: str, *content: Any) -> None:
        """Answers a ping or a Close frame."""
        if kind == "ping":
            with contextlib.suppress(WebSocketClosedError):
                await self._send("pong", *content)
        elif kind == "close":
            code, reason = content
            await self._end(NORMAL if code == NO_CODE else code, reason)
            self._closed = WebSocketClosedError(code, reason)

    async def _send(self, kind: str, data: bytes) -> None:
        if self._closed is not None or self._close_sent:
            raise without_traceback(
                self._closed or WebSocketClosedError(NORMAL, "closed on this side")
            )
        await self._write(websocket_frame(kind, data, os.urandom(MASK_BYTES)))

    async def _write(self, data: bytes, *, end: bool = False) -> None:
        try:
            await self._connection.send(
                self._exchange, data, timeout=self._timeouts.write, end_stream=end
            )
        except ConnectionResetError as exc:
            closed = self._closed or WebSocketClosedError(ABNORMAL, "the server accepts no more")
            if self._exchange.failed:
                self._closed = closed
            # Unless the exchange has failed, STOP_SENDING has ended this direction only (RFC 9000 section
            # 3.5). Messages and the server's Close frame can still be received.
            raise without_traceback(closed) from exc

    async def _end(self, code: int, reason: str) -> None:
        """Sends a Close frame, if none was, and the end of the stream (RFC 9220 section 3)."""
        if self._closed is None:
            self._closed = WebSocketClosedError(code, reason)
        if self._exchange.request_ended or self._exchange.failed:
            return
        self._exchange.handle_request_ended()
        data = b""
        if not self._close_sent:
            data = websocket_close_frame(code, reason, os.urandom(MASK_BYTES))
        self._close_sent = True
        with contextlib.suppress(HTTP3Error):
            await self._write(data, end=True)


@contextlib.asynccontextmanager
async def opened(
    connection: HTTP3ClientProtocol,
    request: Request,
    timeouts: Timeouts,
    max_size: int,
    answer: float | None,
) -> AsyncIterator[WebSocket]:
    """Opens the WebSocket of ``request``; leaving the block closes it. The server has ``answer`` seconds for
    its SETTINGS, and as many for its answer.

    Raises :class:`WebSocketRefusedError`, or an exception of requests.
    """
    if not await _within(answer, connection.offers_extended_connect()):
        raise WebSocketRefusedError(None, [])
    exchange = connection.open(request)
    try:
        # The request's body has no end, so `Timeouts.read` never begins to count. This wait therefore has its
        # own time limit.
        await _within(answer, exchange.wait_headers())
        assert exchange.status is not None
        if not 200 <= exchange.status < 300:
            raise WebSocketRefusedError(exchange.status, exchange.headers)
        websocket = WebSocket(connection, exchange, timeouts, max_size)
        yield websocket
        await websocket.close()
    finally:
        connection.finish(exchange)


async def _within(timeout: float | None, awaited: Awaitable[T]) -> T:
    try:
        return await within(awaited, timeout)
    except asyncio.TimeoutError as exc:
        if isinstance(exc, HTTP3Error):
            raise
        raise ReadTimeoutError(f"no answer within {timeout:g} s") from None


def websocket_request(
    url: str, headers: Headers, subprotocols: Sequence[str], base: Origin | None = None
) -> Request:
    """An extended CONNECT (RFC 8441 section 4, RFC 9220) for a ``wss`` or ``https`` URL."""
    if url.lower().startswith("wss://"):
        url = f"https://{url[len('wss://') :]}"
    fields = [*pairs(headers), ("sec-websocket-version", "13")]
    if subprotocols:
        fields.append(("sec-websocket-protocol", ", ".join(subprotocols)))
    # The request has no content yet. WebSocket frames follow after the answer.
    return Request.to("CONNECT", url, fields, (), base=base, protocol=b"websocket")
