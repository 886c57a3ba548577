"""The server's side of one HTTP/3 connection: from QUIC events to requests, and the way back.

What is shared by all connections is a :class:`Service`; what belongs to one request is request.py's.
The connection registers itself and its tasks in uvicorn's ``ServerState``, so that limits, the
graceful stop and the request count treat HTTP/1.1 and HTTP/3 alike.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from uringcore.asyncio.protocol import QuicConnectionProtocol
from uringcore.h3.connection import ErrorCode, H3Connection
from uringcore.h3.events import DataReceived, H3Event, HeadersReceived
from uringcore.quic.events import (
    ConnectionTerminated,
    ProtocolNegotiated,
    QuicEvent,
    StopSendingReceived,
    StreamDataReceived,
    StreamReset,
)
from uringcore.server.request import Application, Request
from uringcore.server.scope import BadRequest, build_scope
from uvicorn.server import ServerState

__all__ = ["HTTP3ServerProtocol", "Service"]

# How often, and how often at most, a closing connection is looked at: QUIC has no "all flushed".
FLUSH_POLL_SECONDS = 0.01

logger = logging.getLogger("uvicorn.error")


@dataclass
class Service:
    """What every HTTP/3 connection of one server shares."""

    application: Application
    state: ServerState
    app_state: dict[str, Any]
    asgi_version: str
    root_path: str
    address: tuple[str, int | None] | None
    extensions: dict[str, Any]
    access_log: bool
    limit_concurrency: int | None
    max_header_bytes: int
    """Names and values of one field section, together; more is answered with 431."""

    max_requests: int
    """Requests whose application runs at once on one connection; more are refused unprocessed."""

    flush_timeout: float
    """Seconds that a closing connection may take to deliver what its responses have queued."""

    reset_contextvars: bool = False
    accepting: bool = True
    default_headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    connections: set[HTTP3ServerProtocol] = field(default_factory=set)


class HTTP3ServerProtocol(QuicConnectionProtocol):
    """Serves an ASGI application on one QUIC connection."""

    def __init__(self, *args: Any, service: Service, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._service = service
        self._http: H3Connection | None = None
        self._requests: dict[int, Request] = {}
        self._running = 0
        # Streams whose response is complete here but not yet with the client.
        self._flushing: set[int] = set()
        self._next_request_id = 0
        self._goaway_id: int | None = None
        self._closing: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._client: tuple[str, int] | None = None

    # Events

    def quic_event_received(self, event: QuicEvent) -> None:
        """Called for every QUIC event of the connection."""
        if isinstance(event, StreamDataReceived):
            if self._http is not None:
                for http_event in self._http.handle_event(event):
                    self._http_event_received(http_event)
        elif isinstance(event, StreamReset):
            self._stream_aborted(event.stream_id, request_lost=True)
        elif isinstance(event, StopSendingReceived):
            self._stream_aborted(event.stream_id, request_lost=False)
        elif isinstance(event, ProtocolNegotiated):
            self._start()
        elif isinstance(event, ConnectionTerminated):
            self._connection_lost()
        if self._http is not None and isinstance(event, (StreamReset, StopSendingReceived)):
            # A critical stream's closure is an error (RFC 9114 section 6.2.1).
            self._http.handle_event(event)

    def _start(self) -> None:
        if not self._service.accepting:
            self.close(ErrorCode.H3_NO_ERROR, "the server is shutting down")
            return
        self._http = H3Connection(self._quic)
        self._service.connections.add(self)
        # uvicorn's shutdown asks every member to `shutdown()`, then waits for the set to empty.
        connections: set[Any] = self._service.state.connections
        connections.add(self)
        self.transmit()

    def _connection_lost(self) -> None:
        self._service.connections.discard(self)
        connections: set[Any] = self._service.state.connections
        connections.discard(self)
        self._flushing.clear()
        for request in list(self._requests.values()):
            request.handle_disconnect()

    def _http_event_received(self, event: H3Event) -> None:
        if isinstance(event, DataReceived):
            request = self._requests.get(event.stream_id)
            if request is not None:
                request.handle_body(event.data, ended=event.stream_ended)
        elif isinstance(event, HeadersReceived):
            request = self._requests.get(event.stream_id)
            if request is None:
                self._request_received(event)
            elif event.stream_ended:
                # Trailers; ASGI has no message for a request's.
                request.handle_body(b"", ended=True)

    def _stream_aborted(self, stream_id: int, *, request_lost: bool) -> None:
        """The client reset its side of a request, or wants no more of the response."""
        request = self._requests.get(stream_id)
        if request is None or request.response_complete or request.disconnected:
            return
        if request_lost and request.request_ended:
            return
        request.handle_disconnect()
        self._quic.reset_stream(stream_id, ErrorCode.H3_REQUEST_CANCELLED)
        if not request_lost and not request.request_ended:
            self._quic.stop_stream(stream_id, ErrorCode.H3_REQUEST_CANCELLED)
        self.transmit()

    # Requests

    def _request_received(self, event: HeadersReceived) -> None:
        service = self._service
        stream_id = event.stream_id
        if self._goaway_id is not None and stream_id >= self._goaway_id:
            # RFC 9114 section 5.2: the client knows from this code that it may try elsewhere.
            self.abort_stream(
                stream_id, ErrorCode.H3_REQUEST_REJECTED, stop=not event.stream_ended
            )
            return
        self._next_request_id = max(self._next_request_id, stream_id + 4)
        if self._running >= service.max_requests:
            # Reset streams give their place in QUIC's limit back at once, their applications don't.
            self.abort_stream(
                stream_id, ErrorCode.H3_REQUEST_REJECTED, stop=not event.stream_ended
            )
            return
        try:
            scope = self._scope(event.headers)
        except BadRequest as refusal:
            logger.warning("Invalid HTTP/3 request received: %s.", refusal)
            self._refuse(event, refusal.status, refusal.detail)
            return
        if service.limit_concurrency is not None and (
            len(service.state.connections) >= service.limit_concurrency
            or len(service.state.tasks) >= service.limit_concurrency
        ):
            logger.warning("Exceeded concurrency limit.")
            self._refuse(event, 503, "Service Unavailable")
            return
        request = Request(self, stream_id, scope, access_log=service.access_log)
        if event.stream_ended:
            request.handle_body(b"", ended=True)
        self._requests[stream_id] = request
        self._running += 1
        self._spawn(request)

    def _scope(self, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
        service = self._service
        if sum(len(name) + len(value) for name, value in headers) > service.max_header_bytes:
            raise BadRequest(431, "the header section is too large")
        if self._client is None:
            self._client = client_address(self._quic.get_peer_address())
        return build_scope(
            headers,
            asgi_version=service.asgi_version,
            root_path=service.root_path,
            server=service.address,
            client=self._client,
            state=service.app_state.copy(),
            extensions=service.extensions.copy(),
        )

    def _spawn(self, request: Request) -> None:
        coroutine = request.run(self._service.application)
        create: Callable[..., asyncio.Task[None]] = self._loop.create_task
        if self._service.reset_contextvars:
            task = contextvars.Context().run(create, coroutine)
        else:
            task = create(coroutine)
        tasks = self._service.state.tasks
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def _refuse(self, event: HeadersReceived, status: int, text: str) -> None:
        body = text.encode()
        self.send_headers(
            event.stream_id,
            [
                (b":status", b"%d" % status),
                *self.default_headers,
                (b"content-type", b"text/plain; charset=utf-8"),
                (b"content-length", b"%d" % len(body)),
            ],
            end_stream=False,
        )
        self.send_data(event.stream_id, body, end_stream=True)
        if not event.stream_ended:
            self.stop_stream(event.stream_id, ErrorCode.H3_NO_ERROR)

    def request_done(self, stream_id: int) -> None:
        """The application has returned, and the stream has been ended one way or the other."""
        request = self._requests.pop(stream_id)
        self._running -= 1
        self._service.state.total_requests += 1
        if not request.disconnected and self._quic.get_send_buffer_size(stream_id):
            self._flushing.add(stream_id)
            if len(self._flushing) > 64:
                self._prune_flushing()
        if self._goaway_id is not None and not self._requests:
            self._close_when_flushed()

    # What a request writes through. The stream is known to be open for sending: a request that was
    # aborted from the other side never gets here.

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """Header fields of every response."""
        return self._service.default_headers

    def send_headers(
        self, stream_id: int, fields: list[tuple[bytes, bytes]], *, end_stream: bool
    ) -> None:
        """Queues a field section: an interim or final response, or trailers."""
        assert self._http is not None
        self._http.send_headers(stream_id, fields, end_stream)
        self.transmit()

    def send_data(self, stream_id: int, data: bytes, *, end_stream: bool) -> None:
        """Queues a part of a response's body."""
        assert self._http is not None
        self._http.send_data(stream_id, data, end_stream)
        self.transmit()

    def pause_stream(self, stream_id: int) -> None:
        """Stops reading a stream, and with it the client's credit (RFC 9000 section 4.1)."""
        self._quic.pause_stream(stream_id)

    def resume_stream(self, stream_id: int) -> None:
        """Reads a paused stream again."""
        self._quic.resume_stream(stream_id)
        self.transmit()

    def stop_stream(self, stream_id: int, code: ErrorCode) -> None:
        """Asks the client to send no more of the request."""
        self._quic.stop_stream(stream_id, code)
        self.transmit()

    def abort_stream(self, stream_id: int, code: ErrorCode, *, stop: bool) -> None:
        """Resets the response, and with ``stop`` asks the client to end the request too."""
        self._quic.reset_stream(stream_id, code)
        if stop:
            self._quic.stop_stream(stream_id, code)
        self.transmit()

    # The end

    def shutdown(self) -> None:
        """No new requests; closes as soon as the open ones have been answered."""
        if self._goaway_id is not None:
            return
        # RFC 9114 section 5.2: the first request that will not be processed.
        self._goaway_id = self._next_request_id
        if self._http is not None:
            self._http.send_goaway(self._goaway_id)
            self.transmit()
        if not self._requests:
            self._close_when_flushed()

    def ping_if_busy(self) -> None:
        """Keeps the connection from idling out while an application is still working."""
        if self._requests:
            self._quic.send_ping(id(self))
            self.transmit()

    def _close_when_flushed(self) -> None:
        if self._closing is None:
            self._closing = self._loop.create_task(self._flush_and_close())

    async def _flush_and_close(self) -> None:
        # Closing a QUIC connection drops what its streams have queued, so that has to be out first.
        deadline = self._loop.time() + self._service.flush_timeout
        self._prune_flushing()
        while self._flushing and self._loop.time() < deadline:
            await asyncio.sleep(FLUSH_POLL_SECONDS)
            self._prune_flushing()
        self.close(ErrorCode.H3_NO_ERROR)

    def _prune_flushing(self) -> None:
        size = self._quic.get_send_buffer_size
        self._flushing = {stream_id for stream_id in self._flushing if size(stream_id)}


def client_address(address: Any) -> tuple[str, int] | None:
    """A peer's address as ASGI wants it: IPv4 in IPv6 unmapped, no flow label or scope."""
    if address is None:
        return None
    host, port = str(address[0]), int(address[1])
    if host.startswith("::ffff:") and "." in host:
        host = host[7:]
    return host, port
