"""Temporary files and directories, named as ``aiofiles.tempfile`` has them.

Files are made by trying random names, each an ``open`` that fails if there is one already; a file
without a name is made without one where the file system can (``O_TMPFILE``). Directories are made
and removed in a thread, for io_uring cannot list them.
"""

from __future__ import annotations

import asyncio
import errno
import io
import os
import secrets
import tempfile
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Any

from ._context import Opening
from ._descriptor import Source
from ._files import Files, files_of
from ._open import AnyFile, Mode, stack
from ._operation import finish
from ._text import AsyncTextIOWrapper
from .os import unlink
from .ospath import abspath

__all__ = ["NamedTemporaryFile", "SpooledTemporaryFile", "TemporaryDirectory", "TemporaryFile"]

Loop = asyncio.AbstractEventLoop

_NAMES_TRIED_MAX = 10_000
# Where O_TMPFILE is not known, open() sees a directory that is to be written.
_NO_TMPFILE = frozenset((errno.EISDIR, errno.ENOENT, errno.EOPNOTSUPP, errno.EINVAL))


def TemporaryFile(
    mode: str = "w+b",
    buffering: int = -1,
    encoding: str | None = None,
    newline: str | None = None,
    suffix: str | None = None,
    prefix: str | None = None,
    dir: str | None = None,
    loop: Loop | None = None,
    executor: Executor | None = None,
) -> Opening[Any]:
    """A file without a name that is gone when it is closed; as ``tempfile.TemporaryFile``."""

    async def make() -> AnyFile:
        files = files_of(loop, executor)
        parsed = _check(mode, encoding, newline)
        fd, _ = await _open_unnamed(files, parsed, suffix, prefix, dir)
        return _file(files, fd, fd, parsed, mode, buffering, encoding, newline)

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
    loop: Loop | None = None,
    executor: Executor | None = None,
) -> Opening[Any]:
    """A file with a name; as ``tempfile.NamedTemporaryFile`` of CPython 3.12.

    Args:
        delete: whether it is removed at all.
        delete_on_close: whether that is when it is closed; if not, when the ``async with`` is left,
            or when the file is forgotten.
    """
    leave: list[Callable[[], Any]] = []

    async def make() -> AnyFile:
        files = files_of(loop, executor)
        parsed = _check(mode, encoding, newline)
        fd, path = await _open_named(files, parsed, suffix, prefix, dir)
        try:
            file = _file(files, fd, path, parsed, mode, buffering, encoding, newline)
        except BaseException:
            os.unlink(path)
            raise
        if delete:
            below = file.buffer if isinstance(file, AsyncTextIOWrapper) else file
            removal = weakref.finalize(below, _unlink_if_there, path)

            async def remove() -> None:
                if removal.detach() is not None:
                    try:
                        await unlink(path, loop=loop, executor=executor)
                    except FileNotFoundError:
                        # Removed or renamed by its user, who may.
                        return

            if delete_on_close:
                below._after_close = remove
            else:
                leave.append(remove)
        return file

    return _OpeningNamed(make(), leave)


class _OpeningNamed(Opening[Any]):
    """Removes what closing did not."""

    __slots__ = ("_leave",)

    def __init__(self, making: Any, leave: list[Callable[[], Any]]) -> None:
        super().__init__(making)
        self._leave = leave

    async def __aexit__(self, *exc_info: object) -> None:
        try:
            await super().__aexit__(*exc_info)
        finally:
            for remove in self._leave:
                await remove()


def SpooledTemporaryFile(
    max_size: int = 0,
    mode: str = "w+b",
    buffering: int = -1,
    encoding: str | None = None,
    newline: str | None = None,
    suffix: str | None = None,
    prefix: str | None = None,
    dir: str | None = None,
    loop: Loop | None = None,
    executor: Executor | None = None,
) -> Opening[AsyncSpooledTemporaryFile]:
    """A file in memory until it has more than ``max_size`` bytes or ``fileno`` is asked for."""

    async def make() -> AsyncSpooledTemporaryFile:
        return AsyncSpooledTemporaryFile(
            max_size,
            lambda: TemporaryFile(
                mode, buffering, encoding, newline, suffix, prefix, dir, loop, executor
            ),
            _check(mode, encoding, newline),
            mode,
            encoding,
            newline,
        )

    return Opening(make())


