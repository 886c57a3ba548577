"""A file in memory that moves to disk, and a directory that is removed: results of ``tempfile``'s calls."""

from __future__ import annotations

import asyncio
import io
import tempfile
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ._file_backends import Files
from ._open import Opening
from ._pending_operation import finish

__all__ = ["AsyncSpooledTemporaryFile", "AsyncTemporaryDirectory"]

_T = TypeVar("_T")


def _method(name: str, kind: type[_T]) -> Callable[..., Coroutine[Any, Any, _T]]:
    """Makes a coroutine method that calls the method of this name: of the object in memory, or of the
    file."""

    async def call(self: AsyncSpooledTemporaryFile, *args: Any) -> _T:
        result: _T = await self._call(name, *args)
        return result

    call.__name__, call.__doc__ = name, "As the file's."
    return call


class AsyncSpooledTemporaryFile:
    """Like ``tempfile.SpooledTemporaryFile``, with coroutines. Made by :func:`SpooledTemporaryFile`."""

    def __init__(
        self, max_size: int, roll: Callable[[], Opening[Any]], memory: Any, mode: str
    ) -> None:
        self._max_size = max_size
        self._roll = roll
        self._mode = mode
        self._memory = memory
        self._file: Any = None
        self._rolling = asyncio.Lock()

    # The mode of the file, which is known only at run time, decides between bytes and text.
    read: Callable[..., Coroutine[Any, Any, Any]] = _method("read", object)
    readline: Callable[..., Coroutine[Any, Any, Any]] = _method("readline", object)
    readlines: Callable[..., Coroutine[Any, Any, list[Any]]] = _method("readlines", list)
    write: Callable[..., Coroutine[Any, Any, int]] = _method("write", int)
    writelines: Callable[..., Coroutine[Any, Any, None]] = _method("writelines", type(None))
    seek: Callable[..., Coroutine[Any, Any, int]] = _method("seek", int)
    tell: Callable[..., Coroutine[Any, Any, int]] = _method("tell", int)
    truncate: Callable[..., Coroutine[Any, Any, int]] = _method("truncate", int)
    flush: Callable[..., Coroutine[Any, Any, None]] = _method("flush", type(None))
    isatty: Callable[..., Coroutine[Any, Any, bool]] = _method("isatty", bool)

    @property
    def closed(self) -> bool:
        """True once the file is closed."""
        return bool((self._file or self._memory).closed)

    @property
    def encoding(self) -> str:
        """The encoding; ``AttributeError`` for binary files."""
        encoding: str = (self._file or self._memory).encoding
        return encoding

    @property
    def newlines(self) -> Any:
        """The line ends met so far; ``AttributeError`` for binary files."""
        return (self._file or self._memory).newlines

    @property
    def mode(self) -> str:
        """The mode."""
        return self._file.mode if self._file is not None else self._mode

    @property
    def name(self) -> Any:
        """The path or descriptor of the file; ``None`` while the content is in memory."""
        return None if self._file is None else self._file.name

    async def fileno(self) -> int:
        """Return the descriptor. If the file is still in memory, it moves to disk first."""
        await self.rollover()
        number: int = self._file.fileno()
        return number

    async def rollover(self) -> None:
        """Move from memory to a file.

        Raises:
            OSError: the file could not be made or written; everything is still in memory.
        """
        async with self._rolling:
            if self._file is not None:
                return
            position = self._memory.tell()
            file = await self._roll()
            try:
                await file.pwrite(self._bytes().getvalue(), 0)
                await file.seek(position)
            except BaseException:
                await file.close()
                raise
            self._file = file
            self._bytes().close()

    def _bytes(self) -> io.BytesIO:
        content: io.BytesIO = getattr(self._memory, "buffer", self._memory)
        return content

    async def _call(self, name: str, *args: Any) -> Any:
        if self._rolling.locked():
            async with self._rolling:
                pass
        if self._file is not None:
            return await getattr(self._file, name)(*args)
        result = getattr(self._memory, name)(*args)
        if self._max_size and name in ("write", "writelines", "truncate"):
            self._memory.flush()
            size = len(self._bytes().getbuffer()) if name == "truncate" else 0
            if max(size, self._bytes().tell()) > self._max_size:
                await self.rollover()
        return result

    async def close(self) -> None:
        """Close and forget everything."""
        if self._file is not None:
            await self._file.close()
        else:
            self._memory.close()

    def __aiter__(self) -> AsyncSpooledTemporaryFile:
        return self

    async def __anext__(self) -> Any:
        if line := await self.readline():
            return line
        raise StopAsyncIteration


class AsyncTemporaryDirectory:
    """Like ``tempfile.TemporaryDirectory``, with coroutines. Made by :func:`TemporaryDirectory`."""

    def __init__(self, directory: tempfile.TemporaryDirectory[str], files: Files) -> None:
        self._directory = directory
        self._files = files

    @property
    def name(self) -> str:
        """The path."""
        return self._directory.name

    async def cleanup(self) -> None:
        """Remove the directory with everything in it."""
        await finish(self._files.call(self._directory.cleanup))

    async def close(self) -> None:
        """Remove the directory, as :meth:`cleanup` does."""
        await self.cleanup()
