"""The connections to one route, and the queue of requests that wait for them.

Free streams of a connection go to the requests that have waited longest. A new connection is opened while
more requests wait than the connections that are being made can serve.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from uringcore.http3._errors import ConnectError, ConnectTimeoutError, HTTP3Error, PoolTimeoutError
from uringcore.http3._pooled_connection import PooledConnection
from uringcore.http3._timeouts_and_limits import Limits, Timeouts

__all__ = ["ConnectionPool"]

Opener = Callable[[bool, float | None], PooledConnection | None]


class _Waiter:
    """A request that waits for a connection, or for a stream if all connections are made."""

    def __init__(self, safe: bool, timeouts: Timeouts, patience: float | None) -> None:
        loop = asyncio.get_running_loop()
        self.safe = safe
        self.timeouts = timeouts
        self.future: asyncio.Future[PooledConnection] = loop.create_future()
        self.is_for_stream = False
        self._patience = timeouts.connect if patience is None else patience
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def limit_connect(self) -> None:
        """Starts the time limit for a connection that is being made."""
        self._limit(self._patience, ConnectTimeoutError, "no connection within")

    def limit_pool(self) -> None:
        """Starts the time limit for a stream: all connections are made, and in use."""
        if not self.is_for_stream:
            self.is_for_stream = True
            self._limit(self.timeouts.pool, PoolTimeoutError, "no stream was free within")

    def _limit(self, seconds: float | None, kind: type[HTTP3Error], why: str) -> None:
        self.end()
        if seconds is not None:
            self._timer = self._loop.call_later(seconds, self.fail, kind(f"{why} {seconds:g} s"))

    def fail(self, error: HTTP3Error) -> None:
        """Ends the wait with ``error``."""
        if not self.future.done():
            self.future.set_exception(error)

    def end(self) -> None:
        """Stops the time limit."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class ConnectionPool:
    """The connections to one route. ``open(early, timeout)`` begins one, or returns ``None`` if the client
    has no room; ``on_idle()`` is called when a connection becomes idle and may be closed for another
    route."""

    def __init__(self, limits: Limits, open: Opener, on_idle: Callable[[], None]) -> None:
        self.connections: list[PooledConnection] = []
        self._limits = limits
        self._open = open
        self._on_idle = on_idle
        self._waiting: list[_Waiter] = []

    @property
    def is_empty(self) -> bool:
        """True if the pool has no connections and no waiting requests."""
        return not self.connections and not self._waiting

    @property
    def has_waiters(self) -> bool:
        """True if requests wait for a stream."""
        return bool(self._waiting)

    def free(self, *, safe: bool) -> PooledConnection | None:
        """A connection with a free stream."""
        most = self._limits.streams_per_connection
        for connection in self.connections:
            if connection.streams < most and connection.takes(safe=safe):
                return connection
        return None

    async def lease(
        self, safe: bool, timeouts: Timeouts, patience: float | None = None
    ) -> PooledConnection:
        """A connection with a stream for one request, which :meth:`release` returns."""
        if not self._waiting:
            connection = self.free(safe=safe)
            if connection is not None:
                return connection.taken()
        if len(self._waiting) >= self._limits.waiting:
            raise PoolTimeoutError(f"{len(self._waiting)} requests wait for a stream already")
        waiter = _Waiter(safe, timeouts, patience)
        waiter.limit_connect()
        self._waiting.append(waiter)
        try:
            self.settle()
            return await waiter.future
        except asyncio.CancelledError:
            future = waiter.future
            if future.done() and not future.cancelled() and future.exception() is None:
                self.release(future.result())
            raise
        finally:
            waiter.end()
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def release(self, connection: PooledConnection) -> None:
        """Returns the stream of a request that has ended."""
        connection.streams -= 1
        self._rest(connection)
        self._settle_after(connection)

    def changed(self, connection: PooledConnection) -> None:
        """Called when a connection opens, stops taking requests, or ends."""
        if connection.is_over:
            if connection in self.connections:
                self.connections.remove(connection)
            if connection.has_served_nothing:
                self._failed(connection)
        elif connection.protocol is not None:
            self._rest(connection)
        self._settle_after(connection)

    def died(self, connection: PooledConnection) -> None:
        """Called when a connection's server does not answer. Retires the connection, and closes idle ones,
        whose server may be dead as well."""
        connection.retire()
        for other in list(self.connections):
            if other.idle_timer is not None:
                other.close()

    def settle(self) -> None:
        """Assigns free streams to waiting requests. Opens connections for the requests that remain."""
        self._waiting = [waiter for waiter in self._waiting if not waiter.future.done()]
        for waiter in list(self._waiting):
            connection = self.free(safe=waiter.safe)
            if connection is not None:
                self._waiting.remove(waiter)
                waiter.future.set_result(connection.taken())
        while self._lacks_connections():
            first = self._waiting[0]
            early = first.safe and not self.connections
            connection = self._open(early, first.timeouts.connect)
            if connection is None:
                break
            self.connections.append(connection)
        if not self._is_connecting:
            for waiter in self._waiting:
                waiter.limit_pool()

    def close(self) -> None:
        """Closes all connections, and fails all waiting requests."""
        for waiter in self._waiting:
            waiter.fail(ConnectError("the client is closed"))
        for connection in list(self.connections):
            connection.close()

    def _settle_after(self, connection: PooledConnection) -> None:
        """Serves the waiting requests of this route. If none wait, an idle connection may be closed for
        another route."""
        self.settle()
        if connection.idle_timer is not None:
            self._on_idle()

    @property
    def _is_connecting(self) -> bool:
        return any(connection.is_connecting for connection in self.connections)

    def _lacks_connections(self) -> bool:
        making = sum(connection.is_connecting for connection in self.connections)
        staying = sum(not connection.is_leaving for connection in self.connections)
        full = staying >= self._limits.connections_per_origin
        return not full and len(self._waiting) > making * self._limits.streams_per_connection

    def _rest(self, connection: PooledConnection) -> None:
        """Keeps a connection that has no requests for ``Limits.idle_timeout``. Closes it if it accepts no
        more requests."""
        if connection.streams or connection.is_connecting or connection.is_over:
            return
        if not connection.takes(safe=False):
            connection.close()
        else:
            connection.rest(self._limits.idle_timeout)

    def _failed(self, connection: PooledConnection) -> None:
        """Fails the waiting requests with the error of a connection that failed, unless another connection
        can serve them. The requests continue to wait if the connection was an early one, which has tried only
        one address, or if it timed out, because they may have more time."""
        other = any(not one.is_leaving for one in self.connections)
        inconclusive = connection.is_early or isinstance(connection.error, ConnectTimeoutError)
        if other or (inconclusive and not connection.is_cancelled):
            return
        error = connection.error or ConnectError("the server accepts no requests")
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.fail(ConnectError.by(error))
