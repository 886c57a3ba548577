"""``open``: from a path and a mode to a file object.

Arguments have the meaning of the built-in ``open``, which also raises the errors for invalid ones.
``_raw_file``, ``_buffered_file`` and ``_text_file`` implement the objects, and ``_file_backends`` opens
descriptors.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import stat
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeVar, cast, overload

from .. import _uringcore
from ._buffered_file import AsyncBufferedIOBase, AsyncBufferedReader
from ._file_backends import Files, Loop, Opened, Pool, files_of
from ._pending_operation import finish
from ._raw_file import AsyncFileIO
from ._text_file import AsyncTextIOWrapper

if TYPE_CHECKING:
    from _typeshed import (
        OpenBinaryMode,
        OpenBinaryModeReading,
        OpenBinaryModeUpdating,
        OpenBinaryModeWriting,
        OpenTextMode,
    )

__all__ = ["AnyFile", "Opening", "check", "make_file", "open"]

T = TypeVar("T")

AnyFile = AsyncTextIOWrapper | AsyncBufferedIOBase | AsyncFileIO
AnyPath = int | str | bytes | os.PathLike[Any]
Opener = Callable[[Any, int], int]


class Opening(Generic[T], Awaitable[T], AbstractAsyncContextManager[T]):
    """The result of ``open``, as ``aiofiles.base.AiofilesContextManager``: ``await`` returns the object, and
    ``async with`` closes it at the end.

    Args:
        making: the coroutine that makes the object.
        shown: maps the object to the target of ``async with ... as``; ``None`` is the object itself.
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
            for call in self._at_exit:
                await call()


@overload
def open(  # noqa: A001
    file: AnyPath,
    mode: OpenTextMode = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Opener | None = None,
    *,
    loop: Loop = None,
    executor: Pool = None,
) -> Opening[AsyncTextIOWrapper]: ...
# The overload for `buffering=0`, with which `open` returns another type.
@overload
def open(  # type: ignore[overload-overlap]  # noqa: A001
    file: AnyPath,
    mode: OpenBinaryMode,
    buffering: Literal[0],
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Opener | None = None,
    *,
    loop: Loop = None,
    executor: Pool = None,
) -> Opening[AsyncFileIO]: ...
@overload
def open(  # noqa: A001
    file: AnyPath,
    mode: OpenBinaryModeUpdating | OpenBinaryModeReading,
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Opener | None = None,
    *,
    loop: Loop = None,
    executor: Pool = None,
) -> Opening[AsyncBufferedReader]: ...
@overload
def open(  # noqa: A001
    file: AnyPath,
    mode: OpenBinaryModeWriting,
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Opener | None = None,
    *,
    loop: Loop = None,
    executor: Pool = None,
) -> Opening[AsyncBufferedIOBase]: ...
@overload
def open(  # noqa: A001
    file: AnyPath,
    mode: str,
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Opener | None = None,
    *,
    loop: Loop = None,
    executor: Pool = None,
) -> Opening[Any]: ...
def open(  # noqa: A001 - the name is the point
    file: AnyPath,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Opener | None = None,
    *,
    loop: Loop = None,
    executor: Pool = None,
) -> Opening[Any]:
    """Open a file, as the built-in ``open``: ``async with open(...) as f`` or ``await open(...)``.

    Args:
        file: a path, or a descriptor.
        mode: ``r``, ``w``, ``a`` or ``x``, with ``b`` or ``t`` and ``+``.
        buffering: 0 for none (binary only), 1 for lines (text only), else the size in bytes; -1 for an
            adaptive size.
        encoding: for text; ``None`` is the locale's.
        errors: for text, how errors of the encoding are handled.
        newline: for text, as in the built-in.
        closefd: False to leave a given descriptor open after the close.
        opener: called with path and flags in a thread; returns a descriptor.
        loop: the loop whose coroutines use the file; ``None`` is the running one.
        executor: for calls that need a thread; ``None`` is the loop's own. On the ring these are few
            (see :mod:`uringcore.aio`), elsewhere all calls that may wait.

    Returns:
        An object to await or to enter. It yields an :class:`AsyncTextIOWrapper`, an
        :class:`AsyncBufferedReader` (read, or read and written), an :class:`AsyncBufferedIOBase`
        (written only) or an :class:`AsyncFileIO` (no buffer).

    Raises:
        OSError: opening failed (``FileNotFoundError``, ``IsADirectoryError``...), with ``filename``.
        ValueError: the mode, or a combination of arguments, is invalid.
        TypeError: an argument has a wrong type.
        LookupError: the encoding is unknown.
    """
    text = (encoding, errors, newline)

    async def make() -> AnyFile:
        is_number = isinstance(file, int)
        # The built-in `open` calls its opener only for paths. So a descriptor is passed as a path that names
        # it.
        path: Any = f"/dev/fd/{file!r}" if is_number else file
        flags = check(path, mode, buffering, *text, closefd or is_number)
        name: Any = file if is_number else os.fspath(path)
        files = files_of(loop, executor)
        opened = await _open(files, name, flags, opener)
        if stat.S_ISDIR(opened.mode):
            if not is_number:
                os.close(opened.fd)
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        has_position = _has_position(opened.fd)
        if "+" in mode and buffering != 0 and not has_position:
            if closefd:
                os.close(opened.fd)
            raise io.UnsupportedOperation("File or stream is not seekable.")
        if "a" in mode and has_position:
            os.lseek(opened.fd, 0, os.SEEK_END)
        return make_file(files, opened, name, mode, buffering, *text, closefd)

    return Opening(make())


