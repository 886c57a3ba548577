"""The state that all HTTP/3 connections of one server share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.server import ServerState

from uringcore._uringcore import AsgiService, Http3Limits
from uringcore.server._common_asgi_scope import TLSExtension
from uringcore.server._webtransport_sessions import SessionService

__all__ = ["HTTP3Service", "direct"]


class _Connection(Protocol):
    """The methods of a connection that the server calls."""

    def ping_if_busy(self) -> None: ...
    def tick(self) -> None: ...
    def shutdown(self) -> None: ...
    def close(self, error_code: int, reason_phrase: str = "") -> None: ...


@dataclass
class HTTP3Service:
    """The state that all HTTP/3 connections of one server share."""

    asgi: AsgiService
    state: ServerState
    http3_limits: Http3Limits
    tls: TLSExtension
    report: Callable[[str, str, Any], object]
    """Logs errors of sessions, with the arguments that ``AsgiService`` passes to it."""
    sessions: SessionService | None = None
    """Serves WebTransport sessions. ``None`` if they are disabled."""
    ended: Callable[[Any], None] | None = None
    """Called with the ``stats()`` of each connection that has ended."""
    given_up: Callable[[str], None] | None = None
    """Called with the reason when a response is cancelled because its client is too slow."""
    stopping: bool = False
    connections: set[_Connection] = field(default_factory=set)

    def set_default_headers(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Sets the fields that every response begins with."""
        self.asgi.set_default_headers(headers)
        if self.sessions is not None:
            self.sessions.default_headers = headers


def direct(application: Any) -> Any:
    """Returns the application without uvicorn's middleware for X-Forwarded fields, for requests that have no
    such fields."""
    return application.app if type(application) is ProxyHeadersMiddleware else application
