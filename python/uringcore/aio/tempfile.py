"""Temporary files and directories, named as ``aiofiles.tempfile`` has them.

The standard library makes them, and removes directories, in a thread: it knows where they may be and
which names are free. The files are then those of :func:`uringcore.aio.open`.
"""

from __future__ import annotations

import io
import os
import tempfile
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

from ._files import Loop, Pool, files_of
from ._open import AnyFile, Opening, check, open  # noqa: A004 - that of files here
from ._operation import finish
from ._temporary import AsyncSpooledTemporaryFile, AsyncTemporaryDirectory
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


def _discard(made: tuple[int, str]) -> None:
    os.close(made[0])
    _unlink_if_there(made[1])


def _unlink_if_there(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
