"""Functions of :mod:`os.path` as coroutines, named as ``aiofiles.ospath`` has them, and ``stat``.

Each takes ``loop`` (the running one for ``None``) and ``executor`` besides its own arguments. On the
ring all questions are ``STATX`` operations, elsewhere calls in a thread.
"""

from __future__ import annotations

import asyncio
import os
import stat as _stat
from concurrent.futures import Executor
from typing import Any

from .. import _uringcore
from ._files import AT_FDCWD, RingFiles, files_of
from ._operation import finish

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

Loop = asyncio.AbstractEventLoop
AnyPath = int | str | bytes | os.PathLike[str] | os.PathLike[bytes]

_AT_SYMLINK_NOFOLLOW = 0x100
_AT_EMPTY_PATH = 0x1000


async def stat(
    path: AnyPath,
    *,
    dir_fd: int | None = None,
    follow_symlinks: bool = True,
    loop: Loop | None = None,
    executor: Executor | None = None,
) -> os.stat_result:
    """``os.stat``."""
    files = files_of(loop, executor)
    if not isinstance(files, RingFiles):
        return await finish(
            files.call(os.stat, path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        )
    flags = 0 if follow_symlinks else _AT_SYMLINK_NOFOLLOW
    if isinstance(path, int):
        if dir_fd is not None:
            raise ValueError("stat: can't specify dir_fd without matching path")
        if not follow_symlinks:
            raise ValueError("stat: cannot use fd and follow_symlinks together")
        name, directory, flags = b"", path, _AT_EMPTY_PATH
    else:
        name, directory = os.fsencode(path), AT_FDCWD if dir_fd is None else dir_fd
    return os.stat_result(
        await finish(_uringcore.file_stat(files.loop, name, directory, flags, (path,)))
    )


async def lstat(
    path: AnyPath,
    *,
    dir_fd: int | None = None,
    loop: Loop | None = None,
    executor: Executor | None = None,
) -> os.stat_result:
    """``os.lstat``."""
    return await stat(path, dir_fd=dir_fd, follow_symlinks=False, loop=loop, executor=executor)


async def _mode(path: AnyPath, follow_symlinks: bool = True, **where: Any) -> int:
    """``st_mode``; 0 if there is nothing there, or nothing that one can ask about."""
    try:
        return (await stat(path, follow_symlinks=follow_symlinks, **where)).st_mode
    except (OSError, ValueError):
        return 0


async def exists(
    path: AnyPath, *, loop: Loop | None = None, executor: Executor | None = None
) -> bool:
    """``os.path.exists``."""
    return await _mode(path, loop=loop, executor=executor) != 0


async def lexists(
    path: AnyPath, *, loop: Loop | None = None, executor: Executor | None = None
) -> bool:
    """``os.path.lexists``."""
    return await _mode(path, False, loop=loop, executor=executor) != 0


async def isdir(s: AnyPath, *, loop: Loop | None = None, executor: Executor | None = None) -> bool:
    """``os.path.isdir``."""
    return _stat.S_ISDIR(await _mode(s, loop=loop, executor=executor))


async def isfile(
    path: AnyPath, *, loop: Loop | None = None, executor: Executor | None = None
) -> bool:
    """``os.path.isfile``."""
    return _stat.S_ISREG(await _mode(path, loop=loop, executor=executor))


async def islink(
    path: AnyPath, *, loop: Loop | None = None, executor: Executor | None = None
) -> bool:
    """``os.path.islink``."""
    return _stat.S_ISLNK(await _mode(path, False, loop=loop, executor=executor))


async def ismount(
    path: AnyPath, *, loop: Loop | None = None, executor: Executor | None = None
) -> bool:
    """``os.path.ismount``."""
    return await finish(files_of(loop, executor).call(os.path.ismount, path))


async def getsize(
    filename: AnyPath, *, loop: Loop | None = None, executor: Executor | None = None
) -> int:
    """``os.path.getsize``."""
    return (await stat(filename, loop=loop, executor=executor)).st_size


async def getatime(
    filename: AnyPath, *, loop: Loop | None = None, executor: Executor | None = None
) -> float:
    """``os.path.getatime``."""
    return (await stat(filename, loop=loop, executor=executor)).st_atime


async def getmtime(
    filename: AnyPath, *, loop: Loop | None = None, executor: Executor | None = None
) -> float:
    """``os.path.getmtime``."""
    return (await stat(filename, loop=loop, executor=executor)).st_mtime


async def getctime(
    filename: AnyPath, *, loop: Loop | None = None, executor: Executor | None = None
) -> float:
    """``os.path.getctime``."""
    return (await stat(filename, loop=loop, executor=executor)).st_ctime


async def samefile(
    f1: AnyPath, f2: AnyPath, *, loop: Loop | None = None, executor: Executor | None = None
) -> bool:
    """``os.path.samefile``."""
    one = await stat(f1, loop=loop, executor=executor)
    return os.path.samestat(one, await stat(f2, loop=loop, executor=executor))


async def sameopenfile(
    fp1: int, fp2: int, *, loop: Loop | None = None, executor: Executor | None = None
) -> bool:
    """``os.path.sameopenfile``."""
    return await samefile(fp1, fp2, loop=loop, executor=executor)


async def abspath(path: Any, *, loop: Loop | None = None, executor: Executor | None = None) -> Any:
    """``os.path.abspath``, which asks for nothing but the working directory."""
    return os.path.abspath(path)  # noqa: ASYNC240 - it does not look at the file system
