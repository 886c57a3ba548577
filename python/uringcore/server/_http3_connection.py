"""The life of one HTTP/3 connection: from its handshake to its GOAWAY and its end.

The extension answers the requests, with the service that all connections share. The connection registers
itself in uvicorn's ``ServerState``, so that limits and the graceful stop treat HTTP/1.1 and HTTP/3 alike.

GOAWAY is sent twice (RFC 9114 section 5.2): first with the highest possible stream ID, and with the real one
after a ping behind it is acknowledged. Requests that left their client before the first GOAWAY arrived are
served.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any

from uringcore._uringcore import Http3Connection, WebTransportSessionCore
from uringcore.asyncio.protocol import QuicConnectionProtocol
from uringcore.h3.connection import ErrorCode
from uringcore.quic._errors import error_from_event
from uringcore.quic.events import (
    ConnectionTerminated,
    HandshakeCompleted,
    PingAcknowledged,
    QuicEvent,
)
from uringcore.server._client_liveness_at_shutdown import ClientLiveness
from uringcore.server._http3_shared_state import HTTP3Service
from uringcore.webtransport._session_lifecycle import SessionState
from uringcore.webtransport._session_request import parameters_of

__all__ = ["HTTP3ServerProtocol"]

# The numbers of the PINGs that a connection sends, by purpose.
KEEP_ALIVE_PING, ANNOUNCED_PING, GOAWAY_PING = 0, 1, 2

CROSSING_SECONDS_MAX = 3.0
"""Seconds for which new requests are accepted after the first GOAWAY, if the client does not acknowledge
it."""


class HTTP3ServerProtocol(QuicConnectionProtocol):
    """Serves an ASGI application on one QUIC connection."""

    def __init__(self, *args: Any, service: HTTP3Service, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._service = service
        self._http: Http3Connection | None = None
        self._is_going_away = False
        # The timer that ends the time after the first GOAWAY, in which requests are still accepted.
        self._crossing: asyncio.TimerHandle | None = None
        self._goaway_arrived = False
        self._sessions: set[SessionState] = set()
        # Checks the client while the connection is stopping.
        self._watch: ClientLiveness | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called when the application protocol is negotiated."""
        super().connection_made(transport)
        service = self._service
        name = transport.get_extra_info("sockname")
        self._quic._notify_finished()
        self._http = Http3Connection(
            self._quic,
            service.asgi,
            service.http3_limits,
            # The local address of this connection's own socket.
            server=(str(name[0]), int(name[1])),
            on_event=self._http_event,
            on_session=self._session_asked,
            sessions=None if service.sessions is None else service.sessions.limits,
            tls=self._tls_extension,
            transmit=self.transmit if self._life.needs_flush else None,
        )
        service.connections.add(self)
        # uvicorn's shutdown calls `shutdown()` of every member, then waits until the set is empty.
        connections: set[Any] = service.state.connections
        connections.add(self)
        if service.stopping:
            # The server is stopping already: the handshake was in progress when other connections were shut
            # down.
            self.shutdown()

    def quic_event_received(self, event: QuicEvent) -> None:
        """Called for the events that are not about streams."""
        if isinstance(event, PingAcknowledged):
            if event.uid == ANNOUNCED_PING:
                self._reject_later_requests()
            elif event.uid == GOAWAY_PING:
                self._goaway_arrived = True
                self._close_if_done()
        elif isinstance(event, HandshakeCompleted):
            if self._http is not None:
                self._http.handshake_completed()
        elif isinstance(event, ConnectionTerminated):
            self._connection_lost(event)

    def _session_asked(self, core: WebTransportSessionCore, scope: dict[str, Any]) -> None:
        sessions = self._service.sessions
        assert sessions is not None
        link = SessionState(
            core,
            self._quic,
            parameters_of(scope),
            close_timeout=sessions.close_timeout,
            on_change=self._session_changed,
            default_headers=sessions.default_headers,
        )
        self._sessions.add(link)
        sessions.run(link, scope)

    def _session_changed(self, link: SessionState) -> None:
        if link.released.is_set():
            self._sessions.discard(link)

    def _tls_extension(self) -> dict[str, Any]:
        return self._service.tls.extension(self._quic)

    def _connection_lost(self, event: ConnectionTerminated) -> None:
        self._service.connections.discard(self)
        connections: set[Any] = self._service.state.connections
        connections.discard(self)
        if self._http is not None:
            self._http.closed()
            self._http = None
            for link in list(self._sessions):
                link.connection_lost(functools.partial(error_from_event, event))
            if self._service.ended is not None:
                self._service.ended(self.stats())
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self._crossing is not None:
            self._crossing.cancel()
            self._crossing = None

    def _http_event(self, name: str) -> None:
        if name == "drained":
            self._close_if_done()
        elif name in ("nothing_taken", "little_taken"):
            if self._service.given_up is not None:
                self._service.given_up(name)
        else:  # "used_up" or "idle"
            self.shutdown()

    def tick(self) -> None:
        """Called about once a second; enforces timeouts."""
        if self._http is not None:
            self._http.tick()

    @property
    def open_requests(self) -> int:
        """The number of requests that an application is working on."""
        return 0 if self._http is None else self._http.open_requests

    @property
    def client_address(self) -> Any:
        """The last address that the client has proved; ``None`` before the first one."""
        return self._quic.get_peer_address()

    @property
    def is_busy(self) -> bool:
        """True if an application is working on a request."""
        return self.open_requests > 0

    def shutdown(self) -> None:
        """Accepts no new requests; closes as soon as the open ones have been answered."""
        if self._http is None:
            return
        if self._service.stopping:
            self._http.close_sockets()
            self._end_sessions()
        if self._is_going_away:
            return
        self._is_going_away = True
        for link in list(self._sessions):
            link.drain()
        # The PING is acknowledged. So the first GOAWAY has arrived at the client, and requests that the
        # client sent before that have arrived here (RFC 9114 section 5.2).
        self._http.announce_end()
        self._quic.send_ping(ANNOUNCED_PING)
        self._crossing = self._loop.call_later(CROSSING_SECONDS_MAX, self._reject_later_requests)
        self.transmit()
        self._watch = ClientLiveness(
            self._loop,
            self._quic,
            is_busy=lambda: self.is_busy,
            gone=lambda: self.close(ErrorCode.H3_NO_ERROR),
            # A PING makes the client acknowledge something, if no other packet of this side is in flight.
            there=self.ping_if_busy,
        )

    def _end_sessions(self) -> None:
        """Closes or refuses all sessions, because the server stops."""
        for link in list(self._sessions):
            if link.is_open:
                link.close(0, "the server is stopping")
            else:
                link.refuse(503)

    def _reject_later_requests(self) -> None:
        """Rejects later requests with the code that says that they were not processed, so that their client
        can send them elsewhere."""
        if self._http is None or self._crossing is None:
            return
        self._crossing.cancel()
        self._crossing = None
        if self._service.stopping:
            # Some sessions may have begun after the first GOAWAY. They are asked to end as well.
            self._http.close_sockets()
            self._end_sessions()
        self._http.go_away()
        # A close drops queued frames, so the connection stays open until this PING is acknowledged: then the
        # GOAWAY has arrived.
        self._quic.send_ping(GOAWAY_PING)
        self.transmit()

    def ping_if_busy(self) -> None:
        """Keeps the connection from idling out while an application is working."""
        if self.is_busy:
            self._quic.send_ping(KEEP_ALIVE_PING)
            self.transmit()

    def _close_if_done(self) -> None:
        http = self._http
        if not self._is_going_away or http is None or http.open_requests:
            return
        if self._goaway_arrived and http.is_drained:
            self.close(ErrorCode.H3_NO_ERROR)
        elif self._watch is not None:
            self._watch.all_answered()
