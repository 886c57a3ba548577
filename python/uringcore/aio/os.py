"""Functions of :mod:`os` as coroutines, named as ``aiofiles.os`` has them.

Arguments, results and errors are those of the function of the same name; each also takes ``loop``
(the running one for ``None``) and ``executor``. On the ring ``stat``, ``lstat``, ``rename``,
``replace``, ``unlink``, ``remove``, ``mkdir``, ``rmdir``, ``symlink`` and ``link`` are operations of
the kernel's, and so is every step of ``makedirs``, ``removedirs`` and ``renames``. What io_uring has
no operation for goes to the executor: ``access``, ``listdir``, ``readlink``, ``scandir``,
``sendfile``, ``statvfs``. Elsewhere all of them do.

A cancelled call may have been carried out or not.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, ParamSpec, TypeVar, cast

from .. import _uringcore
from . import ospath as path
from ._files import AT_FDCWD, RingFiles, files_of
from ._operation import finish
from .ospath import lstat, stat

__all__ = [
    "access",
    "getcwd",
    "link",
    "listdir",
    "lstat",
    "makedirs",
    "mkdir",
    "path",
    "readlink",
    "remove",
    "removedirs",
    "rename",
    "renames",
    "replace",
    "rmdir",
    "scandir",
    "sendfile",
    "stat",
    "statvfs",
    "symlink",
    "unlink",
    "wrap",
]

P = ParamSpec("P")
T = TypeVar("T")
Loop = asyncio.AbstractEventLoop
StrPath = str | os.PathLike[str]
AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]

_AT_REMOVEDIR = 0x200
_AT_SYMLINK_FOLLOW = 0x400


def wrap(function: Callable[P, T]) -> Callable[..., Coroutine[Any, Any, T]]:
    """A blocking function as a coroutine that calls it in a thread, as ``aiofiles.os.wrap``.

    The coroutine takes ``loop`` and ``executor`` besides the function's own arguments.
    """

    @functools.wraps(function)
    async def run(
        *args: Any, loop: Loop | None = None, executor: Executor | None = None, **kwargs: Any
    ) -> T:
        return await finish(files_of(loop, executor).call(function, *args, **kwargs))

    return run


access = wrap(os.access)
listdir = wrap(os.listdir)
readlink = wrap(cast(Callable[..., Any], os.readlink))
scandir = wrap(os.scandir)
sendfile = wrap(os.sendfile)
statvfs = wrap(os.statvfs)


async def getcwd(*, loop: Loop | None = None, executor: Executor | None = None) -> str:
    """``os.getcwd``, which asks nobody but the kernel and so never waits."""
    return os.getcwd()


async def unlink(
    path: AnyPath,
    *,
    dir_fd: int | None = None,
    loop: Loop | None = None,
    executor: Executor | None = None,
) -> None:
    """``os.unlink``."""
    files = files_of(loop, executor)
    if not isinstance(files, RingFiles):
        await finish(files.call(os.unlink, path, dir_fd=dir_fd))
        return
    sys.audit("os.remove", path, -1 if dir_fd is None else dir_fd)
    await finish(
        _uringcore.file_unlink(files.loop, os.fsencode(path), _directory(dir_fd), 0, (path,))
    )


async def remove(
    path: AnyPath,
    *,
    dir_fd: int | None = None,
    loop: Loop | None = None,
    executor: Executor | None = None,
) -> None:
    """``os.remove``."""
    await unlink(path, dir_fd=dir_fd, loop=loop, executor=executor)


async def rmdir(
    path: AnyPath,
    *,
    dir_fd: int | None = None,
    loop: Loop | None = None,
    executor: Executor | None = None,
) -> None:
    """``os.rmdir``."""
    files = files_of(loop, executor)
    if not isinstance(files, RingFiles):
        await finish(files.call(os.rmdir, path, dir_fd=dir_fd))
        return
    sys.audit("os.rmdir", path, -1 if dir_fd is None else dir_fd)
    name = os.fsencode(path)
    await finish(
        _uringcore.file_unlink(files.loop, name, _directory(dir_fd), _AT_REMOVEDIR, (path,))
    )


async def removedirs(
    name: StrPath, *, loop: Loop | None = None, executor: Executor | None = None
) -> None:
    """``os.removedirs``."""
    await rmdir(name, loop=loop, executor=executor)
    head, tail = os.path.split(os.fspath(name))
    if not tail:
        head, tail = os.path.split(head)
    while head and tail:
        try:
            await rmdir(head, loop=loop, executor=executor)
        except OSError:
            # Not empty, or not ours to remove: the parents stay as well.
            return
        head, tail = os.path.split(head)


async def rename(
    src: AnyPath,
    dst: AnyPath,
    *,
    src_dir_fd: int | None = None,
    dst_dir_fd: int | None = None,
    loop: Loop | None = None,
    executor: Executor | None = None,
) -> None:
    """``os.rename``."""
    files = files_of(loop, executor)
    if not isinstance(files, RingFiles):
        call = functools.partial(os.rename, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        await finish(files.call(call, src, dst))
        return
    source_dir, target_dir = _directory(src_dir_fd), _directory(dst_dir_fd)
    sys.audit("os.rename", src, dst, source_dir, target_dir)
    source, target = os.fsencode(src), os.fsencode(dst)
    await finish(
        _uringcore.file_rename(files.loop, source, source_dir, target, target_dir, (src, dst))
    )


async def replace(
    src: AnyPath,
    dst: AnyPath,
    *,
    src_dir_fd: int | None = None,
    dst_dir_fd: int | None = None,
    loop: Loop | None = None,
    executor: Executor | None = None,
) -> None:
    """``os.replace``."""
    await rename(
        src,
        dst,
        src_dir_fd=src_dir_fd,
        dst_dir_fd=dst_dir_fd,
        loop=loop,
        executor=executor,
    )


async def renames(
    old: StrPath, new: StrPath, *, loop: Loop | None = None, executor: Executor | None = None
) -> None:
    """``os.renames``."""
    head, tail = os.path.split(os.fspath(new))
    if head and tail and not await path.exists(head, loop=loop, executor=executor):
        await makedirs(head, loop=loop, executor=executor)
    await rename(old, new, loop=loop, executor=executor)
    head, tail = os.path.split(os.fspath(old))
    if head and tail:
        try:
            await removedirs(head, loop=loop, executor=executor)
        except OSError:
            # The old directory is still used.
            return


async def mkdir(
    path: AnyPath,
    mode: int = 0o777,
    *,
    dir_fd: int | None = None,
    loop: Loop | None = None,
    executor: Executor | None = None,
) -> None:
    """``os.mkdir``."""
    files = files_of(loop, executor)
    if not isinstance(files, RingFiles):
        await finish(files.call(os.mkdir, path, mode, dir_fd=dir_fd))
        return
    sys.audit("os.mkdir", path, mode, -1 if dir_fd is None else dir_fd)
    name = os.fsencode(path)
    await finish(_uringcore.file_mkdir(files.loop, name, _directory(dir_fd), mode, (path,)))


async def makedirs(
    name: str | os.PathLike[str],
    mode: int = 0o777,
    exist_ok: bool = False,
    *,
    parent_mode: int | None = None,
    loop: Loop | None = None,
    executor: Executor | None = None,
) -> None:
    """``os.makedirs`` of CPython 3.15: ``parent_mode`` is that of the folders above that it makes."""
    head, tail = os.path.split(os.fspath(name))
    if not tail:
        head, tail = os.path.split(head)
    if head and tail and not await path.exists(head, loop=loop, executor=executor):
        try:
            await makedirs(
                head,
                0o777 if parent_mode is None else parent_mode,
                exist_ok,
                parent_mode=parent_mode,
                loop=loop,
                executor=executor,
            )
        except FileExistsError:
            # Somebody else made it meanwhile.
            pass
        if tail == os.curdir:
            return
    try:
        await mkdir(name, mode, loop=loop, executor=executor)
    except OSError:
        if not exist_ok or not await path.isdir(name, loop=loop, executor=executor):
            raise


async def symlink(
    src: AnyPath,
    dst: AnyPath,
    target_is_directory: bool = False,
    *,
    dir_fd: int | None = None,
    loop: Loop | None = None,
    executor: Executor | None = None,
) -> None:
    """``os.symlink``."""
    files = files_of(loop, executor)
    if not isinstance(files, RingFiles):
        call = functools.partial(os.symlink, dir_fd=dir_fd)
        await finish(files.call(call, src, dst))
        return
    sys.audit("os.symlink", src, dst, -1 if dir_fd is None else dir_fd)
    source, target = os.fsencode(src), os.fsencode(dst)
    await finish(
        _uringcore.file_symlink(files.loop, source, target, _directory(dir_fd), (src, dst))
    )


async def link(
    src: AnyPath,
    dst: AnyPath,
    *,
    src_dir_fd: int | None = None,
    dst_dir_fd: int | None = None,
    follow_symlinks: bool = True,
    loop: Loop | None = None,
    executor: Executor | None = None,
) -> None:
    """``os.link``."""
    files = files_of(loop, executor)
    if not isinstance(files, RingFiles):
        call = functools.partial(
            os.link,
            src_dir_fd=src_dir_fd,
            dst_dir_fd=dst_dir_fd,
            follow_symlinks=follow_symlinks,
        )
        await finish(files.call(call, src, dst))
        return
    source_dir, target_dir = _directory(src_dir_fd), _directory(dst_dir_fd)
    sys.audit("os.link", src, dst, source_dir, target_dir)
    # Until CPython 3.13 `os.link` is link(2) without directories, and that does not follow on Linux
    # whatever it is told.
    told = sys.version_info >= (3, 14) or src_dir_fd is not None or dst_dir_fd is not None
    flags = _AT_SYMLINK_FOLLOW if told and follow_symlinks else 0
    source, target = os.fsencode(src), os.fsencode(dst)
    await finish(
        _uringcore.file_link(files.loop, source, source_dir, target, target_dir, flags, (src, dst))
    )


def _directory(dir_fd: int | None) -> int:
    return AT_FDCWD if dir_fd is None else dir_fd
