"""One file operation under way: what a coroutine waits for, and what becomes of it when nobody does.

An operation cannot be called back once a thread or the kernel works at it, so a cancelled wait does
not end it. Whoever leaves says what is to be done with the result (:meth:`Operation.abandon`); until
then the file that it belongs to stays occupied. Operations on the ring have the same two members
(:class:`uringcore._uringcore.FileOperation`). Not here: which operations there are (``_files``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["Operation", "ThreadOperation", "finish"]

T = TypeVar("T")


class Operation(Protocol[T]):
    """What both kinds of operation offer."""

    @property
    def future(self) -> asyncio.Future[T]:
        """Awaited by exactly one coroutine."""

    def abandon(self, late: Callable[[Any, BaseException | None], None]) -> None:
        """Nobody waits any more: ``late(result, error)`` is called once the operation is over.

        It is called at once if the operation is over already. ``error`` is ``None`` for a success.
        """


class ThreadOperation(Generic[T]):
    """A blocking call in an executor's thread.

    ``inner`` is the executor's future and is never cancelled: cancelling would tell that the thread
    is done with the descriptor while it is not.
    """

    __slots__ = ("_inner", "_late", "future")

    def __init__(self, loop: asyncio.AbstractEventLoop, inner: asyncio.Future[T]) -> None:
        self.future: asyncio.Future[T] = loop.create_future()
        self._inner = inner
        self._late: Callable[[Any, BaseException | None], None] | None = None
        inner.add_done_callback(self._done)

    def abandon(self, late: Callable[[Any, BaseException | None], None]) -> None:
        """As :meth:`Operation.abandon`."""
        if self._inner.done():
            late(*_outcome(self._inner))
        else:
            self._late = late

    def _done(self, inner: asyncio.Future[T]) -> None:
        if self._late is not None:
            self._late(*_outcome(inner))
            return
        result, error = _outcome(inner)
        if self.future.done():
            # Cancelled in this very turn: `abandon` comes when the coroutine hears of it.
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


def _outcome(future: asyncio.Future[Any]) -> tuple[Any, BaseException | None]:
    if future.cancelled():
        return None, asyncio.CancelledError()
    error = future.exception()
    return (None, error) if error is not None else (future.result(), None)


async def finish(operation: Operation[T], release: Callable[[T], None] | None = None) -> T:
    """Wait for an operation that no file object stands behind.

    Args:
        operation: what to wait for. Cancelling the wait does not undo it.
        release: what to do with a result that nobody takes, such as closing a descriptor.

    Raises:
        OSError: the operation failed.
    """
    try:
        return await operation.future
    except (asyncio.CancelledError, GeneratorExit):

        def late(result: Any, error: BaseException | None) -> None:
            if release is not None and error is None:
                release(result)

        operation.abandon(late)
        raise
