"""``await`` and ``async with`` of connections, sessions and listeners.

``connect`` and ``listen`` return an :class:`AwaitableContext`. Leaving its block closes the object. A
connection or a session waits first until the peer has acknowledged the data that was finished on its
streams, because a close drops queued data. After an exception it closes at once. Data that arrived before the
peer closed can still be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["AwaitableContext", "ClosedOnExit", "DeliveredOnExit", "wait_delivered"]


class _Closing(Protocol):
    def close(self) -> None: ...
    async def wait_closed(self) -> None: ...


class _Delivering(_Closing, Protocol):
    @property
    def is_closed(self) -> bool: ...
    @property
    def _close_timeout(self) -> float: ...
    def wait_delivered(self) -> Awaitable[None]: ...


class _Ending(Protocol):
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


_Made = TypeVar("_Made", bound=_Ending)


class AwaitableContext(Generic[_Made]):
    """An object that is made when this is awaited or entered. Leaving the block closes the object. The block
    cannot be entered a second time before that.
    """

    def __init__(self, make: Callable[[], Coroutine[Any, Any, _Made]]) -> None:
        self._make = make
        self._made: _Made | None = None
        self._is_entered = False

    def __await__(self) -> Generator[Any, None, _Made]:
        return self._make().__await__()

    async def __aenter__(self) -> _Made:
        if self._is_entered:
            raise RuntimeError("it is entered already; another block needs another one")
        self._is_entered = True
        try:
            self._made = await self._make()
        except BaseException:
            self._is_entered = False
            raise
        return self._made

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        made, self._made = self._made, None
        self._is_entered = False
        if made is not None:
            await made.__aexit__(exc_type, exc_value, traceback)


class ClosedOnExit:
    """A base class for objects that are closed at the end of their ``async with`` block, which waits until
    they are closed."""

    __slots__ = ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self: _Closing,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
        await self.wait_closed()


class DeliveredOnExit(ClosedOnExit):
    """Leaving the block without an exception waits for acknowledgements, ``_close_timeout`` seconds at
    most. Then, or after an exception at once, it closes the object and waits until it is closed."""

    __slots__ = ()

    async def __aexit__(
        self: _Delivering,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if exc_type is None and not self.is_closed:
                await wait_delivered(self, self._close_timeout)
        finally:
            self.close()
        await self.wait_closed()


async def wait_delivered(thing: _Delivering, timeout: float) -> None:
    """Waits until the peer has acknowledged the data that was finished on the streams, ``timeout`` seconds
    at most."""
    delivered = asyncio.ensure_future(thing.wait_delivered())
    try:
        await asyncio.wait([delivered], timeout=timeout)
    finally:
        delivered.cancel()
