"""Results of calls that may be awaited or entered: ``f = await open(...)``, ``async with open(...)``.

They have the shape of ``aiofiles.base.AiofilesContextManager``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar, cast

__all__ = ["Opening"]

T = TypeVar("T")


class Opening(Generic[T], Awaitable[T], AbstractAsyncContextManager[T]):
    """An object about to be made. As a context manager it closes the object at the end.

    Args:
        making: the coroutine that makes the object.
        shown: makes of the object what ``async with ... as`` binds; the object itself for ``None``.
        at_exit: called after the object was closed at the end of ``async with``.
    """

    __slots__ = ("_at_exit", "_made", "_making", "_shown")

    def __init__(
        self,
        making: Coroutine[Any, Any, T],
        shown: Callable[[T], Any] | None = None,
        at_exit: Iterable[Callable[[], Coroutine[Any, Any, None]]] = (),
    ) -> None:
        self._making = making
        self._shown = shown
        self._at_exit = at_exit
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
        try:
            await made.close()
        finally:
            for finish in self._at_exit:
                await finish()
