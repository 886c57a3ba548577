"""The order of operations on one file: operations of several tasks run one after the other.

A lock that costs one attribute while there is no contention. It outlives the task that holds it if an
operation was left behind in the kernel or in a thread.
"""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["OrderedOperations"]


class OrderedOperations:
    """The lock, which every file class inherits.

    While ``_busy`` is 0 no operation of the file is in progress, and a method that does not have to wait
    may do all its work without the lock.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # The number of holders of the lock: a task, and an operation that the task has abandoned.
        self._busy = 0
        self._queue: deque[asyncio.Future[None]] = deque()

    async def _begin(self) -> None:
        """Wait for the lock, which is granted in the order of the calls."""
        grant = self._ask()
        if grant is not None:
            await self._wait_for(grant)

    def _ask(self) -> asyncio.Future[None] | None:
        """Request the lock. Returns ``None`` if it is granted at once, else a future to wait for."""
        if not self._busy:
            self._busy = 1
            return None
        grant = self._loop.create_future()
        self._queue.append(grant)
        return grant

    async def _wait_for(self, grant: asyncio.Future[None]) -> None:
        try:
            await grant
        except BaseException:
            if grant.done() and not grant.cancelled():
                self._end()
            else:
                grant.cancel()
            raise

    def _end(self) -> None:
        """Release the lock for one holder. When no holder is left, the next task in the queue gets the
        lock."""
        self._busy -= 1
        while not self._busy and self._queue:
            grant = self._queue.popleft()
            # A task of a closed loop never runs, so the lock goes to the next one.
            if not grant.done() and not self._loop.is_closed():
                grant.set_result(None)
                self._busy = 1
