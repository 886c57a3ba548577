"""Ends the TCP connections that would delay the end of a stopping server.

A closing TLS connection waits up to half a minute for the client's close_notify. RFC 8446 section 6.1 does
not require this wait, and a client without an open request, as in httpx's pool, may not read for longer.

uvicorn shuts down the connections that exist when the stop begins. A TLS handshake that ends later adds a
connection; unless it is shut down too, its client can send requests until the time limit of the stop. A
handshake that does not end is aborted: from CPython 3.12 on ``Server.wait_closed`` waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any, Protocol

__all__ = ["close_lingering", "end_handshakes", "has_transports", "shut_down_late"]

LOOK_SECONDS = 0.1

SILENCE_SECONDS = 1.0
"""The time for a client's close_notify after its whole response was passed to the kernel, for the rest of
a TLS handshake that was under way when the stop began, and for the request of a client whose connection
was made during the stop."""

logger = logging.getLogger("uvicorn.error")


class Connection(Protocol):
    """Methods that the protocols of uvicorn and of HTTP/3 share."""

    def shutdown(self) -> None:
        """Closes a connection that has no request at once, and another one after its response."""


@contextlib.contextmanager
def close_lingering(connections: Iterable[object]) -> Iterator[None]:
    """Aborts closing connections whose clients send no close_notify within ``SILENCE_SECONDS``.

    ``connections`` are uvicorn's protocols. They are watched until the block ends.
    """
    with running(close_when_idle(connections)):
        yield


@contextlib.contextmanager
def shut_down_late(connections: Iterable[Connection]) -> Iterator[None]:
    """Shuts down connections that are added to ``connections`` during the block."""
    with running(shut_down_others(connections, set(connections))):
        yield


@contextlib.contextmanager
def end_handshakes(servers: Iterable[object], connections: Iterable[object]) -> Iterator[None]:
    """Aborts the TCP connections of ``servers`` that are not among ``connections`` after
    ``SILENCE_SECONDS``: uvicorn's protocols get there when the TLS handshake is complete."""
    with running(abort_handshakes(servers, connections)):
        yield


def has_transports(server: object) -> bool:
    """True if an asyncio server has a TCP connection, also one with an incomplete TLS handshake."""
    # Before CPython 3.13 asyncio's servers have the number of their transports, in another attribute.
    return bool(getattr(server, "_clients", None) or getattr(server, "_active_count", 0))


def transports_of(server: object) -> list[asyncio.Transport]:
    """The TCP connections of an asyncio server."""
    clients = dict.fromkeys(getattr(server, "_clients", None) or ())
    # Before CPython 3.13 asyncio's servers have no set of their clients, and its loops have a dictionary of
    # all transports. A server of our loop may have some of asyncio's.
    everyone = getattr(asyncio.get_running_loop(), "_transports", {})
    others = [one for one in everyone.values() if getattr(one, "_server", None) is server]
    return list(clients | dict.fromkeys(others))


def socket_of(transport: asyncio.BaseTransport) -> int:
    """The descriptor of a transport; that of a TLS transport is its TCP connection's."""
    sock = transport.get_extra_info("socket")
    return -1 if sock is None else int(sock.fileno())


@contextlib.contextmanager
def running(what: Coroutine[Any, Any, None]) -> Iterator[None]:
    task = asyncio.ensure_future(what)
    task.add_done_callback(log_failure)
    try:
        yield
    finally:
        task.cancel()


def log_failure(ended: asyncio.Task[None]) -> None:
    if not ended.cancelled() and (error := ended.exception()) is not None:
        logger.error(
            "lingering TCP connections are not ended: the stop waits for their clients",
            exc_info=error,
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
                # The client is still reading a response, so the time limit for the closed connection has not
                # begun.
                closed_at.pop(transport, None)
            elif loop.time() - closed_at.setdefault(transport, loop.time()) >= SILENCE_SECONDS:
                transport.abort()
        await asyncio.sleep(LOOK_SECONDS)


async def abort_handshakes(servers: Iterable[object], connections: Iterable[object]) -> None:
    """Runs until cancelled."""
    loop = asyncio.get_running_loop()
    seen_at: dict[asyncio.Transport, float] = {}
    complete: set[asyncio.Transport] = set()
    while True:
        others = [one for server in servers for one in transports_of(server) if one not in complete]
        # Comparing descriptors takes microseconds each, so it is done only for connections that are not known
        # yet.
        ours = others and {
            socket_of(transport)
            for connection in connections
            if (transport := getattr(connection, "transport", None)) is not None
        }
        for transport in others:
            if transport.is_closing():
                continue
            if socket_of(transport) in ours:
                complete.add(transport)
            elif loop.time() - seen_at.setdefault(transport, loop.time()) >= SILENCE_SECONDS:
                transport.abort()
        await asyncio.sleep(LOOK_SECONDS)


async def shut_down_others(connections: Iterable[Connection], known: set[Connection]) -> None:
    """Runs until cancelled."""
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
