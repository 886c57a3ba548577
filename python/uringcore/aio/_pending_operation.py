"""One file operation in progress, and its result if the waiting coroutine is cancelled.

A thread or the kernel may finish an operation after its waiter is gone. So a cancelled waiter passes
a function that receives the result (:meth:`Operation.abandon`); until then the file stays locked.
Operations on the ring are :class:`uringcore._uringcore.FileOperation`, which has these two members
as well. ``_file_backends`` makes the operations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["Operation", "ThreadOperation", "finish"]

T = TypeVar("T")
Late = Callable[[Any, BaseException | None], None]


class Operation(Protocol[T]):
    """The interface of an operation, whether it runs on the ring or in a thread."""

    @property
    def future(self) -> asyncio.Future[T]:
        """Awaited by exactly one coroutine."""

    def abandon(self, late: Late) -> None:
        """Call ``late(result, error)`` when the operation has ended, or at once if it already has.

        ``error`` is ``None`` for a success.
        """


class ThreadOperation(Generic[T]):
    """A blocking call in an executor's thread.

    ``inner`` is the executor's future. It is never cancelled, because a cancelled future would suggest
    that the thread no longer uses the descriptor.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, inner: asyncio.Future[T]) -> None:
        self.future: asyncio.Future[T] = loop.create_future()
        self._inner = inner
        self._late: Late | None = None
        inner.add_done_callback(self._done)

    def abandon(self, late: Late) -> None:
        """Stop waiting, as :meth:`Operation.abandon` does."""
        if self._inner.done():
            late(*_outcome(self._inner))
        else:
            self._late = late

    def _done(self, inner: asyncio.Future[T]) -> None:
        result, error = _outcome(inner)
        if self._late is not None:
            self._late(result, error)
        elif self.future.done():
            # The waiting coroutine was cancelled in this iteration of the loop. It calls `abandon` when it
            # runs.
            return
        elif error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


def _outcome(future: asyncio.Future[Any]) -> tuple[Any, BaseException | None]:
    if future.cancelled():
        return None, asyncio.CancelledError()
    error = future.exception()
    return (None, error) if error is not None else (future.result(), None)


async def finish(operation: Operation[T], release: Callable[[T], Any] | None = None) -> T:
    """Wait for an operation without a file object.

    Args:
        operation: the operation. Cancelling the wait does not undo it.
        release: called with the result if the wait was cancelled, for example to close a descriptor.

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
