"""``Backlog``: connections that the program has not accepted yet, and the calls that wait for one."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, Protocol, TypeVar

__all__ = ["Backlog"]


class _Life(Protocol):
    @property
    def is_closed(self) -> bool: ...


_Link = TypeVar("_Link", bound=_Life)


class Backlog(Generic[_Link]):
    """A bounded queue of connections, or of sessions. A connection that has ended stays in the queue, because
    data may have arrived on it. If the queue is full, a new connection takes the place of an ended one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, places: int) -> None:
        self._loop = loop
        self._places = places
        # The queue has the protocol objects. The program's objects would close and warn when they are
        # collected.
        self._links: deque[_Link] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()

    def enter(self, link: _Link) -> bool:
        """Adds a connection. Returns false if the backlog is full."""
        if len(self._links) >= self._places:
            over = next((other for other in self._links if other.is_closed), None)
            if over is not None:
                self._links.remove(over)
        if len(self._links) >= self._places:
            return False
        self._links.append(link)
        self._wake()
        return True

    def resize(self, places: int) -> None:
        """Changes how many may wait. Those that wait already stay."""
        self._places = places

    def take(self) -> _Link | None:
        """Removes and returns the connection that has waited longest, or returns ``None``."""
        return self._links.popleft() if self._links else None

    async def wait(self) -> None:
        """Waits until a connection is in the queue, or the queue was cleared. A waiter that is cancelled
        wakes the next one."""
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake()
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def clear(self) -> None:
        """Removes all connections and wakes all waiting calls."""
        self._links.clear()
        while self._waiters:
            self._wake()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
