"""A connection to one origin, and the requests made on it.

:func:`connect` is the entrance. What happens on one request's stream is exchange.py's.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any

from uringcore.asyncio.client import connect as quic_connect
from uringcore.asyncio.protocol import QuicConnectionProtocol
from uringcore.h3.connection import ErrorCode, H3Connection
from uringcore.h3.events import DataReceived, GoAwayReceived, H3Event, HeadersReceived
from uringcore.h3.exceptions import GoingAwayError
from uringcore.http3.errors import RequestFailed, RequestNotProcessed, RequestReset, URLError
from uringcore.http3.exchange import Exchange, Fields, Response
from uringcore.http3.url import Origin, parse_url, target
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.errors import error_from_event
from uringcore.quic.events import (
    ConnectionTerminated,
    ProtocolNegotiated,
    QuicEvent,
    StopSendingReceived,
    StreamReset,
)

__all__ = ["Client", "Content", "connect"]

Content = bytes | Iterable[bytes] | AsyncIterable[bytes]
"""A request's body: whole, or in parts that are sent as the connection takes them."""

Headers = Iterable[tuple[str | bytes, str | bytes]]

MAX_STREAM_BYTES = 4 * 1024 * 1024
MAX_CONNECTION_BYTES = 16 * 1024 * 1024

# One part of a body given as bytes: a request's memory stays bounded while it waits to be sent.
PART_BYTES = 256 * 1024


class HTTP3ClientProtocol(QuicConnectionProtocol):
    """The client's side of one HTTP/3 connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._http: H3Connection | None = None
        self._exchanges: dict[int, Exchange] = {}
        self._lost: Exception | None = None
        self._going_away = False

    def quic_event_received(self, event: QuicEvent) -> None:
        """Called for every QUIC event of the connection."""
        if isinstance(event, ProtocolNegotiated):
            self._http = H3Connection(self._quic, max_push_id=None)
            self.transmit()
        elif isinstance(event, ConnectionTerminated):
            self._connection_lost(error_from_event(event))
        elif self._http is not None:
            for http_event in self._http.handle_event(event):
                self._http_event_received(http_event)
            if isinstance(event, StreamReset) and event.stream_id in self._exchanges:
                self._exchanges[event.stream_id].handle_error(RequestReset(event.error_code))
            elif isinstance(event, StopSendingReceived) and event.stream_id in self._exchanges:
                self._exchanges[event.stream_id].handle_stop(event.error_code)

    def _http_event_received(self, event: H3Event) -> None:
        if isinstance(event, DataReceived):
            exchange = self._exchanges.get(event.stream_id)
            if exchange is not None:
                exchange.handle_data(event.data, ended=event.stream_ended)
        elif isinstance(event, HeadersReceived):
            exchange = self._exchanges.get(event.stream_id)
            if exchange is not None:
                exchange.handle_headers(event.headers, ended=event.stream_ended)
        elif isinstance(event, GoAwayReceived):
            self._going_away = True
            for exchange in self._exchanges.values():
                if exchange.stream_id >= event.stream_id:
                    exchange.handle_error(RequestNotProcessed())

    def _connection_lost(self, error: Exception) -> None:
        self._lost = error
        for exchange in self._exchanges.values():
            exchange.handle_error(error)

    # Requests

    def open(self, fields: Fields, *, end_stream: bool) -> Exchange:
        """Sends a request's header section on a new stream."""
        if self._lost is not None:
            raise self._lost
        if self._http is None:
            raise RequestFailed("the connection is not established")
        if self._going_away:
            raise RequestNotProcessed
        stream_id = self._quic.get_next_available_stream_id()
        try:
            self._http.send_headers(stream_id, fields, end_stream)
        except GoingAwayError as exc:
            raise RequestNotProcessed from exc
        exchange = Exchange(self, stream_id)
        exchange.request_ended = end_stream
        self._exchanges[stream_id] = exchange
        self.transmit()
        return exchange

    async def send_body(self, exchange: Exchange, content: Content) -> None:
        """Sends a body, at the pace of the connection, until the server has enough of it.

        What goes wrong ends the exchange: who waits for the response learns of it there.
        """
        try:
            await self._send_parts(exchange, content)
        except Exception as exc:  # noqa: BLE001 - a body may be any program's iterator
            exchange.handle_error(exc)

    async def _send_parts(self, exchange: Exchange, content: Content) -> None:
        assert self._http is not None
        async for part in parts(content):
            if exchange.request_stopped or exchange.failed:
                break
            try:
                self._http.send_data(exchange.stream_id, part, False)
                self.transmit()
                await self.drain(exchange.stream_id)
            except ConnectionResetError:
                # Stopped by the server, or the connection is lost: events tell which.
                return
        if exchange.failed or exchange.request_ended:
            return
        exchange.request_ended = True
        if not exchange.request_stopped:
            self._http.send_data(exchange.stream_id, b"", True)
            self.transmit()

    def finish(self, exchange: Exchange) -> None:
        """Lets go of an exchange, complete or not."""
        del self._exchanges[exchange.stream_id]
        complete = exchange.ended and exchange.request_ended
        if self._http is not None and self._lost is None and not complete:
            try:
                self._http.cancel_request(exchange.stream_id, ErrorCode.H3_REQUEST_CANCELLED)
            except (ConnectionResetError, ValueError):
                return  # QUIC has let go of the stream already
            self.transmit()

    def pause_stream(self, stream_id: int) -> None:
        """Stops reading a stream."""
        self._quic.pause_stream(stream_id)

    def resume_stream(self, stream_id: int) -> None:
        """Reads a paused stream again."""
        if self._lost is None:
            self._quic.resume_stream(stream_id)
            self.transmit()


