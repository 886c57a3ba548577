"""``open``: from a path and a mode to a file object.

Arguments mean what they mean to the built-in ``open``, and are refused with its words. Not here: the
objects (``_raw``, ``_buffered``, ``_text``), how a descriptor is opened (``_files``).
"""

from __future__ import annotations

import asyncio
import errno
import io
import os
import stat
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Literal, NamedTuple, overload

from .. import _uringcore
from ._buffered import AsyncBufferedIOBase, AsyncBufferedReader
from ._context import Opening
from ._descriptor import Source
from ._files import Files, Opened, files_of
from ._operation import finish
from ._raw import AsyncFileIO
from ._text import AsyncTextIOWrapper

__all__ = ["AnyFile", "Mode", "open", "stack"]

AnyFile = AsyncTextIOWrapper | AsyncBufferedIOBase | AsyncFileIO

# Every spelling of a mode, by what it opens.
_Text = Literal[
    "r",
    "r+",
    "+r",
    "rt",
    "tr",
    "rt+",
    "r+t",
    "+rt",
    "tr+",
    "t+r",
    "+tr",
    "w",
    "w+",
    "+w",
    "wt",
    "tw",
    "wt+",
    "w+t",
    "+wt",
    "tw+",
    "t+w",
    "+tw",
    "a",
    "a+",
    "+a",
    "at",
    "ta",
    "at+",
    "a+t",
    "+at",
    "ta+",
    "t+a",
    "+ta",
    "x",
    "x+",
    "+x",
    "xt",
    "tx",
    "xt+",
    "x+t",
    "+xt",
    "tx+",
    "t+x",
    "+tx",
]
_Reading = Literal[
    "rb",
    "br",
    "rb+",
    "r+b",
    "+rb",
    "br+",
    "b+r",
    "+br",
    "wb+",
    "w+b",
    "+wb",
    "bw+",
    "b+w",
    "+bw",
    "ab+",
    "a+b",
    "+ab",
    "ba+",
    "b+a",
    "+ba",
    "xb+",
    "x+b",
    "+xb",
    "bx+",
    "b+x",
    "+bx",
]
_Writing = Literal[
    "wb",
    "bw",
    "ab",
    "ba",
    "xb",
    "bx",
]


@overload
def open(  # noqa: A001
    file: int | str | bytes | os.PathLike[Any],
    mode: _Text = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Callable[[Any, int], int] | None = None,
    *,
    loop: asyncio.AbstractEventLoop | None = None,
    executor: Executor | None = None,
) -> Opening[AsyncTextIOWrapper]: ...
# 0 is an int like others, and gives another file.
@overload
def open(  # type: ignore[overload-overlap]  # noqa: A001
    file: int | str | bytes | os.PathLike[Any],
    mode: _Reading | _Writing,
    buffering: Literal[0],
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Callable[[Any, int], int] | None = None,
    *,
    loop: asyncio.AbstractEventLoop | None = None,
    executor: Executor | None = None,
) -> Opening[AsyncFileIO]: ...
@overload
def open(  # noqa: A001
    file: int | str | bytes | os.PathLike[Any],
    mode: _Reading,
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Callable[[Any, int], int] | None = None,
    *,
    loop: asyncio.AbstractEventLoop | None = None,
    executor: Executor | None = None,
) -> Opening[AsyncBufferedReader]: ...
@overload
def open(  # noqa: A001
    file: int | str | bytes | os.PathLike[Any],
    mode: _Writing,
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Callable[[Any, int], int] | None = None,
    *,
    loop: asyncio.AbstractEventLoop | None = None,
    executor: Executor | None = None,
) -> Opening[AsyncBufferedIOBase]: ...
@overload
def open(  # noqa: A001
    file: int | str | bytes | os.PathLike[Any],
    mode: str,
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Callable[[Any, int], int] | None = None,
    *,
    loop: asyncio.AbstractEventLoop | None = None,
    executor: Executor | None = None,
) -> Opening[Any]: ...
def open(  # noqa: A001 - the name is the point
    file: int | str | bytes | os.PathLike[Any],
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Callable[[Any, int], int] | None = None,
    *,
    loop: asyncio.AbstractEventLoop | None = None,
    executor: Executor | None = None,
) -> Opening[Any]:
    """Open a file, as the built-in ``open``: ``async with open(...) as f`` or ``await open(...)``.

    Args:
        file: a path, or a descriptor.
        mode: ``r``, ``w``, ``a`` or ``x``, with ``b`` or ``t`` and ``+``.
        buffering: 0 for none (binary only), 1 for lines (text only), else bytes; -1 to fit the
            buffer to what is done.
        encoding: for text; ``None`` is the locale's.
        errors: for text, how errors of the encoding are handled.
        newline: for text, as the built-in's.
        closefd: whether closing the file closes a descriptor that was given.
        opener: called with path and flags in a thread, returns a descriptor.
        loop: the loop whose coroutines use the file; the running one for ``None``.
        executor: where to make the calls that need a thread; the loop's own for ``None``. On the
            ring that is a few (see :mod:`uringcore.aio`), elsewhere all that may wait.

    Returns:
        An object to be awaited or entered. It gives an :class:`AsyncTextIOWrapper`, an
        :class:`AsyncBufferedReader` (read, or read and written), an :class:`AsyncBufferedIOBase`
        (written only) or an :class:`AsyncFileIO` (no buffer).

    Raises:
        OSError: opening failed (``FileNotFoundError``, ``IsADirectoryError``...), with ``filename``.
        ValueError: the mode, or a combination of arguments, makes no sense.
        TypeError: an argument is of a wrong type.
        LookupError: the encoding is not known.
    """
    return Opening(
        _open(file, mode, buffering, encoding, errors, newline, closefd, opener, loop, executor)
    )


