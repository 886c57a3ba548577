"""Functions of :mod:`os.path` as coroutines, with the names of ``aiofiles.ospath``, and ``stat``.

Each takes ``loop`` (``None`` is the running one) and ``executor`` besides its own arguments. On the
ring all of them use ``STATX`` operations, elsewhere calls in a thread.
"""

from __future__ import annotations

import os
import stat as _stat
from typing import Any

from .. import _uringcore
from ._file_backends import AT_EMPTY_PATH, Loop, PathOrFd, Pool, RingFiles, at_directory, files_of
from ._pending_operation import finish

__all__ = [
    "abspath",
    "exists",
    "getatime",
    "getctime",
    "getmtime",
    "getsize",
    "isdir",
    "isfile",
    "islink",
    "ismount",
    "lexists",
    "samefile",
    "sameopenfile",
]

Fd = int | None

_AT_SYMLINK_NOFOLLOW = 0x100


async def stat(
    path: PathOrFd,
    *,
    dir_fd: Fd = None,
    follow_symlinks: bool = True,
    loop: Loop = None,
    executor: Pool = None,
) -> os.stat_result:
    """``os.stat``."""
    files = files_of(loop, executor)
    if not isinstance(files, RingFiles):
        call = files.call(os.stat, path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        return await finish(call)
    flags = 0 if follow_symlinks else _AT_SYMLINK_NOFOLLOW
    name, directory = b"", at_directory(dir_fd)
    if not isinstance(path, int):
        name = os.fsencode(path)
    elif dir_fd is not None:
        raise ValueError("stat: can't specify dir_fd without matching path")
    elif not follow_symlinks:
        raise ValueError("stat: cannot use fd and follow_symlinks together")
    else:
        directory, flags = path, AT_EMPTY_PATH
    operation = _uringcore.file_stat(files.loop, name, directory, flags, (path,))
    return os.stat_result(await finish(operation))


async def lstat(
    path: PathOrFd, *, dir_fd: Fd = None, loop: Loop = None, executor: Pool = None
) -> os.stat_result:
    """``os.lstat``."""
    return await stat(path, dir_fd=dir_fd, follow_symlinks=False, loop=loop, executor=executor)


async def _mode(path: PathOrFd, loop: Loop, executor: Pool, follow_symlinks: bool = True) -> int:
    """Returns ``st_mode``; 0 if nothing exists at ``path``, or if ``path`` cannot be a file's name."""
    try:
        found = await stat(path, follow_symlinks=follow_symlinks, loop=loop, executor=executor)
    except (OSError, ValueError):
        return 0
    return found.st_mode


async def exists(path: PathOrFd, *, loop: Loop = None, executor: Pool = None) -> bool:
    """``os.path.exists``."""
    return await _mode(path, loop, executor) != 0


async def lexists(path: PathOrFd, *, loop: Loop = None, executor: Pool = None) -> bool:
    """``os.path.lexists``."""
    return await _mode(path, loop, executor, follow_symlinks=False) != 0


async def isdir(s: PathOrFd, *, loop: Loop = None, executor: Pool = None) -> bool:
    """``os.path.isdir``."""
    return _stat.S_ISDIR(await _mode(s, loop, executor))


async def isfile(path: PathOrFd, *, loop: Loop = None, executor: Pool = None) -> bool:
    """``os.path.isfile``."""
    return _stat.S_ISREG(await _mode(path, loop, executor))


async def islink(path: PathOrFd, *, loop: Loop = None, executor: Pool = None) -> bool:
    """``os.path.islink``."""
    return _stat.S_ISLNK(await _mode(path, loop, executor, follow_symlinks=False))


async def ismount(path: PathOrFd, *, loop: Loop = None, executor: Pool = None) -> bool:
    """``os.path.ismount``."""
    return await finish(files_of(loop, executor).call(os.path.ismount, path))


async def getsize(filename: PathOrFd, *, loop: Loop = None, executor: Pool = None) -> int:
    """``os.path.getsize``."""
    return (await stat(filename, loop=loop, executor=executor)).st_size


async def getatime(filename: PathOrFd, *, loop: Loop = None, executor: Pool = None) -> float:
    """``os.path.getatime``."""
    return (await stat(filename, loop=loop, executor=executor)).st_atime


async def getmtime(filename: PathOrFd, *, loop: Loop = None, executor: Pool = None) -> float:
    """``os.path.getmtime``."""
    return (await stat(filename, loop=loop, executor=executor)).st_mtime


async def getctime(filename: PathOrFd, *, loop: Loop = None, executor: Pool = None) -> float:
    """``os.path.getctime``."""
    return (await stat(filename, loop=loop, executor=executor)).st_ctime


async def samefile(f1: PathOrFd, f2: PathOrFd, *, loop: Loop = None, executor: Pool = None) -> bool:
    """``os.path.samefile``."""
    one = await stat(f1, loop=loop, executor=executor)
    return os.path.samestat(one, await stat(f2, loop=loop, executor=executor))


async def sameopenfile(fp1: int, fp2: int, *, loop: Loop = None, executor: Pool = None) -> bool:
    """``os.path.sameopenfile``."""
    return await samefile(fp1, fp2, loop=loop, executor=executor)


async def abspath(path: Any, *, loop: Loop = None, executor: Pool = None) -> Any:
    """``os.path.abspath``, which needs only the working directory."""
    return os.path.abspath(path)  # noqa: ASYNC240 - it does not look at the file system
