"""TCP connections that would outlast a stopping server.

TLS waits half a minute for a client's close_notify, which nobody has to wait for (RFC 8446 section 6.1), and
a client that has no request under way may read nothing for as long: httpx's pools do not.

uvicorn asks the connections of one moment to end. A TLS handshake that is under way at that moment becomes a
connection later; without a word to it, its client could go on asking for as long as the stop may take.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any, Protocol

__all__ = ["close_lingering", "has_transports", "shut_down_late"]

LOOK_SECONDS = 0.1

SILENCE_SECONDS = 1.0
"""The time for a client's last word, when all of its response has gone to the kernel; and for the request of
a client that came late."""

logger = logging.getLogger("uvicorn.error")


class Connection(Protocol):
    """uvicorn's protocols, and those of HTTP/3."""

    def shutdown(self) -> None:
        """Closes a connection without a request, and any other behind its response."""


@contextlib.contextmanager
def close_lingering(connections: Iterable[object]) -> Iterator[None]:
    """Meanwhile those of ``connections``, uvicorn's protocols, that are closed but for that are ended."""
    with looking(close_when_idle(connections)):
        yield


@contextlib.contextmanager
def shut_down_late(connections: Iterable[Connection]) -> Iterator[None]:
    """Meanwhile connections are shut down that were not among ``connections`` when the block began."""
    with looking(shut_down_others(connections, set(connections))):
        yield


def has_transports(server: object) -> bool:
    """True if a server of asyncio's has a TCP connection, be it one whose TLS handshake is under way."""
    clients = getattr(server, "_clients", None)
    # Before CPython 3.13 they are only counted.
    return bool(getattr(server, "_active_count", 0) if clients is None else clients)


@contextlib.contextmanager
def looking(what: Coroutine[Any, Any, None]) -> Iterator[None]:
    task = asyncio.ensure_future(what)
    task.add_done_callback(tell)
    try:
        yield
    finally:
        task.cancel()


def tell(ended: asyncio.Task[None]) -> None:
    if not ended.cancelled() and (error := ended.exception()) is not None:
        logger.error(
            "TCP connections are waited for until their clients close them", exc_info=error
        )


async def close_when_idle(connections: Iterable[object]) -> None:
    """Runs until cancelled."""
    loop = asyncio.get_running_loop()
    closed_at: dict[asyncio.Transport, float] = {}
    while True:
        for connection in list(connections):
            transport = getattr(connection, "transport", None)
            if not isinstance(transport, asyncio.Transport) or not transport.is_closing():
                continue
            if transport.get_write_buffer_size():
                # The client is still reading its response.
                closed_at.pop(transport, None)
            elif loop.time() - closed_at.setdefault(transport, loop.time()) >= SILENCE_SECONDS:
                transport.abort()
        await asyncio.sleep(LOOK_SECONDS)


async def shut_down_others(connections: Iterable[Connection], known: set[Connection]) -> None:
    """Until cancelled."""
    loop = asyncio.get_running_loop()
    came_at: dict[Connection, float] = {}
    while True:
        for connection in [one for one in connections if one not in known]:
            if loop.time() - came_at.setdefault(connection, loop.time()) >= SILENCE_SECONDS:
                known.add(connection)
                try:
                    connection.shutdown()
                except Exception:
                    logger.exception("A TCP connection could not be shut down")
        await asyncio.sleep(LOOK_SECONDS)