class AsyncSpooledTemporaryFile:
    """As ``tempfile.SpooledTemporaryFile``, with coroutines. Made by :func:`SpooledTemporaryFile`."""

    def __init__(
        self,
        max_size: int,
        roll: Callable[[], Opening[Any]],
        parsed: Mode,
        mode: str,
        encoding: str | None,
        newline: str | None,
    ) -> None:
        self._max_size = max_size
        self._roll = roll
        self._mode = mode
        self._bytes = io.BytesIO()
        self._memory: Any = self._bytes
        if not parsed.binary:
            self._memory = io.TextIOWrapper(self._bytes, encoding, newline=newline)
        self._file: Any = None
        self._rolling = asyncio.Lock()

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
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
        """The descriptor; from now on there is one."""
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
                below = file.buffer if isinstance(file, AsyncTextIOWrapper) else file
                await below.pwrite(self._bytes.getvalue(), 0)
                await file.seek(position)
            except BaseException:
                await file.close()
                raise
            self._file = file
            self._bytes.close()

    async def _call(self, name: str, *args: Any) -> Any:
        if self._rolling.locked():
            async with self._rolling:
                pass
        if self._file is not None:
            return await getattr(self._file, name)(*args)
        result = getattr(self._memory, name)(*args)
        if self._max_size and name in ("write", "writelines", "truncate"):
            self._memory.flush()
            if self._bytes.tell() > self._max_size or (
                name == "truncate" and len(self._bytes.getbuffer()) > self._max_size
            ):
                await self.rollover()
        return result

    async def read(self, *args: Any) -> Any:
        """As the file's."""
        return await self._call("read", *args)

    async def readline(self, *args: Any) -> Any:
        """As the file's."""
        return await self._call("readline", *args)

    async def readlines(self, *args: Any) -> Any:
        """As the file's."""
        return await self._call("readlines", *args)

    async def write(self, data: Any) -> int:
        """As the file's."""
        count: int = await self._call("write", data)
        return count

    async def writelines(self, lines: Iterable[Any]) -> None:
        """As the file's."""
        await self._call("writelines", lines)

    async def seek(self, *args: Any) -> int:
        """As the file's."""
        position: int = await self._call("seek", *args)
        return position

    async def tell(self) -> int:
        """As the file's."""
        position: int = await self._call("tell")
        return position

    async def truncate(self, *args: Any) -> int:
        """As the file's."""
        size: int = await self._call("truncate", *args)
        return size

    async def flush(self) -> None:
        """As the file's."""
        await self._call("flush")

    async def isatty(self) -> bool:
        """False."""
        return bool(await self._call("isatty"))

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
    loop: Loop | None = None,
    executor: Executor | None = None,
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


def _check(mode: str, encoding: str | None, newline: str | None) -> Mode:
    parsed = Mode.parse(mode)
    if not parsed.binary:
        io.TextIOWrapper(io.BytesIO(), encoding, newline=newline)
    elif encoding is not None or newline is not None:
        raise ValueError("binary mode doesn't take an encoding or a newline argument")
    return parsed


def _file(
    files: Files,
    fd: int,
    name: Any,
    parsed: Mode,
    mode: str,
    buffering: int,
    encoding: str | None,
    newline: str | None,
) -> AnyFile:
    try:
        source = Source(files, fd, name, parsed.raw, True, os.fstat(fd).st_mode)
        return stack(source, parsed, mode, buffering, encoding, None, newline)
    except BaseException:
        os.close(fd)
        raise


async def _folder(files: Files, dir: str | None) -> Any:
    if dir is None:
        # The first call looks for a place that can be written to.
        return await finish(files.call(tempfile.gettempdir))
    return await abspath(dir)


async def _open_unnamed(
    files: Files, parsed: Mode, suffix: str | None, prefix: str | None, dir: str | None
) -> tuple[int, None]:
    folder = await _folder(files, dir)
    try:
        opened = await files.open(folder, os.O_TMPFILE | os.O_EXCL | os.O_RDWR, 0o600)
    except OSError as error:
        if error.errno not in _NO_TMPFILE:
            raise
    else:
        return opened.fd, None
    fd, path = await _open_named(files, parsed, suffix, prefix, folder)
    try:
        await unlink(path, loop=files.loop)
    except BaseException:
        os.close(fd)
        raise
    return fd, None


async def _open_named(
    files: Files, parsed: Mode, suffix: str | None, prefix: str | None, dir: str | None
) -> tuple[int, str]:
    folder = await _folder(files, dir)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    if parsed.action == "a":
        flags |= os.O_APPEND
    for _ in range(_NAMES_TRIED_MAX):
        name = f"{prefix or tempfile.gettempprefix()}{secrets.token_hex(5)}{suffix or ''}"
        path = os.path.join(folder, name)
        try:
            return (await files.open(path, flags, 0o600)).fd, path
        except FileExistsError:
            continue
    raise FileExistsError(errno.EEXIST, "No usable temporary file name found")


def _unlink_if_there(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