class Mode(NamedTuple):
    """A mode taken apart."""

    action: str
    """One of ``r``, ``w``, ``a``, ``x``."""
    updating: bool
    binary: bool

    @classmethod
    def parse(cls, mode: Any) -> Mode:
        """Take a mode apart.

        Raises:
            TypeError: it is not a string.
            ValueError: it is not a mode.
        """
        if not isinstance(mode, str):
            raise TypeError(f"open() argument 'mode' must be str, not {type(mode).__name__}")
        letters = set(mode)
        if letters - set("axrwb+t") or len(mode) > len(letters):
            raise ValueError(f"invalid mode: {mode!r}")
        if "t" in letters and "b" in letters:
            raise ValueError("can't have text and binary mode at once")
        actions = letters & set("axrw")
        if not actions:
            raise ValueError(
                "Must have exactly one of create/read/write/append mode and at most one plus"
            )
        if len(actions) != 1:
            raise ValueError("must have exactly one of create/read/write/append mode")
        return cls(actions.pop(), "+" in letters, "b" in letters)

    @property
    def flags(self) -> int:
        """As ``os.open`` takes them."""
        access = os.O_RDONLY if self.action == "r" else os.O_WRONLY
        if self.updating:
            access = os.O_RDWR
        return access | os.O_CLOEXEC | _ACTION_FLAGS[self.action]

    @property
    def raw(self) -> str:
        """As ``io.FileIO.mode`` shows it."""
        if self.action in "ax":
            return f"{self.action}b{'+' if self.updating else ''}"
        if self.updating:
            return "wb+" if self.action == "w" and _FILE_IO_TELLS_WRITING else "rb+"
        return f"{self.action}b"


async def _open(
    file: Any,
    mode: str,
    buffering: Any,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
    closefd: bool,
    opener: Callable[[Any, int], int] | None,
    loop: asyncio.AbstractEventLoop | None,
    executor: Executor | None,
) -> AnyFile:
    parsed = Mode.parse(mode)
    if not isinstance(file, int):
        file = os.fspath(file)
    if not isinstance(buffering, int):
        kind = type(buffering).__name__
        raise TypeError(f"{kind!r} object cannot be interpreted as an integer")
    if parsed.binary:
        for name, value in (("encoding", encoding), ("errors", errors), ("newline", newline)):
            if value is not None:
                takes = "a newline" if name == "newline" else f"an {name}"
                raise ValueError(f"binary mode doesn't take {takes} argument")
        if buffering == 1:
            warnings.warn(
                "line buffering (buffering=1) isn't supported in binary mode, the default buffer "
                "size will be used",
                RuntimeWarning,
                stacklevel=3,
            )
    elif buffering == 0:
        raise ValueError("can't have unbuffered text I/O")
    else:
        # Before anything is opened or created: what is wrong with these is known already.
        io.TextIOWrapper(io.BytesIO(), encoding, errors, newline)
    files = files_of(loop, executor)
    source = await _open_source(files, file, parsed, closefd, opener)
    return stack(source, parsed, mode, buffering, encoding, errors, newline)


