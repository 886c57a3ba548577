"""What calls return that may be awaited or entered: ``f = await open(...)``, ``async with open(...)``.

The same shape as ``aiofiles.base.AiofilesContextManager``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar, cast

__all__ = ["Opening"]

T = TypeVar("T")


class Opening(Generic[T], Awaitable[T], AbstractAsyncContextManager[T]):
    """An object about to be made; as a context manager it closes the object at the end.

    Args:
        making: the coroutine that makes it.
        shown: what ``async with ... as`` is given instead of the object.
    """

    __slots__ = ("_made", "_making", "_shown")

    def __init__(
        self, making: Coroutine[Any, Any, T], shown: Callable[[T], Any] | None = None
    ) -> None:
        self._making = making
        self._shown = shown
        self._made: T | None = None

    def __await__(self) -> Generator[Any, Any, T]:
        if self._made is None:
            self._made = yield from self._making.__await__()
        return self._made

    async def __aenter__(self) -> T:
        made = await self
        return made if self._shown is None else cast(T, self._shown(made))

    async def __aexit__(self, *exc_info: object) -> None:
        made, self._made = cast(Any, self._made), None
        await made.close()