async def _open(files: Files, file: int | str | bytes, flags: int, opener: Opener | None) -> Opened:
    if isinstance(file, int):
        if file < 0:
            raise ValueError("negative file descriptor")
        return Opened(file, _uringcore.file_describe(file)[0])
    if opener is None:
        return await files.open(file, flags, 0o666)
    fd = await finish(files.call(opener, file, flags), os.close)
    if not isinstance(fd, int):
        raise TypeError("expected integer from opener")
    if fd < 0:
        raise ValueError(f"opener returned {fd}")
    os.set_inheritable(fd, False)
    return Opened(fd, _uringcore.file_describe(fd)[0])


class _WouldOpenError(Exception):
    """Raised to leave a call of the built-in ``open`` that has accepted its arguments, before it opens the
    file."""


def check(
    file: Any,
    mode: str,
    buffering: int,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
    closefd: bool = True,
) -> int:
    """Check the arguments of ``open`` by the standard library before anything is opened or created.

    Returns:
        The flags for ``os.open``.

    Raises:
        As :func:`open` for its arguments.
    """

    def stop(path: Any, flags: int) -> NoReturn:
        raise _WouldOpenError(flags)

    flags = 0
    try:
        builtins.open(file, mode, buffering, encoding, errors, newline, closefd, stop)  # noqa: SIM115
    except _WouldOpenError as found:
        flags = found.args[0]
    if "b" not in mode:
        if buffering == 0:
            raise ValueError("can't have unbuffered text I/O")
        io.TextIOWrapper(io.BytesIO(), encoding, errors, newline)
    return flags


def make_file(
    files: Files,
    opened: Opened,
    name: Any,
    mode: str,
    buffering: int,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
    closefd: bool = True,
) -> AnyFile:
    """Make the object that ``open`` returns for an open descriptor; the arguments are those of ``open``."""
    raw_mode = _raw_mode(mode)
    if "b" in mode and buffering == 0:
        return AsyncFileIO(files, opened, name, raw_mode, closefd)
    kind = AsyncBufferedReader if "r" in mode or "+" in mode else AsyncBufferedIOBase
    size = buffering if buffering > 1 else None
    buffered = kind(files, opened, name, raw_mode, closefd, size)
    if "b" in mode:
        return buffered
    is_terminal = buffering < 0 and stat.S_ISCHR(opened.mode) and os.isatty(opened.fd)
    lines = buffering == 1 or is_terminal
    return AsyncTextIOWrapper(buffered, encoding, errors, newline, lines, mode=mode)


def _raw_mode(mode: str) -> str:
    """Returns the mode in the spelling of ``io.FileIO.mode``."""
    action = next(letter for letter in mode if letter in "rwax")
    if "+" not in mode:
        return f"{action}b"
    # Before CPython 3.15 `io.FileIO.mode` spells "wb+" as "rb+".
    if action == "w" and sys.version_info < (3, 15):
        action = "r"
    return f"{action}b+"


def _has_position(fd: int) -> bool:
    try:
        os.lseek(fd, 0, os.SEEK_CUR)
    except OSError:
        return False
    return True
