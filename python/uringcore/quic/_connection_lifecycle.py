"""The lifecycle of a connection: its handshake, pings, migrations and end, and the calls that wait for them.

The connections of the typed API and of WebTransport use it, and so does aioquic's ``QuicConnectionProtocol``.
Streams, datagrams and the source of the events are elsewhere.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable
from typing import Any

from uringcore.quic import events
from uringcore.quic._client_migration import Migrator, Sockets
from uringcore.quic._errors import QuicConnectionError, error_from_event
from uringcore.quic.connection import QuicConnection

__all__ = ["ConnectionLife"]

_Waiting = dict[asyncio.Future[None], "str | int"]


class ConnectionLife:
    """The state of a connection according to its events, and the futures that wait for more events.

    A server has thousands of idle connections, so rarely used attributes are created on first use.
    """

    __slots__ = (
        "_end",
        "_migrator",
        "_waiting",
        "completed",
        "flush",
        "is_closed",
        "loop",
        "needs_flush",
        "quic",
        "sockets",
    )

    def __init__(self, quic: QuicConnection) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.quic: QuicConnection = quic
        self.sockets: Sockets | None = None
        self.completed: events.HandshakeCompleted | None = None
        self._end: Callable[[], QuicConnectionError] | None = None
        self.is_closed: bool = False
        "True if the connection is over."
        self.needs_flush: bool = False
        "True if queued data is sent only when :meth:`flush` is called."
        # `flush` and `needs_flush` are attributes, because each write uses them: a method would cost a
        # further frame.
        self.flush: Callable[[], None] = quic._written
        "Sends queued data. On uringcore's loop that also happens at the end of each iteration."
        self._migrator: Migrator | None = None
        # The futures of waiting calls, each with what it waits for: the handshake, the end, or the number of
        # a PING.
        self._waiting: _Waiting | None = None

    def transmit(self) -> None:
        """Sends queued data, at the end of the loop iteration at the latest."""
        raise NotImplementedError

    def opened(self, sockets: Sockets | None, flush: Callable[[], None] | None) -> None:
        """The connection has a transport. Without ``flush`` its packets are sent automatically, at the
        end of the loop iteration.
        """
        self.sockets = sockets
        self.needs_flush = flush is not None
        self.flush = self.quic._written if flush is None else flush

    def error(self) -> QuicConnectionError:
        """Returns the error that ended the connection: a new exception at each call, because each keeps its
        traceback.
        """
        assert self._end is not None
        return self._end()

    def raise_if_closed(self) -> None:
        """Raises the error that ended the connection, if it has ended."""
        if self._end is not None:
            raise self._end()

    async def wait_connected(self) -> None:
        """Waits until the handshake is complete, and raises the error if it has failed. It raises nothing for
        a connection that has ended since."""
        if self.completed is None:
            self.raise_if_closed()
            await self._wait_for(_CONNECTED)

    async def wait_ended(self) -> None:
        """Waits until the connection has ended."""
        if self._end is None:
            await self._wait_for(_CLOSED)

    async def ping(self) -> None:
        """Waits until the peer has answered a PING. Raises the error if the connection ends before."""
        self.raise_if_closed()
        uid = next(_ping_numbers)
        waiting, waiter = self._waiter_for(uid)
        try:
            # The waiter is registered first, because sending may report the end of the connection at once.
            self.quic.send_ping(uid)
            self.transmit()
            await waiter
        finally:
            del waiting[waiter]

    async def migrate(self, local_addr: Any, timeout: float) -> None:
        """Moves a client to a new socket (RFC 9000 section 9), as ``Connection.migrate`` explains."""
        if not self.quic._path[1]:
            # A client can migrate after the handshake is confirmed (RFC 9001 section 4.1.2). The answer to a
            # PING comes after the server's HANDSHAKE_DONE, which confirms it.
            await self.ping()
        self.raise_if_closed()
        if self.sockets is None:
            raise RuntimeError("the connection has no transport")
        if self._migrator is None:
            self._migrator = Migrator(self.loop, self.quic)
        await self._migrator.migrate(self.sockets, local_addr, timeout)

    def handshake_waiter(self) -> asyncio.Future[None] | None:
        """Returns the oldest future that waits for the handshake."""
        waiting = (self._waiting or {}).items()
        return next((waiter for waiter, awaited in waiting if awaited == _CONNECTED), None)

    # Events, called by their receiver -------------------------------------------------------------

    def handshake_completed(self, event: events.HandshakeCompleted) -> None:
        """The handshake is complete."""
        self.completed = event
        self.quic._completed = event
        self._wake(_CONNECTED)

    def ping_acknowledged(self, event: events.PingAcknowledged) -> None:
        """The peer has answered a PING."""
        self._wake(event.uid)

    def migration_finished(self, event: events.MigrationFinished) -> None:
        """A migration has ended."""
        if self._migrator is not None:
            self._migrator.finished(event)

    def terminated(self, event: events.ConnectionTerminated) -> None:
        """The connection has ended."""
        address = self.quic.get_peer_address()
        peer = None if address is None else f"{address[0]} port {address[1]}"
        self._end = functools.partial(error_from_event, event, peer)
        self.is_closed = True
        for waiter, awaited in (self._waiting or {}).items():
            if awaited != _CLOSED and not waiter.done():
                waiter.set_exception(self._end())
        if self._migrator is not None:
            self._migrator.terminated(self.sockets, self._end())
        self._wake(_CLOSED)

    async def _wait_for(self, awaited: str) -> None:
        waiting, waiter = self._waiter_for(awaited)
        try:
            await waiter
        finally:
            del waiting[waiter]

    def _waiter_for(self, awaited: str | int) -> tuple[_Waiting, asyncio.Future[None]]:
        """Creates a future that :meth:`_wake` completes. Returns it with the table of such futures, from
        which the caller deletes it afterwards."""
        if self._waiting is None:
            self._waiting = {}
        waiter = self.loop.create_future()
        self._waiting[waiter] = awaited
        return self._waiting, waiter

    def _wake(self, awaited: str | int) -> None:
        for waiter, what in (self._waiting or {}).items():
            if what == awaited and not waiter.done():
                waiter.set_result(None)


_CONNECTED, _CLOSED = "connected", "closed"
# The numbers of PINGs, from one counter for all connections. They are above the small numbers that programs
# choose for their own PINGs. A number is never reused, because the answer may arrive after the wait was
# cancelled.
_ping_numbers = itertools.count(1 << 32)