class Client:
    """Requests on one connection. Made by :func:`connect`; safe for many tasks of its loop."""

    def __init__(self, protocol: HTTP3ClientProtocol, origin: Origin) -> None:
        self._protocol = protocol
        self.origin = origin
        """Where the connection goes."""

    @contextlib.asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Headers = (),
        content: Content | None = None,
    ) -> AsyncIterator[Response]:
        """Makes a request; the block runs when the response's header section is here.

        ``url`` is a path with query, or a whole URL of this origin. ``content`` is sent while the
        response is being read. Leaving the block early cancels what is left of the exchange.

        Raises :class:`URLError` for a URL of another origin, :class:`RequestFailed` when the server
        refuses or resets the request, and ``QuicConnectionError`` when the connection is lost. The
        ``retryable`` of a ``RequestFailed`` tells whether the server has left the request alone.
        """
        fields = self._fields(method, url, headers, content)
        exchange = self._protocol.open(fields, end_stream=content is None)
        upload = None
        if content is not None:
            upload = asyncio.ensure_future(self._protocol.send_body(exchange, content))
        try:
            await exchange.wait_headers()
            yield Response(exchange)
        finally:
            if upload is not None:
                upload.cancel()
                await asyncio.gather(upload, return_exceptions=True)
            self._protocol.finish(exchange)

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Headers = (),
        content: Content | None = None,
    ) -> Response:
        """Makes a request and reads the whole response into memory. Arguments as in :meth:`stream`."""
        async with self.stream(method, url, headers=headers, content=content) as response:
            await response.read()
            return response

    async def get(self, url: str, *, headers: Headers = ()) -> Response:
        """``request("GET", url)``."""
        return await self.request("GET", url, headers=headers)

    def close(self) -> None:
        """Closes the connection; requests that are under way fail."""
        self._protocol.close(ErrorCode.H3_NO_ERROR)

    def _fields(self, method: str, url: str, headers: Headers, content: Content | None) -> Fields:
        path = self._target(url)
        fields: Fields = [
            (b":method", method.encode("ascii")),
            (b":scheme", b"https"),
            (b":authority", self.origin.authority.encode("ascii")),
            (b":path", path.encode("ascii")),
        ]
        given = [(to_bytes(name).lower(), to_bytes(value)) for name, value in headers]
        if isinstance(content, bytes) and all(name != b"content-length" for name, _ in given):
            given.append((b"content-length", b"%d" % len(content)))
        return fields + given

    def _target(self, url: str) -> str:
        if url.startswith("/"):
            # A fragment is never sent (RFC 9110 section 4.2.5).
            path, _, query = url.partition("#")[0].partition("?")
            return target(path, query)
        origin, path = parse_url(url)
        if (origin.host, origin.port) != (self.origin.host, self.origin.port):
            raise URLError(f"{url!r} is not on {self.origin.authority}, where this client connects")
        return path


@contextlib.asynccontextmanager
async def connect(
    url: str,
    *,
    cafile: str | None = None,
    verify: bool = True,
    configuration: QuicConfiguration | None = None,
    local_port: int = 0,
) -> AsyncIterator[Client]:
    """Connects to the origin of an ``https`` URL; the path in it is not looked at.

    ``cafile`` is a PEM file of the authorities to trust instead of the system's; ``verify=False``
    accepts any certificate. ``configuration`` replaces both and sets everything else.

    Must run on uringcore's event loop. Raises :class:`~uringcore.http3.URLError`,
    ``socket.gaierror`` when the host has no address, and ``QuicConnectionError`` when the
    connection cannot be established; its subclasses say why.
    """
    origin, _ = parse_url(url)
    if configuration is None:
        configuration = QuicConfiguration(
            is_client=True,
            alpn_protocols=["h3"],
            idle_timeout=30.0,
            max_data=MAX_CONNECTION_BYTES,
            max_stream_data=MAX_STREAM_BYTES,
            server_name=origin.host,
            verify_mode=None if verify else ssl.CERT_NONE,
        )
        if cafile is not None:
            configuration.load_verify_locations(cafile=cafile)
    async with quic_connect(
        origin.host,
        origin.port,
        configuration=configuration,
        create_protocol=HTTP3ClientProtocol,
        local_port=local_port,
    ) as protocol:
        client = Client(protocol, origin)
        try:
            yield client
        finally:
            client.close()


async def parts(content: Content) -> AsyncIterator[bytes]:
    if isinstance(content, bytes):
        view = memoryview(content)
        for start in range(0, len(content), PART_BYTES):
            yield bytes(view[start : start + PART_BYTES])
    elif isinstance(content, AsyncIterable):
        async for part in content:
            yield part
    else:
        for part in content:
            yield part


def to_bytes(text: str | bytes) -> bytes:
    return text.encode("latin-1") if isinstance(text, str) else text
