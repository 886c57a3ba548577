"""``protocol.migrate``: a client's connection moves to another network (RFC 9000 section 9).

This file makes the new socket, waits for the result and closes the unused socket. The core probes the path
and returns to the old one if the probe fails.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any, Protocol

from uringcore.quic import events
from uringcore.quic._foreign_loops import ForeignDriver
from uringcore.quic._udp_sockets import further_socket
from uringcore.quic.connection import NetworkAddress, QuicConnection

__all__ = ["DriverSockets", "Migrator", "Sockets"]


class Sockets(Protocol):
    """The owner of a connection's sockets: a ``QuicTransport``, or ``DriverSockets``."""

    async def _add_socket(
        self, local_addr: Any, remote: tuple[Any, ...] | None = None
    ) -> tuple[int, tuple[Any, ...]]: ...
    def _remove_socket(self, number: int) -> None: ...
    def _moved(self, name: tuple[Any, ...]) -> None: ...
    def flush(self) -> None: ...


class DriverSockets:
    """The sockets of a connection on a program's own datagram transport.

    The program still closes that transport, also after a migration; closing it closes the others.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, driver: ForeignDriver) -> None:
        self._loop = loop
        self._driver = driver

    async def _add_socket(
        self, local_addr: Any, remote: tuple[Any, ...] | None = None
    ) -> tuple[int, tuple[Any, ...]]:
        sock = await further_socket(self._loop, local_addr, remote)
        return await self._driver.add_socket(sock, remote)

    def _remove_socket(self, number: int) -> None:
        self._driver.remove_socket(number)

    def _moved(self, name: tuple[Any, ...]) -> None:
        """Does nothing: the program owns the transport."""

    def flush(self) -> None:
        """Sends queued data."""
        self._driver.flush()


class Migrator:
    """The migrations of one connection, one at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, quic: QuicConnection) -> None:
        self._loop = loop
        self._quic = quic
        self._waiter: asyncio.Future[bool] | None = None
        # The future of the migration that is in progress, and the function that closes the unused socket when
        # it ends. The call of `migrate` may have been cancelled since, and another one may wait.
        self._under_way: tuple[asyncio.Future[bool], Callable[[bool], None]] | None = None

    async def migrate(
        self, transport: Sockets, local_addr: NetworkAddress | None, timeout: float
    ) -> None:
        if self._waiter is not None:
            raise RuntimeError("a migration is under way")
        peer = self._quic.get_peer_address()
        if peer is None:
            raise RuntimeError("the connection has not begun")
        waiter: asyncio.Future[bool] = self._loop.create_future()
        self._waiter = waiter
        number, has_begun = None, False
        try:
            number, name = await transport._add_socket(local_addr, peer)
            old = self._quic._path[0]
            # The waiter is checked, because the connection may have ended while the socket was made.
            if not waiter.done():
                self._quic._migrate(number, timeout)
                settle = functools.partial(self._settle, transport, number, name, old, timeout)
                self._under_way, has_begun = (waiter, settle), True
                transport.flush()
            succeeded = await waiter
        except BaseException:
            self._waiter = None
            # If the caller is cancelled, the migration continues. The socket that is unused afterwards is
            # closed.
            is_lost = not has_begun or self._has_ended(waiter)
            if number is not None and is_lost and self._quic._path[0] != number:
                transport._remove_socket(number)
            raise
        self._waiter = None
        if not succeeded:
            raise TimeoutError(
                f"no datagram arrived from {_text(peer)} at {_text(name)} within {timeout:g} seconds; "
                "the connection is back on its old path"
            )

    @staticmethod
    def _has_ended(waiter: asyncio.Future[bool]) -> bool:
        """True if the wait has ended because the connection has ended."""
        return waiter.done() and not waiter.cancelled() and waiter.exception() is not None

    def _settle(
        self,
        transport: Sockets,
        number: int,
        name: tuple[Any, ...],
        old: int,
        timeout: float,
        succeeded: bool,
    ) -> None:
        """Closes the one of the two sockets that the connection no longer uses."""
        if succeeded:
            transport._moved(name)
            # Packets to the old socket may still arrive, so it stays open for a while.
            self._loop.call_later(timeout, transport._remove_socket, old)
        else:
            transport._remove_socket(number)

    def finished(self, event: events.MigrationFinished) -> None:
        if self._under_way is None:
            return
        (waiter, settle), self._under_way = self._under_way, None
        settle(event.succeeded)
        if not waiter.done():
            waiter.set_result(event.succeeded)

    def terminated(self, transport: Sockets | None, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        number = self._quic._path[0]
        if number and transport is not None:
            # The socket stays open for a while, because the close is sent through it and may be repeated.
            self._loop.call_later(_CLOSING_MAX, transport._remove_socket, number)


def _text(address: Any) -> str:
    return f"{address[0]} port {address[1]}"


# Seconds for which the engine repeats a close.
_CLOSING_MAX = 3.0
