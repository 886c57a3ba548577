"""A timeout that never swallows a cancellation.

``asyncio.wait_for`` has this property from CPython 3.12 on. Before, if its caller is cancelled in the
iteration in which the result becomes available, it returns the result, and the cancelled task continues. That
is common at the end of a loop, which cancels all tasks.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["within"]

T = TypeVar("T")


async def within(awaitable: Awaitable[T], timeout: float | None) -> T:
    """Returns the result of ``awaitable``; raises ``asyncio.TimeoutError`` after ``timeout`` seconds.

    A cancellation of the caller is always raised, also if the result is available. From CPython 3.12 on a
    coroutine runs in the caller's task, before that in a separate task. That task has ended when this
    returns or raises, unless the caller is cancelled a second time meanwhile: then it has been cancelled and
    may run for a while, and its result or exception is dropped.
    """
    if timeout is None:
        return await awaitable
    if sys.version_info >= (3, 12):
        return await asyncio.wait_for(awaitable, timeout)
    task = asyncio.ensure_future(awaitable)
    # Otherwise the loop would report the exception of a task that is no longer awaited.
    task.add_done_callback(_drop_exception)
    try:
        await asyncio.wait([task], timeout=timeout)
    except GeneratorExit:
        # The coroutine is being closed, perhaps because its loop has ended, and cannot await.
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
    """Cancels the task and waits until it has ended."""
    task.cancel()
    while not task.done():
        # A second cancellation of the caller ends this wait; the task is cancelled in any case.
        await asyncio.wait([task])


def _drop_exception(task: asyncio.Future[T]) -> None:
    if not task.cancelled():
        task.exception()
