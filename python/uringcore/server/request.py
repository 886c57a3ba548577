"""One HTTP/3 request and its response: ASGI's ``receive`` and ``send``, and the flow control of both.

A :class:`Request` knows its stream and its application, and nothing of the connection's other
requests; connection.py makes it, feeds it, and is what it writes through.

- Towards the application at most :data:`BODY_HIGH_WATER` bytes (and one event's worth) wait; above
  that the QUIC stream is paused, so the peer's credit runs out and its ``send`` waits.
- Towards the peer ``send`` returns at once until the stream's send queue is above the high-water
  mark of the QUIC configuration, or all queues of the connection together are above theirs; then
  when they have fallen. A body is queued in parts, so that a large one waits in the application.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol
from urllib.parse import quote

from uringcore.h3.connection import ErrorCode

__all__ = ["BODY_HIGH_WATER", "PART_BYTES", "Request"]

Message = dict[str, Any]
Application = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[Any],
]

BODY_HIGH_WATER = 256 * 1024
"""Bytes of request body that may wait for the application before the stream is paused."""

PART_BYTES = 128 * 1024
"""Bytes of a response's body that are queued before ``send`` looks whether there is room for more."""

# What the access log shows as it is: printable, and neither a quote nor a space, which delimit it.
LOGGABLE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"\\')

# RFC 9114 section 4.2: these belong to one HTTP/1.1 connection and must not be sent.
CONNECTION_FIELDS = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)

logger = logging.getLogger("uvicorn.error")
access_logger = logging.getLogger("uvicorn.access")


class _Connection(Protocol):
    """What a request writes through."""

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]: ...
    def send_headers(
        self, stream_id: int, fields: list[tuple[bytes, bytes]], *, end_stream: bool
    ) -> None: ...
    def send_data(self, stream_id: int, data: bytes | memoryview, *, end_stream: bool) -> None: ...
    async def drain(self, stream_id: int) -> None: ...
    def pause_stream(self, stream_id: int) -> None: ...
    def resume_stream(self, stream_id: int) -> None: ...
    def cancel(self, stream_id: int, code: ErrorCode) -> None: ...
    def request_done(self, stream_id: int) -> None: ...


