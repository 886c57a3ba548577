"""Functions of :mod:`os` as coroutines, with the names of ``aiofiles.os``.

Arguments, results and errors are those of the :mod:`os` function; each also accepts ``loop``
(``None`` is the running one) and ``executor``. On the ring ``stat``, ``lstat``, ``rename``,
``replace``, ``unlink``, ``remove``, ``mkdir``, ``rmdir``, ``symlink`` and ``link`` are kernel
operations. The executor runs ``makedirs``, ``removedirs`` and ``renames``, which take many
steps, and functions for which io_uring has no operation: ``access``, ``listdir``, ``readlink``,
``scandir``, ``sendfile`` and ``statvfs``. Elsewhere it runs all of them.

A cancelled call may have taken effect or not.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar, cast

from .. import _uringcore
from . import ospath as path
from ._file_backends import AnyPath, Loop, Pool, RingFiles, at_directory, files_of
from ._pending_operation import Operation, finish
from .ospath import Fd, lstat, stat

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

_P = ParamSpec("_P")
_T = TypeVar("_T")

_AT_REMOVEDIR = 0x200
_AT_SYMLINK_FOLLOW = 0x400


def wrap(function: Callable[_P, _T]) -> Callable[..., Coroutine[Any, Any, _T]]:
    """A blocking function as a coroutine that calls it in a thread, as ``aiofiles.os.wrap``.

    The coroutine function takes ``loop`` and ``executor`` besides the function's own arguments.
    """

    @functools.wraps(function)
    async def run(*args: Any, loop: Loop = None, executor: Pool = None, **kwargs: Any) -> _T:
        return await finish(files_of(loop, executor).call(function, *args, **kwargs))

    return run


access: Callable[..., Coroutine[Any, Any, bool]] = wrap(os.access)
listdir: Callable[..., Coroutine[Any, Any, list[Any]]] = wrap(os.listdir)
readlink: Callable[..., Coroutine[Any, Any, Any]] = wrap(cast(Callable[..., Any], os.readlink))
scandir: Callable[..., Coroutine[Any, Any, Any]] = wrap(os.scandir)
sendfile: Callable[..., Coroutine[Any, Any, int]] = wrap(os.sendfile)
statvfs: Callable[..., Coroutine[Any, Any, os.statvfs_result]] = wrap(os.statvfs)


async def getcwd(*, loop: Loop = None, executor: Pool = None) -> str:
    """``os.getcwd``, which never waits."""
    return os.getcwd()


async def _change(
    function: Callable[..., None],
    arguments: tuple[Any, ...],
    directories: dict[str, Fd],
    start: Callable[..., Operation[Any]],
    loop: Loop,
    executor: Pool,
    **options: Any,
) -> None:
    """Call a function of ``os`` in a thread, or ``start`` its operation on the ring.

    Args:
        function: its name is that of the audit event that the operation raises as well.
        arguments: its positional arguments: one or two paths, and the event's further arguments.
        directories: its ``dir_fd`` arguments.
        start: makes the operation from a ring's loop, the paths, and the descriptors.
        options: other keyword arguments for the function.
    """
    files = files_of(loop, executor)
    if not isinstance(files, RingFiles):
        await finish(files.call(function, *arguments, **directories, **options))
        return
    event = "remove" if function is os.unlink else function.__name__
    fds = directories.values()
    sys.audit(f"os.{event}", *arguments, *(-1 if fd is None else fd for fd in fds))
    await finish(start(files.loop, *map(at_directory, fds)))


async def unlink(
    path: AnyPath, *, dir_fd: Fd = None, loop: Loop = None, executor: Pool = None
) -> None:
    """``os.unlink``; ``os.remove`` is an alias."""

    def start(ring: Any, directory: int) -> Any:
        return _uringcore.file_unlink(ring, os.fsencode(path), directory, 0, (path,))

    await _change(os.unlink, (path,), {"dir_fd": dir_fd}, start, loop, executor)


remove = unlink


async def rmdir(
    path: AnyPath, *, dir_fd: Fd = None, loop: Loop = None, executor: Pool = None
) -> None:
    """``os.rmdir``."""

    def start(ring: Any, directory: int) -> Any:
        return _uringcore.file_unlink(ring, os.fsencode(path), directory, _AT_REMOVEDIR, (path,))

    await _change(os.rmdir, (path,), {"dir_fd": dir_fd}, start, loop, executor)


async def removedirs(name: AnyPath, *, loop: Loop = None, executor: Pool = None) -> None:
    """``os.removedirs``."""
    await finish(files_of(loop, executor).call(os.removedirs, name))


async def rename(
    src: AnyPath,
    dst: AnyPath,
    *,
    src_dir_fd: Fd = None,
    dst_dir_fd: Fd = None,
    loop: Loop = None,
    executor: Pool = None,
) -> None:
    """``os.rename``, and ``os.replace``, which is equivalent on Linux."""

    def start(ring: Any, source_fd: int, target_fd: int) -> Any:
        source, target = os.fsencode(src), os.fsencode(dst)
        return _uringcore.file_rename(ring, source, source_fd, target, target_fd, (src, dst))

    directories = {"src_dir_fd": src_dir_fd, "dst_dir_fd": dst_dir_fd}
    await _change(os.rename, (src, dst), directories, start, loop, executor)


replace = rename


async def renames(old: AnyPath, new: AnyPath, *, loop: Loop = None, executor: Pool = None) -> None:
    """``os.renames``."""
    await finish(files_of(loop, executor).call(os.renames, old, new))


async def mkdir(
    path: AnyPath,
    mode: int = 0o777,
    *,
    dir_fd: Fd = None,
    loop: Loop = None,
    executor: Pool = None,
) -> None:
    """``os.mkdir``."""

    def start(ring: Any, directory: int) -> Any:
        return _uringcore.file_mkdir(ring, os.fsencode(path), directory, mode, (path,))

    await _change(os.mkdir, (path, mode), {"dir_fd": dir_fd}, start, loop, executor)


async def makedirs(
    name: AnyPath,
    mode: int = 0o777,
    exist_ok: bool = False,
    *,
    parent_mode: int | None = None,
    loop: Loop = None,
    executor: Pool = None,
) -> None:
    """``os.makedirs`` of CPython 3.15: ``parent_mode`` is the mode of created parent folders."""
    await finish(files_of(loop, executor).call(_makedirs, name, mode, exist_ok, parent_mode))


def _makedirs(name: AnyPath, mode: int, exist_ok: bool, parent_mode: int | None) -> None:
    if parent_mode is not None:
        above, last = os.path.split(os.fspath(name))
        if not last:
            above = os.path.dirname(above)
        if above and not os.path.exists(above):
            _makedirs(above, parent_mode, True, parent_mode)
    os.makedirs(name, mode, exist_ok)


async def symlink(
    src: AnyPath,
    dst: AnyPath,
    target_is_directory: bool = False,
    *,
    dir_fd: Fd = None,
    loop: Loop = None,
    executor: Pool = None,
) -> None:
    """``os.symlink``."""

    def start(ring: Any, directory: int) -> Any:
        source, target = os.fsencode(src), os.fsencode(dst)
        return _uringcore.file_symlink(ring, source, target, directory, (src, dst))

    await _change(os.symlink, (src, dst), {"dir_fd": dir_fd}, start, loop, executor)


async def link(
    src: AnyPath,
    dst: AnyPath,
    *,
    src_dir_fd: Fd = None,
    dst_dir_fd: Fd = None,
    follow_symlinks: bool = True,
    loop: Loop = None,
    executor: Pool = None,
) -> None:
    """Creates a hard link, as ``os.link``."""
    # Before CPython 3.14 `os.link` without directories calls link(2), which does not follow links on Linux,
    # and ignores `follow_symlinks`.
    follows = sys.version_info >= (3, 14) or src_dir_fd is not None or dst_dir_fd is not None
    flags = _AT_SYMLINK_FOLLOW if follows and follow_symlinks else 0

    def start(ring: Any, source_fd: int, target_fd: int) -> Any:
        source, target = os.fsencode(src), os.fsencode(dst)
        return _uringcore.file_link(ring, source, source_fd, target, target_fd, flags, (src, dst))

    directories = {"src_dir_fd": src_dir_fd, "dst_dir_fd": dst_dir_fd}
    options = {"follow_symlinks": follow_symlinks}
    await _change(os.link, (src, dst), directories, start, loop, executor, **options)