async def _open_source(
    files: Files,
    file: int | str | bytes,
    mode: Mode,
    closefd: bool = True,
    opener: Callable[[Any, int], int] | None = None,
) -> Source:
    """Open ``file``, or look at the descriptor that it is.

    Raises:
        OSError: with ``filename``.
        ValueError: a negative descriptor, ``closefd=False`` with a path, or what the opener gave.
    """
    if isinstance(file, int):
        if file < 0:
            raise ValueError("negative file descriptor")
        return _adopt(files, file, file, mode, closefd)
    if not closefd:
        raise ValueError("Cannot use closefd=False with file name")
    sys.audit("open", file, mode.raw, mode.flags)
    if opener is not None:
        fd = await finish(files.call(opener, file, mode.flags), os.close)
        if not isinstance(fd, int):
            raise TypeError("expected integer from opener")
        if fd < 0:
            raise ValueError(f"opener returned {fd}")
        os.set_inheritable(fd, False)
        return _adopt(files, fd, file, mode, True)
    opened = await files.open(file, mode.flags, 0o666)
    return _source(files, opened, file, mode, True)


def _adopt(files: Files, fd: int, name: Any, mode: Mode, closefd: bool) -> Source:
    st_mode, _, block_size, _ = _uringcore.file_describe(fd)
    return _source(files, Opened(fd, st_mode, block_size), name, mode, closefd)


def _source(files: Files, opened: Opened, name: Any, mode: Mode, closefd: bool) -> Source:
    fd = opened.fd
    try:
        if stat.S_ISDIR(opened.mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if mode.action == "a":
            try:
                os.lseek(fd, 0, os.SEEK_END)
            except OSError as error:
                if error.errno != errno.ESPIPE:
                    raise
    except BaseException:
        if closefd and not isinstance(name, int):
            os.close(fd)
        raise
    return Source(files, fd, name, mode.raw, closefd, opened.mode, opened.taken)


def stack(
    source: Source,
    parsed: Mode,
    mode: str,
    buffering: Any,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
) -> AnyFile:
    """The objects over an open descriptor that ``open`` would put there; arguments as its own."""
    if parsed.binary and buffering == 0:
        return AsyncFileIO(source)
    lines = buffering == 1
    if buffering < 0 and stat.S_ISCHR(source.st_mode) and os.isatty(source.fd):
        lines = True
    size = buffering if buffering > 1 else None
    if parsed.updating and not _has_position(source.fd):
        if source.closefd:
            os.close(source.fd)
        raise io.UnsupportedOperation("File or stream is not seekable.")
    reads = parsed.updating or parsed.action == "r"
    buffered = (AsyncBufferedReader if reads else AsyncBufferedIOBase)(source, size)
    if parsed.binary:
        return buffered
    return AsyncTextIOWrapper(buffered, encoding, errors, newline, lines, mode=mode)


def _has_position(fd: int) -> bool:
    try:
        os.lseek(fd, 0, os.SEEK_CUR)
    except OSError:
        return False
    return True


# `io.FileIO(..., "wb+").mode` is "rb+" until CPython 3.14.
_FILE_IO_TELLS_WRITING = sys.version_info >= (3, 15)
_ACTION_FLAGS = {
    "r": 0,
    "w": os.O_CREAT | os.O_TRUNC,
    "a": os.O_CREAT | os.O_APPEND,
    "x": os.O_CREAT | os.O_EXCL,
}