class Request:
    """Runs the application for one request stream."""

    __slots__ = (
        "_access_log",
        "_body",
        "_body_bytes",
        "_changed",
        "_connection",
        "_content_length",
        "_continue_wanted",
        "_end_told",
        "_head",
        "_more_body",
        "_paused",
        "_scope",
        "_stream_id",
        "_trailer_fields",
        "_trailers",
        "disconnected",
        "response_complete",
        "response_started",
    )

    def __init__(
        self, connection: _Connection, stream_id: int, scope: Message, *, access_log: bool
    ) -> None:
        self._connection = connection
        self._stream_id = stream_id
        self._scope = scope
        self._access_log = access_log
        self._head = scope["method"] == "HEAD"
        # RFC 9110 section 10.1.1: answered when the application first asks for the body.
        self._continue_wanted = any(
            name == b"expect" and value.lower() == b"100-continue"
            for name, value in scope["headers"]
        )
        # The request
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._more_body = True
        self._end_told = False
        self._paused = False
        self._changed: asyncio.Event | None = None
        self.disconnected = False
        # The response
        self._content_length: int | None = None
        self._trailers = False
        self._trailer_fields: list[tuple[bytes, bytes]] = []
        self.response_started = False
        self.response_complete = False

    # What the connection tells

    def handle_body(self, data: bytes, *, ended: bool) -> None:
        """More of the request's body; ``ended`` with its last piece."""
        if data and not self.response_complete:
            self._body.append(data)
            self._body_bytes += len(data)
            if self._body_bytes > BODY_HIGH_WATER and not self._paused and not ended:
                self._paused = True
                self._connection.pause_stream(self._stream_id)
        if ended:
            self._more_body = False
        self._wake()

    def handle_disconnect(self) -> None:
        """The client gave up on this request, or the connection is gone."""
        self.disconnected = True
        self._body.clear()
        self._wake()

    @property
    def request_ended(self) -> bool:
        """Whether the whole request has arrived."""
        return not self._more_body

    # Running the application

    async def run(self, application: Application) -> None:
        """Calls the application and sees to it that the stream ends, whatever it does."""
        try:
            result: object = await application(self._scope, self.receive, self.send)
        except asyncio.CancelledError:
            # The server's limit for a graceful stop: say so to the peer, then let go.
            self._give_up(ErrorCode.H3_REQUEST_CANCELLED)
            raise
        except BaseException as exc:
            logger.error("Exception in ASGI application\n", exc_info=exc)
            self._fail()
        else:
            if result is not None:
                logger.error("ASGI callable should return None, but returned '%s'.", result)
                self._fail()
            elif not self.disconnected and not self.response_complete:
                what = "completing" if self.response_started else "starting"
                logger.error("ASGI callable returned without %s response.", what)
                self._fail()
        finally:
            self._connection.request_done(self._stream_id)

    def _fail(self) -> None:
        """The application's fault: 500 while that can still be said, else a reset."""
        if self.response_complete or self.disconnected:
            return
        if self.response_started:
            self._give_up(ErrorCode.H3_INTERNAL_ERROR)
        else:
            self.respond(500, b"Internal Server Error")

    def _give_up(self, code: ErrorCode) -> None:
        if not self.response_complete and not self.disconnected:
            self.response_complete = True
            self._connection.cancel(self._stream_id, code)

    def respond(self, status: int, text: bytes) -> None:
        """A whole response of our own, instead of the application's."""
        self._content_length = None
        self._trailers = False
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(text)),
        ]
        try:
            self._start(status, headers)
            content = b"" if self._head else text
            self._connection.send_data(self._stream_id, content, end_stream=True)
        except ConnectionResetError:
            # The client went away in this very turn.
            self.handle_disconnect()
        else:
            self._finished()

    # ASGI: receive

    async def receive(self) -> Message:
        """The next part of the body; ``http.disconnect`` once there is nobody to answer."""
        if self._continue_wanted and not self._body and self._more_body:
            self._continue_wanted = False
            if not self.disconnected and not self.response_started:
                self._connection.send_headers(
                    self._stream_id, [(b":status", b"100")], end_stream=False
                )
        while not self.disconnected and not self.response_complete:
            if self._body or not (self._more_body or self._end_told):
                return self._take_body()
            # After the body's end, this waits for the end of the exchange.
            await self._wait()
        return {"type": "http.disconnect"}

    def _take_body(self) -> Message:
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body = []
        self._body_bytes = 0
        self._end_told = not self._more_body
        if self._paused:
            self._paused = False
            self._connection.resume_stream(self._stream_id)
        return {"type": "http.request", "body": body, "more_body": self._more_body}

    async def _wait(self) -> None:
        # An event, not a future: frameworks do listen for the disconnect in a second task.
        if self._changed is None:
            self._changed = asyncio.Event()
        self._changed.clear()
        await self._changed.wait()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()

    # ASGI: send

    async def send(self, message: Message) -> None:
        """Takes one ASGI message; returns when the stream's send queue has room for another."""
        if self.disconnected:
            # As in ASGI before spec version 2.4: what nobody reads goes nowhere, without an error.
            return
        try:
            await self._send(message)
        except ConnectionResetError:
            # The client went away just now, or while we waited; `receive` tells the application.
            self.handle_disconnect()

    async def _send(self, message: Message) -> None:
        kind = message["type"]
        if not self.response_started:
            self._send_first(kind, message)
        elif self.response_complete:
            raise RuntimeError(
                f"Unexpected ASGI message '{kind}' sent, after response already completed."
            )
        elif kind == "http.response.body":
            await self._send_body(message.get("body", b""), message.get("more_body", False))
        elif kind == "http.response.trailers" and self._trailers:
            self._send_trailers(message)
        else:
            raise RuntimeError(f"Expected ASGI message 'http.response.body', but got '{kind}'.")

    def _send_first(self, kind: str, message: Message) -> None:
        if kind == "http.response.start":
            self._trailers = bool(message.get("trailers", False))
            self._start(message["status"], message.get("headers", ()))
        elif kind == "http.response.early_hint":
            links = [(b"link", bytes(link)) for link in message["links"]]
            self._connection.send_headers(
                self._stream_id, [(b":status", b"103"), *links], end_stream=False
            )
        else:
            raise RuntimeError(f"Expected ASGI message 'http.response.start', but got '{kind}'.")

    def _start(self, status: int, headers: Any) -> None:
        if not 200 <= status <= 999:
            raise RuntimeError(f"Invalid HTTP status code {status} for a final response.")
        fields = [(b":status", b"%d" % status), *self._connection.default_headers]
        content_length = None
        for name, value in headers:
            name, value = plain_field(name, value)
            if name == b"content-length":
                content_length = int(value)
            elif name in CONNECTION_FIELDS:
                continue
            fields.append((name, value))
        self._connection.send_headers(self._stream_id, fields, end_stream=False)
        self._content_length = content_length
        # Content is forbidden there (RFC 9110 section 6.4.1), whatever Content-Length says.
        if status in (204, 304):
            self._head = True
        self.response_started = True
        self._continue_wanted = False
        if self._access_log:
            self._log_access(status)

    def _log_access(self, status: int) -> None:
        scope = self._scope
        client = scope["client"]
        path = quote(scope["path"])
        if scope["query_string"]:
            path += "?" + quote(scope["query_string"], safe=LOGGABLE)
        access_logger.info(
            '%s - "%s %s HTTP/%s" %d',
            f"{client[0]}:{client[1]}" if client else "",
            quote(scope["method"], safe=LOGGABLE),
            path,
            scope["http_version"],
            status,
        )

    async def _send_body(self, body: bytes, more_body: bool) -> None:
        if self._head:
            body = b""
            self._content_length = None
        if self._content_length is not None:
            self._content_length -= len(body)
            if self._content_length < 0:
                raise RuntimeError("Response content longer than Content-Length")
            if self._content_length and not more_body:
                raise RuntimeError("Response content shorter than Content-Length")
        last = not more_body and not self._trailers
        if len(body) > PART_BYTES:
            body = bytes(await self._send_parts(body))
            if self.disconnected:
                return
        if body or last:
            self._connection.send_data(self._stream_id, bytes(body), end_stream=last)
        if last:
            self._finished()
        elif body:
            await self._connection.drain(self._stream_id)

    async def _send_parts(self, body: bytes) -> memoryview:
        """Queues as the client takes it all but the last part, which is returned."""
        rest = memoryview(body)
        while len(rest) > PART_BYTES and not self.disconnected:
            self._connection.send_data(self._stream_id, rest[:PART_BYTES], end_stream=False)
            rest = rest[PART_BYTES:]
            await self._connection.drain(self._stream_id)
        return rest

    def _send_trailers(self, message: Message) -> None:
        """Gathers: ASGI may give the trailers in several messages, HTTP/3 has one section."""
        for name, value in message["headers"]:
            name, value = plain_field(name, value)
            if name not in CONNECTION_FIELDS:
                self._trailer_fields.append((name, value))
        if message.get("more_trailers", False):
            return
        if self._trailer_fields and not self._head:
            self._connection.send_headers(self._stream_id, self._trailer_fields, end_stream=True)
        else:
            self._connection.send_data(self._stream_id, b"", end_stream=True)
        self._finished()

    def _finished(self) -> None:
        self.response_complete = True
        if self._more_body:
            # RFC 9114 section 4.1: an early response asks the client to stop, without error.
            self._body.clear()
            self._connection.cancel(self._stream_id, ErrorCode.H3_NO_ERROR)
        self._wake()


def plain_field(name: Any, value: Any) -> tuple[bytes, bytes]:
    """A field as HTTP/3 wants it: lower case, no white space around (RFC 9110 section 5.5)."""
    return bytes(name).lower(), bytes(value).strip(b" \t")
