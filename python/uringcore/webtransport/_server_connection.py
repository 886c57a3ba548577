"""A server's connection that carries only sessions. HTTP requests are answered with 404.

The program's limits of streams apply to each session. QUIC's limits are those of HTTP/3's own streams at
first; the limits of a session's streams are added with the first session.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from uringcore._uringcore import (
    AsgiService,
    Http3Connection,
    Http3Limits,
    WebTransportLimits,
    WebTransportSessionCore,
)
from uringcore.quic._endpoint_transport import QuicTransport
from uringcore.quic._errors import QuicConfigurationError, QuicError
from uringcore.quic._typed_api.config import EndpointConfig
from uringcore.quic._typed_api.connection_event_dispatch import BaseConnectionProtocol
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.connection import QuicConnection
from uringcore.quic.events import HandshakeCompleted
from uringcore.webtransport._session_lifecycle import SessionState
from uringcore.webtransport._session_request import parameters_of

__all__ = [
    "SESSIONS_MAX",
    "SessionTransport",
    "not_found",
    "over_http3",
    "quic_configuration",
    "request_limits",
    "session_limits",
]

SESSIONS_MAX = 1024
"""The default of the maximum number of sessions that a client may have at a time."""


_Config = TypeVar("_Config", bound=EndpointConfig)


def over_http3(config: _Config, **changes: Any) -> _Config:
    """The settings with HTTP/3's application protocol, and ``changes``. Raises
    :class:`QuicConfigurationError` for settings with which there is no WebTransport."""
    if tuple(config.alpn) not in ((), ("h3",)):
        raise QuicConfigurationError("alpn", "WebTransport is spoken over h3 and nothing else")
    if not config.datagrams:
        raise QuicConfigurationError("datagrams", "WebTransport needs them")
    return dataclasses.replace(config, alpn=("h3",), **changes)


def quic_configuration(config: EndpointConfig) -> QuicConfiguration:
    """The configuration of the connection: the program's limits plus HTTP/3's streams. A server announces the
    streams of sessions with the first session."""
    made = config._configuration
    return dataclasses.replace(
        made,
        reset_stream_at=True,
        max_streams_bidi=made.max_streams_bidi if made.is_client else REQUESTS,
        max_streams_uni=made.max_streams_uni + HTTP3_UNI_STREAMS,
    )


def request_limits() -> Http3Limits:
    """The limits of a client's requests, which sessions are until they are open."""
    return Http3Limits(
        max_requests=REQUESTS,
        max_requests_per_connection=None,
        max_header_bytes=65536,
        max_header_fields=256,
        max_early_resets=1000,
        early_reset_rate=33.0,
        header_timeout=10.0,
        body_timeout=60.0,
        body_rate=240,
        send_timeout=600.0,
        send_rate=240,
        send_rate_grace=60.0,
        keep_alive=120.0,
        max_open_files=0,
        max_process_files=None,
        max_large_messages=0,
    )


def session_limits(config: EndpointConfig, sessions: int = SESSIONS_MAX) -> WebTransportLimits:
    """The limits of a peer's sessions."""
    return WebTransportLimits(
        sessions=sessions,
        streams=config.max_streams,
        uni_streams=config.max_uni_streams,
        window=config.connection_receive_window,
        datagram_bytes=config.datagram_buffer,
        drops_newest=config.datagram_overflow == "newest",
    )


async def not_found(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """The application for requests that are not for a session."""
    headers = [(b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 404, "headers": headers})
    await send({"type": "http.response.body"})


class SessionTransport(BaseConnectionProtocol):
    """One QUIC connection of a server. ``on_request(link)`` is called with each request for a session."""

    def __init__(
        self,
        quic: QuicConnection,
        service: AsgiService,
        limits: Http3Limits,
        *,
        close_timeout: float,
        session_limits: WebTransportLimits,
        on_request: Callable[[SessionState], None],
        on_over: Callable[[SessionTransport], None],
    ) -> None:
        super().__init__(quic, close_timeout=close_timeout)
        self.sessions: set[SessionState] = set()
        self.leaving: set[SessionState] = set()
        """Sessions that have ended and whose last capsule the client has not acknowledged."""
        self._service = service
        self._limits = limits
        self._session_limits = session_limits
        self._on_request = on_request
        self._on_over = on_over
        self._http: Http3Connection | None = None
        self._is_going_away = False

    def connection_made(self, transport: QuicTransport) -> None:
        """Attaches HTTP/3, when the handshake has selected it as the application protocol."""
        super().connection_made(transport)
        name = transport.get_extra_info("sockname")
        self.quic._notify_finished()
        self._http = Http3Connection(
            self.quic,
            self._service,
            self._limits,
            server=(str(name[0]), int(name[1])),
            on_event=self._http_event,
            on_session=self._session_requested,
            sessions=self._session_limits,
            transmit=self.transmit if self._flushes else None,
        )

    def tick(self) -> None:
        """Called about once a second: enforces the time limits."""
        if self._http is not None:
            self._http.tick()

    def go_away(self) -> None:
        """Sends GOAWAY, and asks the peer to end its open sessions. The connection is closed when no session
        is left."""
        self._is_going_away = True
        if self._http is not None and self.completed is not None:
            self._http.go_away()
        for session in list(self.sessions):
            session.drain()
        self._close_if_unused()

    def handshake_completed(self, event: HandshakeCompleted) -> None:
        """The handshake is complete."""
        super().handshake_completed(event)
        if self._http is not None:
            self._http.handshake_completed()
        if self._is_going_away:
            self.go_away()

    def _session_requested(self, core: WebTransportSessionCore, scope: dict[str, Any]) -> None:
        link = SessionState(
            core,
            self.quic,
            parameters_of(scope),
            close_timeout=self.close_timeout,
            on_change=self._session_changed,
        )
        self.sessions.add(link)
        self._on_request(link)

    def _session_changed(self, link: SessionState) -> None:
        self.sessions.discard(link)
        if link.released.is_set():
            self.leaving.discard(link)
        else:
            self.leaving.add(link)
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        """Closes the connection after GOAWAY if its client has no session."""
        is_unused = not self.sessions and not self.leaving
        if self._is_going_away and is_unused and self.completed is not None:
            self.close(H3_NO_ERROR, "")

    def _http_event(self, name: str) -> None:
        """Closes the connection of a client without sessions that is idle or has used up its requests."""
        if name in ("idle", "used_up") and not self.sessions:
            self.close(H3_NO_ERROR, "")

    def _over(self, make_error: Callable[[], QuicError], is_orderly: bool) -> None:
        http, self._http = self._http, None
        if http is not None:
            http.closed()
        for session in [*self.sessions, *self.leaving]:
            session.connection_lost(make_error)
        self._on_over(self)


# The number of requests that a client may have open at a time, without sessions: at least 100 (RFC 9114
# section 6.1).
REQUESTS = 100
# HTTP/3's unidirectional streams: a control stream and two of QPACK's (RFC 9114 section 6.2).
HTTP3_UNI_STREAMS = 3
# The error code for an orderly end of a connection (RFC 9114 section 8.1).
H3_NO_ERROR = 0x100
