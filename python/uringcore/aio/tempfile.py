"""Temporary files and directories, with the names of ``aiofiles.tempfile``.

The standard library creates them, and removes directories, in a thread: it also chooses the folder and an
unused name. The file objects are those of :func:`uringcore.aio.open`.
"""

from __future__ import annotations

import io
import os
import tempfile
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

from ._file_backends import Loop, Pool, files_of
from ._open import AnyFile, Opening, check, open  # noqa: A004 - that of files here
from ._pending_operation import finish
from ._spooled_file_and_directory import AsyncSpooledTemporaryFile, AsyncTemporaryDirectory
from .os import unlink

__all__ = ["NamedTemporaryFile", "SpooledTemporaryFile", "TemporaryDirectory", "TemporaryFile"]


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
    """Create a file without a name, which disappears when it is closed, as ``tempfile.TemporaryFile``
    does."""

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
    """Create a file with a name, as ``tempfile.NamedTemporaryFile`` of CPython 3.12.

    Args:
        delete: False to keep the file.
        delete_on_close: True to remove it when it is closed; False to remove it when the
            ``async with`` block ends, or when the file is garbage-collected.
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
                        # The program may have removed or renamed the file.
                        return
                    except RuntimeError:
                        # The executor was shut down and accepts no more calls.
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
    """Create a file in memory that moves to disk above ``max_size`` bytes or when ``fileno`` is called."""

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


def TemporaryDirectory(
    suffix: str | None = None,
    prefix: str | None = None,
    dir: str | None = None,
    loop: Loop = None,
    executor: Pool = None,
) -> Opening[Any]:
    """Create a directory that is removed with its content at the end of ``async with``, which yields its
    name."""

    async def make() -> AsyncTemporaryDirectory:
        files = files_of(loop, executor)
        made = files.call(tempfile.TemporaryDirectory, suffix, prefix, dir)
        return AsyncTemporaryDirectory(await finish(made), files)

    return Opening(make(), lambda directory: directory.name)


def _discard(made: tuple[int, str]) -> None:
    os.close(made[0])
    _unlink_if_there(made[1])


def _unlink_if_there(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
