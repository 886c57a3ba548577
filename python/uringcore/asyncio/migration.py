"""``protocol.migrate``: a client's connection goes over to another network (RFC 9000 section 9).

Here: the new socket, the waiting, and what becomes of the sockets. Not here: what is sent to try the
path, and the way back when nobody answers there (the core).
"""

from __future__ import annotations

import asyncio
from typing import Any

from uringcore.quic import events
from uringcore.quic.connection import NetworkAddress, QuicConnection
from uringcore.quic.endpoint import QuicTransport

__all__ = ["Migrator"]


class Migrator:
    """The moves of one connection, one at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, quic: QuicConnection) -> None:
        self._loop = loop
        self._quic = quic
        self._waiter: asyncio.Future[bool] | None = None

    async def migrate(
        self, transport: QuicTransport, local_addr: NetworkAddress | None, timeout: float
    ) -> None:
        if self._waiter is not None:
            raise RuntimeError("a migration is under way")
        peer = self._quic.get_peer_address()
        if peer is None:
            raise RuntimeError("the connection has not begun")
        waiter: asyncio.Future[bool] = self._loop.create_future()
        self._waiter = waiter
        number = None
        try:
            number, name = await transport._add_socket(local_addr, peer)
            old = self._quic._path[0]
            self._quic._migrate(number, timeout)
            succeeded = await waiter
        except BaseException:
            self._waiter = None
            # A caller that gives up waiting does not stop the move, but nobody knows its end.
            if number is not None and self._quic._path[0] != number:
                transport._remove_socket(number)
            raise
        self._waiter = None
        if succeeded:
            transport._moved(name)
            # What is on its way to the old address may still come for a while.
            self._loop.call_later(timeout, transport._remove_socket, old)
            return
        transport._remove_socket(number)
        raise TimeoutError(
            f"nothing was heard from {_text(peer)} at {_text(name)} within {timeout:g} seconds; "
            "the connection is back on its old path"
        )

    def finished(self, event: events.MigrationFinished) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(event.succeeded)

    def terminated(self, transport: object, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        number = self._quic._path[0]
        if number and isinstance(transport, QuicTransport):
            # The close has to get out first, and may have to be said again.
            self._loop.call_later(_CLOSING_MAX, transport._remove_socket, number)


def _text(address: Any) -> str:
    return f"{address[0]} port {address[1]}"


# As long as the engine repeats a close.
_CLOSING_MAX = 3.0
