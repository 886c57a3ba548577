"""Temporary files and directories, named as ``aiofiles.tempfile`` has them.

The standard library makes them, and removes directories, in a thread: it knows where they may be and
which names are free. The files are then those of :func:`uringcore.aio.open`.
"""

from __future__ import annotations

import asyncio
import io
import os
import tempfile
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ._files import Files, Loop, Pool, files_of
from ._open import AnyFile, Opening, check, open  # noqa: A004 - that of files here
from ._operation import finish
from .os import unlink

__all__ = ["NamedTemporaryFile", "SpooledTemporaryFile", "TemporaryDirectory", "TemporaryFile"]

T = TypeVar("T")


def TemporaryFile(
    mode: str = "w+b",
    buffering: int = -1,
    encoding: str | None = None,
    newline: str | None = None,
    suffix: str | None = None,
    prefix: str | None = None,
    dir: str | None = None,
    loop: Loop = None,
    executor: Pool = None,
) -> Opening[Any]:
    """A file without a name that is gone when it is closed; as ``tempfile.TemporaryFile``."""

    def make_unnamed() -> int:
        with tempfile.TemporaryFile(buffering=0, suffix=suffix, prefix=prefix, dir=dir) as file:
            return os.dup(file.fileno())

    async def make() -> Any:
        check("", mode, buffering, encoding, None, newline)
        fd = await finish(files_of(loop, executor).call(make_unnamed), os.close)
        where: Any = {"loop": loop, "executor": executor}
        return await open(fd, mode, buffering, encoding, None, newline, **where)

    return Opening(make())


def NamedTemporaryFile(
    mode: str = "w+b",
    buffering: int = -1,
    encoding: str | None = None,
    newline: str | None = None,
    suffix: str | None = None,
    prefix: str | None = None,
    dir: str | None = None,
    delete: bool = True,
    delete_on_close: bool = True,
    loop: Loop = None,
    executor: Pool = None,
) -> Opening[Any]:
    """A file with a name; as ``tempfile.NamedTemporaryFile`` of CPython 3.12.

    Args:
        delete: False to keep the file.
        delete_on_close: True to remove it when it is closed; False to remove it when the
            ``async with`` is left, or when the file is forgotten.
    """
    at_exit: list[Callable[[], Coroutine[Any, Any, None]]] = []

    async def make() -> AnyFile:
        check("", mode, buffering, encoding, None, newline)
        call = files_of(loop, executor).call(tempfile.mkstemp, suffix, prefix, dir)
        fd, path = await finish(call, _discard)
        where: Any = {"loop": loop, "executor": executor}
        file: AnyFile = await open(fd, mode, buffering, encoding, None, newline, **where)
        below = file._below()
        below._name = path
        if delete:
            removal = weakref.finalize(below, _unlink_if_there, path)

            async def remove() -> None:
                if removal.detach() is not None:
                    try:
                        await unlink(path, **where)
                    except FileNotFoundError:
                        # Its user may remove or rename it.
                        return
                    except RuntimeError:
                        # The executor takes no more calls.
                        _unlink_if_there(path)

            if delete_on_close:
                below._after_close = remove
            else:
                at_exit.append(remove)
        return file

    return Opening(make(), at_exit=at_exit)


def SpooledTemporaryFile(
    max_size: int = 0,
    mode: str = "w+b",
    buffering: int = -1,
    encoding: str | None = None,
    newline: str | None = None,
    suffix: str | None = None,
    prefix: str | None = None,
    dir: str | None = None,
    loop: Loop = None,
    executor: Pool = None,
) -> Opening[AsyncSpooledTemporaryFile]:
    """A file in memory until it has more than ``max_size`` bytes or ``fileno`` is asked for."""

    def roll() -> Opening[Any]:
        return TemporaryFile(
            mode, buffering, encoding, newline, suffix, prefix, dir, loop, executor
        )

    async def make() -> AsyncSpooledTemporaryFile:
        check("", mode, buffering, encoding, None, newline)
        memory: Any = io.BytesIO()
        if "b" not in mode:
            memory = io.TextIOWrapper(memory, encoding, newline=newline)
        return AsyncSpooledTemporaryFile(max_size, roll, memory, mode)

    return Opening(make())


def _method(name: str, kind: type[T]) -> Callable[..., Coroutine[Any, Any, T]]:
    """The method of this name of a spooled file: that of the object in memory, or of the file."""

    async def call(self: AsyncSpooledTemporaryFile, *args: Any) -> T:
        result: T = await self._call(name, *args)
        return result

    call.__name__, call.__doc__ = name, "As the file's."
    return call


class AsyncSpooledTemporaryFile:
    """As ``tempfile.SpooledTemporaryFile``, with coroutines. Made by :func:`SpooledTemporaryFile`."""

    def __init__(
        self, max_size: int, roll: Callable[[], Opening[Any]], memory: Any, mode: str
    ) -> None:
        self._max_size = max_size
        self._roll = roll
        self._mode = mode
        self._memory = memory
        self._file: Any = None
        self._rolling = asyncio.Lock()

    # The mode decides at run time whether these are bytes or text.
    read: Callable[..., Coroutine[Any, Any, Any]] = _method("read", object)
    readline: Callable[..., Coroutine[Any, Any, Any]] = _method("readline", object)
    readlines: Callable[..., Coroutine[Any, Any, list[Any]]] = _method("readlines", list)
    write = _method("write", int)
    writelines = _method("writelines", type(None))
    seek = _method("seek", int)
    tell = _method("tell", int)
    truncate = _method("truncate", int)
    flush = _method("flush", type(None))
    isatty = _method("isatty", bool)

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
        """The file's, once it is one; ``None`` in memory."""
        return None if self._file is None else self._file.name

    async def fileno(self) -> int:
        """The descriptor. From this call on there is one."""
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


def TemporaryDirectory(
    suffix: str | None = None,
    prefix: str | None = None,
    dir: str | None = None,
    loop: Loop = None,
    executor: Pool = None,
) -> Opening[Any]:
    """A directory that is removed with what is in it; ``async with ... as`` gives its name."""

    async def make() -> AsyncTemporaryDirectory:
        files = files_of(loop, executor)
        made = files.call(tempfile.TemporaryDirectory, suffix, prefix, dir)
        return AsyncTemporaryDirectory(await finish(made), files)

    return Opening(make(), lambda directory: directory.name)


class AsyncTemporaryDirectory:
    """As ``tempfile.TemporaryDirectory``, with coroutines. Made by :func:`TemporaryDirectory`."""

    def __init__(self, directory: tempfile.TemporaryDirectory[str], files: Files) -> None:
        self._directory = directory
        self._files = files

    @property
    def name(self) -> str:
        """The path."""
        return self._directory.name

    async def cleanup(self) -> None:
        """Remove the directory with all that is in it."""
        await finish(self._files.call(self._directory.cleanup))

    async def close(self) -> None:
        """As :meth:`cleanup`."""
        await self.cleanup()


def _discard(made: tuple[int, str]) -> None:
    os.close(made[0])
    _unlink_if_there(made[1])


def _unlink_if_there(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
