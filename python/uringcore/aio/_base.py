"""The methods that binary and text files share, as ``io.IOBase`` has those of the built-in's.

``_taken`` holds what was read ahead, bytes or text, and ``_at`` is the place in it. A call that this
can answer does not suspend. Not here: where ``_taken`` comes from (``_file``, ``_text``).
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, AnyStr, Generic, TypeVar

from ._turns import Turns

__all__ = ["AsyncIOBase", "as_size"]

_Self = TypeVar("_Self", bound="AsyncIOBase[Any]")


class AsyncIOBase(Turns, Generic[AnyStr]):
    """A file of ``bytes`` or ``str``."""

    _taken: AnyStr
    _at: int
    # The end of a line if that is always the same; None to have `_collect` find it.
    _line_end: AnyStr | None

    async def read(self, size: int | None = -1, /) -> AnyStr:
        """Read ``size`` bytes or characters, fewer only at the end of the file; all if negative.

        Raises:
            OSError: reading failed.
            UnicodeDecodeError: the bytes are not text of the file's encoding.
            ValueError: the file is closed, or ``size`` of a binary file is below -1.
            io.UnsupportedOperation: the file is not open for reading.
        """
        if size.__class__ is int and not self._busy:
            at = self._at
            end = at + size
            if at < end <= len(self._taken):
                self._at = end
                return self._taken[at:end]
        wanted = as_size(size)
        await self._begin_reading()
        try:
            return await self._collect(wanted, line=False)
        finally:
            self._end()

    async def readline(self, size: int | None = -1, /) -> AnyStr:
        """Read a line with its end, at most ``size`` bytes or characters; empty at the end of the file.

        Raises:
            As :meth:`read`.
        """
        if self._line_end is not None and not self._busy and (size is None or size == -1):
            at = self._at
            # A closed file has nothing left that could be found.
            end = self._taken.find(self._line_end, at) + 1
            if end:
                self._at = end
                return self._taken[at:end]
        limit = as_size(size)
        await self._begin_reading()
        try:
            return await self._collect(limit, line=True)
        finally:
            self._end()

    async def readlines(self, hint: int | None = -1, /) -> list[AnyStr]:
        """Read lines to the end, or until they are more than ``hint`` bytes or characters.

        Raises:
            As :meth:`read`.
        """
        limit = as_size(hint)
        lines: list[AnyStr] = []
        total = 0
        while line := await self.readline():
            lines.append(line)
            total += len(line)
            if 0 < limit < total:
                break
        return lines

    def __aiter__(self: _Self) -> _Self:
        return self

    async def __anext__(self) -> AnyStr:
        if self._line_end is not None and not self._busy:
            at = self._at
            end = self._taken.find(self._line_end, at) + 1
            if end:
                self._at = end
                return self._taken[at:end]
        if line := await self.readline():
            return line
        raise StopAsyncIteration

    async def write(self, data: Any, /) -> int:
        raise NotImplementedError

    async def writelines(self, lines: Iterable[Any], /) -> None:
        """Write each of ``lines``; no line ends are added. Errors as :meth:`write`."""
        self._check_open()
        for line in lines:
            await self.write(line)

    async def close(self) -> None:
        raise NotImplementedError

    async def __aenter__(self: _Self) -> _Self:
        self._check_open()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def _check_open(self) -> None:
        raise NotImplementedError

    async def _begin_reading(self) -> None:
        """Wait for this task's turn, with everything done that has to come before reading."""
        raise NotImplementedError

    async def _collect(self, limit: int, line: bool) -> AnyStr:
        """Read up to ``limit``, the end of the file or the end of a line; negative for no limit."""
        raise NotImplementedError


def as_size(size: Any) -> int:
    """The argument of a read: -1 for ``None``.

    Raises:
        TypeError: ``size`` is neither an integer nor ``None``.
    """
    if size is None:
        return -1
    try:
        return operator.index(size)
    except TypeError:
        kind = type(size).__name__
        raise TypeError(f"argument should be integer or None, not '{kind}'") from None
