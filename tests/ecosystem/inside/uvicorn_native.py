"""For uvicorn's own tests of HTTP and WebSocket on our loops (`-p uvicorn_native`): its class over h11
becomes our native connection.

On stock asyncio h11 and websockets run, as the reference. The variants of the tests for uvicorn's other
classes are left out. Most tests of HTTP use a transport and a loop that only record calls;
:class:`RecordedConnection` adds the calls that our class makes.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
from uvicorn.protocols.http import h11_impl

KEPT_VARIANTS = {"http_protocol_cls": "h11", "ws_protocol_cls": "websockets-sansio"}
"""The variant that runs, by fixture."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps the variants of the classes that are replaced."""
    items[:] = [item for item in items if is_kept(item)]


def is_kept(item: pytest.Item) -> bool:
    fixtures = getattr(item, "fixturenames", ())
    return all(kept in item.name for fixture, kept in KEPT_VARIANTS.items() if fixture in fixtures)


def service(config: Any, state: Any, app_state: Any, loop: Any) -> Any:
    """Makes the native service of a server with uvicorn's ``Config``. ``loop`` runs the applications."""
    from uringcore._uringcore import TcpLimits, TcpService
    from uringcore.server._asgi_service_factory import make_asgi
    from uringcore.server._http3_limits import HTTP3Limits, server_limits, websocket_limits
    from uringcore.server._native_tcp import CLIENT_LIMITS, SHARED_LIMITS
    from uringcore.server._request_log import RequestLog

    if not config.loaded:
        config.load()

    def overloaded() -> bool:
        most = config.limit_concurrency
        return most is not None and max(len(state.connections), len(state.tasks)) >= most

    server: Any = SimpleNamespace(
        config=config, lifespan=SimpleNamespace(state=app_state), server_state=state
    )
    running = asyncio.get_running_loop
    asyncio.get_running_loop = lambda: loop  # type: ignore[assignment]
    try:
        scheme = "https" if config.is_ssl else "http"
        asgi = make_asgi(server, RequestLog(10), overloaded, "1.1", scheme)
    finally:
        asyncio.get_running_loop = running
    asgi.set_default_headers(state.default_headers or config.encoded_headers)
    limits = HTTP3Limits()
    return TcpService(
        asgi,
        TcpLimits(
            **{name: getattr(limits, name) for name in SHARED_LIMITS - CLIENT_LIMITS},
            keep_alive=float(config.timeout_keep_alive),
            websockets=websocket_limits(config) is not None,
            clients=server_limits()._options(),
            is_secure=config.is_ssl,
        ),
        connections=state.connections,
    )


def native(made: Any) -> Any:
    """Makes the protocol of a new connection of a service."""
    from uringcore._uringcore import Http1Connection

    return Http1Connection(made)


class RecordedConnection:
    """A native connection on the transport and the loop of uvicorn's tests."""

    def __init__(self, config: Any, state: Any, app_state: Any, loop: Any) -> None:
        real = asyncio.get_running_loop()
        loop.create_future = real.create_future
        loop.call_soon = real.call_soon
        loop.get_debug = lambda: False
        # A task factory makes the extension call `create_task`, which the tests record.
        loop.get_task_factory = lambda: self
        self.loop = loop
        self.config = config
        self._native = native(service(config, state, app_state, loop))

    def connection_made(self, transport: Any) -> None:
        kind = type(transport)
        kind.writelines = lambda self, pieces: self.write(b"".join(pieces))
        kind.get_write_buffer_size = lambda self: 0
        kind.can_write_eof = lambda self: True
        for name in ("write_eof", "close", "abort"):
            setattr(kind, name, lambda self: setattr(self, "closed", True))
        self.transport = transport
        self._native.connection_made(transport)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)


SERVICES: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""The service of each server that runs, by its ``Config``."""


class H11Protocol(asyncio.Protocol):
    """Stands for uvicorn's class of this name, and makes native connections."""

    def __new__(cls, config: Any, server_state: Any, app_state: Any, _loop: Any = None) -> Any:
        if _loop is not None and not isinstance(_loop, asyncio.AbstractEventLoop):
            return RecordedConnection(config, server_state, app_state, _loop)
        if config not in SERVICES:
            loop = asyncio.get_running_loop()
            SERVICES[config] = service(config, server_state, app_state, loop)
        return native(SERVICES[config])


if os.environ["ECOSYSTEM_LOOP"] != "asyncio":
    changed: Any = h11_impl
    changed.H11Protocol = H11Protocol
