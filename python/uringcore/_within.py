"""A limit in time that never swallows a cancellation.

``asyncio.wait_for`` is one from CPython 3.12 on. Before, it returns a result that is there when its caller is
cancelled, as if nobody had cancelled: a cancelled task then goes on. This is here because that is
no rarity at the end of a loop, where every task is cancelled in the turn in which what it waits for ends.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["within"]

T = TypeVar("T")


async def within(awaitable: Awaitable[T], timeout: float | None) -> T:
    """What ``awaitable`` gives; ``asyncio.TimeoutError`` if it takes more than ``timeout`` seconds.

    A cancellation of the caller is always raised, also if the result is there. From CPython 3.12 on a
    coroutine runs in the caller's task, before that in a task of its own. That task is over when this
    returns or raises, unless the caller is cancelled once more meanwhile: then it has been cancelled and
    may go on for a while, and its result or exception is dropped.
    """
    if timeout is None:
        return await awaitable
    if sys.version_info >= (3, 12):
        return await asyncio.wait_for(awaitable, timeout)
    task = asyncio.ensure_future(awaitable)
    # Otherwise the loop reports the exception of a task whose end is no longer waited for.
    task.add_done_callback(_drop_exception)
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
    """Cancels the task and waits until it is over."""
    task.cancel()
    while not task.done():
        # A second cancellation of the caller ends this wait; the task has been cancelled all the same.
        await asyncio.wait([task])


def _drop_exception(task: asyncio.Future[T]) -> None:
    if not task.cancelled():
        task.exception()
