"""``Backlog``: what a server has that nobody has accepted, and those who wait to accept it."""

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
    """At most so many connections, or sessions. Those that are over can be accepted for what has come on
    them, and make room for others.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, places: int) -> None:
        self._loop = loop
        self._places = places
        # Not what the program has: that closes itself when nobody has it, and warns.
        self._links: deque[_Link] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()

    def enter(self, link: _Link) -> bool:
        """There is another one to be accepted. False: there is no room for it."""
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
        """So many may wait from now on. Those that wait already stay."""
        self._places = places

    def take(self) -> _Link | None:
        """The one that has waited longest."""
        return self._links.popleft() if self._links else None

    async def wait(self) -> None:
        """Until there is one, or there will be none. Cancelled, it leaves it to the next who waits."""
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
        """There will be none."""
        self._links.clear()
        while self._waiters:
            self._wake()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
