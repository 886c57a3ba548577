"""``Backlog``: a server's connections that nobody has accepted, and those who wait to accept one."""

from __future__ import annotations

import asyncio
from collections import deque

from uringcore.quic.native.link import Link
from uringcore.quic.packet import QuicErrorCode

__all__ = ["Backlog"]


class Backlog:
    """At most so many connections; one more is refused. Those that are over can be accepted for what has
    come on them, and make room for others.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, places: int) -> None:
        self._loop = loop
        self._places = places
        # Not connections yet: those close themselves when nobody has them, and warn.
        self._links: deque[Link] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()

    def enter(self, link: Link) -> None:
        """A connection is there to be accepted."""
        if len(self._links) >= self._places:
            over = next((other for other in self._links if other.is_closed), None)
            if over is not None:
                self._links.remove(over)
        if len(self._links) >= self._places:
            reason = "too many wait to be accepted"
            link.close_about(QuicErrorCode.CONNECTION_REFUSED, 0, reason)
            return
        self._links.append(link)
        self._wake()

    def take(self) -> Link | None:
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
