"""What every HTTP/3 connection of one server shares."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from uvicorn.server import ServerState

from uringcore.server.request import Application

__all__ = ["Service"]


class _Connection(Protocol):
    """What a server asks of its connections."""

    def ping_if_busy(self) -> None: ...
    def close(self, error_code: int, reason_phrase: str = "") -> None: ...


@dataclass
class Service:
    """What every HTTP/3 connection of one server shares."""

    application: Application
    state: ServerState
    app_state: dict[str, Any]
    asgi_version: str
    root_path: str
    extensions: dict[str, Any]
    access_log: bool
    limit_concurrency: int | None
    max_header_bytes: int | None
    """Names and values of one field section, together; more is answered with 431. ``None``: the
    HTTP/3 layer's own limit is enough."""

    max_requests: int
    """Requests whose application runs at once on one connection; more are refused unprocessed."""

    reset_contextvars: bool = False
    stopping: bool = False
    default_headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    connections: set[_Connection] = field(default_factory=set)
