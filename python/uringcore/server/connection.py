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

from uvicorn.server import ServerState

from uringcore.asyncio.protocol import QuicConnectionProtocol
from uringcore.h3.connection import ErrorCode, H3Connection
from uringcore.h3.events import DataReceived, H3Event, HeadersReceived, MessageAborted
from uringcore.quic.events import (
    ConnectionTerminated,
    ProtocolNegotiated,
    QuicEvent,
    StopSendingReceived,
    StreamDataReceived,
    StreamFinished,
    StreamReset,
)
from uringcore.server.request import Application, Request
from uringcore.server.scope import BadRequest, build_scope

__all__ = ["HTTP3ServerProtocol", "Service"]

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
    max_header_bytes: int | None
    """Names and values of one field section, together; more is answered with 431. ``None``: the
    HTTP/3 layer's own limit is enough."""

    max_requests: int
    """Requests whose application runs at once on one connection; more are refused unprocessed."""

    reset_contextvars: bool = False
    default_headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    connections: set[HTTP3ServerProtocol] = field(default_factory=set)


class HTTP3ServerProtocol(QuicConnectionProtocol):
    """Serves an ASGI application on one QUIC connection."""

    def __init__(self, *args: Any, service: Service, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._service = service
        self._http: H3Connection | None = None
        self._requests: dict[int, Request] = {}
        # Streams whose response has been handed to QUIC whole but not been acknowledged whole.
        # Closing the connection earlier would drop what is queued of them.
        self._unacknowledged: set[int] = set()
        self._next_request_id = 0
        self._goaway_id: int | None = None
        self._client: tuple[str, int] | None = None

    # Events

    def quic_event_received(self, event: QuicEvent) -> None:
        """Called for every QUIC event of the connection."""
        if isinstance(event, StreamDataReceived):
            if self._http is not None:
                for http_event in self._http.handle_event(event):
                    self._http_event_received(http_event)
        elif isinstance(event, StreamFinished):
            self._unacknowledged.discard(event.stream_id)
            self._close_if_done()
        elif isinstance(event, (StreamReset, StopSendingReceived)):
            self._stream_aborted(event)
        elif isinstance(event, ProtocolNegotiated):
            self._start()
        elif isinstance(event, ConnectionTerminated):
            self._connection_lost()

    def _start(self) -> None:
        self._http = H3Connection(self._quic, close_on_malformed=False)
        self._quic._notify_finished()
        self._service.connections.add(self)
        # uvicorn's shutdown asks every member to `shutdown()`, then waits for the set to empty.
        connections: set[Any] = self._service.state.connections
        connections.add(self)
        self.transmit()

    def _connection_lost(self) -> None:
        self._service.connections.discard(self)
        connections: set[Any] = self._service.state.connections
        connections.discard(self)
        self._unacknowledged.clear()
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
        elif isinstance(event, MessageAborted):
            # A malformed message: its stream has been reset with the RFC's code.
            request = self._requests.get(event.stream_id)
            if request is not None:
                request.handle_disconnect()

    def _stream_aborted(self, event: StreamReset | StopSendingReceived) -> None:
        """The client reset its side of a request, or wants no more of the response."""
        if self._http is None:
            return
        # Also sees to critical streams, whose end is an error (RFC 9114 section 6.2.1).
        self._http.handle_event(event)
        stream_id = event.stream_id
        if isinstance(event, StopSendingReceived):
            self._unacknowledged.discard(stream_id)
        request = self._requests.get(stream_id)
        if request is not None and not request.response_complete:
            # A request that is complete can still be answered when the client resets it afterwards.
            unwanted = isinstance(event, StopSendingReceived)
            if unwanted or not request.request_ended:
                request.handle_disconnect()
                self.cancel(stream_id, ErrorCode.H3_REQUEST_CANCELLED)
        self._close_if_done()

    # Requests

    def _request_received(self, event: HeadersReceived) -> None:
        service = self._service
        stream_id = event.stream_id
        if self._goaway_id is not None and stream_id >= self._goaway_id:
            # RFC 9114 section 5.2: the client knows from this code that it may try elsewhere.
            self.cancel(stream_id, ErrorCode.H3_REQUEST_REJECTED)
            return
        self._next_request_id = max(self._next_request_id, stream_id + 4)
        if len(self._requests) >= service.max_requests:
            # Streams that the client has reset are no longer in QUIC's count, but still in this one
            # while their applications run.
            self.cancel(stream_id, ErrorCode.H3_REQUEST_REJECTED)
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
        self._spawn(request)

    def _scope(self, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
        service = self._service
        limit = service.max_header_bytes
        if limit is not None and sum(len(name) + len(value) for name, value in headers) > limit:
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
            self.cancel(event.stream_id, ErrorCode.H3_NO_ERROR)

    def request_done(self, stream_id: int) -> None:
        """The application has returned, and the stream has been ended one way or the other."""
        del self._requests[stream_id]
        self._service.state.total_requests += 1
        self._close_if_done()

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
        if end_stream:
            self._unacknowledged.add(stream_id)
        self.transmit()

    def send_data(self, stream_id: int, data: bytes, *, end_stream: bool) -> None:
        """Queues a part of a response's body."""
        assert self._http is not None
        self._http.send_data(stream_id, data, end_stream)
        if end_stream:
            self._unacknowledged.add(stream_id)
        self.transmit()

    def pause_stream(self, stream_id: int) -> None:
        """Stops reading a stream, and with it the client's credit (RFC 9000 section 4.1)."""
        self._quic.pause_stream(stream_id)

    def resume_stream(self, stream_id: int) -> None:
        """Reads a paused stream again."""
        self._quic.resume_stream(stream_id)
        self.transmit()

    def cancel(self, stream_id: int, code: ErrorCode) -> None:
        """Resets what is left of the response, and asks the client to end its request too."""
        assert self._http is not None
        try:
            self._http.cancel_request(stream_id, code)
        except (ConnectionResetError, ValueError):
            # QUIC has let go of the stream already; the event that says why is on its way here.
            return
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
        self._close_if_done()

    def ping_if_busy(self) -> None:
        """Keeps the connection from idling out while an application is still working."""
        if self._requests:
            self._quic.send_ping(id(self))
            self.transmit()

    def _close_if_done(self) -> None:
        if self._goaway_id is not None and not self._requests and not self._unacknowledged:
            self.close(ErrorCode.H3_NO_ERROR)


def client_address(address: Any) -> tuple[str, int] | None:
    """A peer's address as ASGI wants it: IPv4 in IPv6 unmapped, no flow label or scope."""
    if address is None:
        return None
    host, port = str(address[0]), int(address[1])
    if host.startswith("::ffff:") and "." in host:
        host = host[7:]
    return host, port
