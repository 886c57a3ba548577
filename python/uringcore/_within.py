"""A limit in time that never swallows a cancellation.

``asyncio.wait_for`` before CPython 3.12 returns a result that is there when its caller is cancelled, as if
nobody had cancelled: a task that is told to end then goes on. This is here because that is no rarity at
the end of a loop, where every task is cancelled in the turn in which what it waits for ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["within"]

T = TypeVar("T")


async def within(awaitable: Awaitable[T], timeout: float | None) -> T:
    """What ``awaitable`` gives; ``asyncio.TimeoutError`` if it takes more than ``timeout`` seconds.

    It runs in a task of its own, which is over when this returns or raises. A cancellation of the caller
    is always raised, also if the result is there.
    """
    if timeout is None:
        return await awaitable
    task = asyncio.ensure_future(awaitable)
    try:
        await asyncio.wait([task], timeout=timeout)
    except GeneratorExit:
        # The caller is thrown away, perhaps with its loop: nothing can be awaited any more.
        if not task.get_loop().is_closed():
            task.cancel()
        raise
    except BaseException:
        await _ended(task)
        raise
    if not task.done():
        await _ended(task)
        if task.cancelled():
            raise asyncio.TimeoutError
    return task.result()


async def _ended(task: asyncio.Future[T]) -> None:
    """Cancels the task and waits until it is over. Its exception counts as seen."""
    task.cancel()
    while not task.done():
        # A second cancellation of the caller ends this wait; the task has been cancelled all the same.
        await asyncio.wait([task])
    if not task.cancelled():
        task.exception()
