"""``Making``: what is yet to be made, as ``connect`` and ``listen`` return it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["Making"]


class _Ending(Protocol):
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


_Made = TypeVar("_Made", bound=_Ending)


class Making(Generic[_Made]):
    """Nothing happens before it is awaited or entered. Leaving the block ends what was made; until then
    it cannot be entered again.
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
