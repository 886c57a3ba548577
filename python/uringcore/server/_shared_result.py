"""A result that takes time to collect, shared by all callers of about the same time.

A report of the server reads each of its connections and each of its processes. Without sharing, a client
that scrapes in a loop would keep the server busy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

__all__ = ["SECONDS_KEPT", "SharedResult"]

T = TypeVar("T")

SECONDS_KEPT = 1.0
"""Age up to which a result is returned again. It counts from the end of the collection."""


class SharedResult(Generic[T]):
    """The result of ``collect``, shared by the callers that come while it runs and in the second after it.

    An exception is raised in the callers that wait for it, and the next caller collects again.
    """

    def __init__(
        self, collect: Callable[[], Awaitable[T]], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._collect = collect
        self._clock = clock
        self._task: asyncio.Task[T] | None = None
        self._result: tuple[float, T] | None = None

    async def get(self) -> T:
        """A result that is a second old at most. Cancelling one caller does not cancel the collection."""
        if self._result is not None and self._clock() - self._result[0] < SECONDS_KEPT:
            return self._result[1]
        if self._task is None:
            self._result = None
            self._task = asyncio.ensure_future(self._run())
            self._task.add_done_callback(self._done)
        return await asyncio.shield(self._task)

    async def _run(self) -> T:
        return await self._collect()

    def _done(self, task: asyncio.Task[T]) -> None:
        self._task = None
        # The exception is read here, because all callers may have been cancelled, and asyncio would log it as
        # lost.
        if not task.cancelled() and task.exception() is None:
            self._result = self._clock(), task.result()
