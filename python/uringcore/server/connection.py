"""The server's side of one HTTP/3 connection: from QUIC events to requests, and the way back.

What is shared by all connections is service.py's, what belongs to one request request.py's.
The connection registers itself and its tasks in uvicorn's ``ServerState``, so that limits, the
graceful stop and the request count treat HTTP/1.1 and HTTP/3 alike.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from typing import Any

from uringcore.asyncio.protocol import QuicConnectionProtocol
from uringcore.h3.connection import ErrorCode, H3Connection
from uringcore.h3.events import DataReceived, H3Event, HeadersReceived, MessageAborted
from uringcore.quic.events import (
    ConnectionTerminated,
    PingAcknowledged,
    ProtocolNegotiated,
    QuicEvent,
    StopSendingReceived,
    StreamDataReceived,
    StreamFinished,
    StreamReset,
    StreamWritable,
)
from uringcore.server.crowd import Crowd
from uringcore.server.request import Request
from uringcore.server.scope import BadRequest, build_scope, refused_scope
from uringcore.server.service import Service
from uringcore.server.watch import ClientWatch

__all__ = ["HTTP3ServerProtocol"]

# What the pings are for, as their uid.
KEEP_ALIVE_PING, GOAWAY_PING = 0, 1

logger = logging.getLogger("uvicorn.error")


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
        self._goaway_arrived = False
        # While stopping.
        self._watch: ClientWatch | None = None
        self._crowd = Crowd(self._loop, self._quic)

    # Events

    def quic_event_received(self, event: QuicEvent) -> None:
        """Called for every QUIC event of the connection."""
        if isinstance(event, StreamDataReceived):
            if self._http is not None:
                for http_event in self._http.handle_event(event):
                    self._http_event_received(http_event)
        elif isinstance(event, StreamWritable):
            self._crowd.wake()
        elif isinstance(event, StreamFinished):
            self._unacknowledged.discard(event.stream_id)
            self._close_if_done()
            self._crowd.wake()
        elif isinstance(event, (StreamReset, StopSendingReceived)):
            self._stream_aborted(event)
        elif isinstance(event, ProtocolNegotiated):
            self._start()
        elif isinstance(event, PingAcknowledged):
            if event.uid == GOAWAY_PING:
                self._goaway_arrived = True
                self._close_if_done()
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
        if self._service.stopping:
            # Its handshake was under way when the others were told.
            self.shutdown()

    def _connection_lost(self) -> None:
        self._service.connections.discard(self)
        connections: set[Any] = self._service.state.connections
        connections.discard(self)
        self._unacknowledged.clear()
        for request in self._requests.values():
            request.handle_disconnect()
        self._http = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._crowd.wake()

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
        client = client_address(self._quic.get_peer_address())
        try:
            scope = self._scope(event.headers, client)
        except BadRequest as refusal:
            logger.warning("Invalid HTTP/3 request received: %s.", refusal)
            scope = refused_scope(event.headers, client=client)
            self._refuse(event, scope, refusal.status, refusal.detail)
            return
        if service.limit_concurrency is not None and (
            len(service.state.connections) >= service.limit_concurrency
            or len(service.state.tasks) >= service.limit_concurrency
        ):
            logger.warning("Exceeded concurrency limit.")
            self._refuse(event, scope, 503, "Service Unavailable")
            return
        request = Request(self, stream_id, scope, access_log=service.access_log)
        if event.stream_ended:
            request.handle_body(b"", ended=True)
        self._requests[stream_id] = request
        self._spawn(request)

    def _scope(
        self, headers: list[tuple[bytes, bytes]], client: tuple[str, int] | None
    ) -> dict[str, Any]:
        service = self._service
        limit = service.max_header_bytes
        if limit is not None and sum(len(name) + len(value) for name, value in headers) > limit:
            raise BadRequest(431, "the header section is too large")
        return build_scope(
            headers,
            asgi_version=service.asgi_version,
            root_path=service.root_path,
            server=self._local_address(),
            client=client,
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

    def _local_address(self) -> tuple[str, int] | None:
        """Where the client reached us: the address of this connection's own socket."""
        if self._transport is None:
            return None
        name = self._transport.get_extra_info("sockname")
        return (str(name[0]), int(name[1]))

    def _refuse(
        self, event: HeadersReceived, scope: dict[str, Any], status: int, text: str
    ) -> None:
        request = Request(self, event.stream_id, scope, access_log=self._service.access_log)
        if event.stream_ended:
            request.handle_body(b"", ended=True)
        request.respond(status, text.encode())
        self._service.state.total_requests += 1

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

    def send_data(self, stream_id: int, data: bytes | memoryview, *, end_stream: bool) -> None:
        """Queues a part of a response's body."""
        assert self._http is not None
        self._http.send_data(stream_id, data, end_stream)
        self._crowd.add(len(data))
        if end_stream:
            self._unacknowledged.add(stream_id)
        self.transmit()

    async def drain(self, stream_id: int | None = None) -> None:
        """Waits until the stream, and the connection as a whole, have room for more.

        Raises ``ConnectionResetError`` when the stream is reset meanwhile or the connection ends.
        """
        await super().drain(stream_id)
        while stream_id is not None and self._crowd.holds_up(stream_id):
            await self._crowd.wait()
            await super().drain(stream_id)

    def pause_stream(self, stream_id: int) -> None:
        """Stops reading a stream, and with it the client's credit (RFC 9000 section 4.1)."""
        self._quic.pause_stream(stream_id)

    def resume_stream(self, stream_id: int) -> None:
        """Reads a paused stream again."""
        self._quic.resume_stream(stream_id)
        self.transmit()

    def cancel(self, stream_id: int, code: ErrorCode) -> None:
        """Resets what is left of the response, and asks the client to end its request too."""
        if self._http is None:
            return
        try:
            self._http.cancel_request(stream_id, code)
        except (ConnectionResetError, ValueError):
            # QUIC has let go of the stream already; the event that says why is on its way here.
            return
        self.transmit()

    # The end

    def shutdown(self) -> None:
        """No new requests; closes as soon as the open ones have been answered."""
        if self._goaway_id is not None or self._http is None:
            return
        # RFC 9114 section 5.2: the first request that will not be processed.
        self._goaway_id = self._next_request_id
        self._http.send_goaway(self._goaway_id)
        # Closing drops what is queued. Once this is acknowledged, the GOAWAY before it has arrived,
        # and a request that crossed it has been rejected.
        self._quic.send_ping(GOAWAY_PING)
        self.transmit()
        self._watch = ClientWatch(
            self._loop,
            self._quic,
            is_busy=lambda: bool(self._requests),
            gone=lambda: self.close(ErrorCode.H3_NO_ERROR),
            # There may be nothing else to be acknowledged.
            there=self.ping_if_busy,
        )

    def ping_if_busy(self) -> None:
        """Keeps the connection from idling out while an application is still working."""
        if self._requests:
            self._quic.send_ping(KEEP_ALIVE_PING)
            self.transmit()

    def _close_if_done(self) -> None:
        if self._goaway_id is None or self._http is None or self._requests:
            return
        if self._goaway_arrived and not self._unacknowledged:
            self.close(ErrorCode.H3_NO_ERROR)
        elif self._watch is not None:
            self._watch.all_answered()


def client_address(address: Any) -> tuple[str, int] | None:
    """A peer's address as ASGI wants it: IPv4 in IPv6 unmapped, no flow label or scope."""
    if address is None:
        return None
    host, port = str(address[0]), int(address[1])
    if host.startswith("::ffff:") and "." in host:
        host = host[7:]
    return host, port
