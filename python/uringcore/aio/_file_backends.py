"""The two implementations of file operations: the ring of a loop, or an executor's threads.

There is one object per loop (and executor), with one method per operation; most start the operation and
return it (``_pending_operation``). :class:`RingFiles` uses the loop's ring wherever io_uring has the
operation, and threads otherwise; :class:`Files` serves the epoll backend and every other asyncio
loop. ``_binary_file`` and ``_text_file`` handle buffers, positions and text, and ``os`` paths.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from .. import _uringcore
from .._loop import UringEventLoop
from ._pending_operation import Operation, ThreadOperation, finish

__all__ = [
    "AT_EMPTY_PATH",
    "DIRECT_MAX_BYTES",
    "PIECE_MAX_BYTES",
    "AnyPath",
    "Files",
    "Loop",
    "Opened",
    "PathOrFd",
    "Pool",
    "RingFiles",
    "at_directory",
    "files_of",
]

T = TypeVar("T")
# The types of the parameters `loop` and `executor`: `None` is the running loop, and the loop's own executor.
Loop = asyncio.AbstractEventLoop | None
Pool = Executor | None
AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]
PathOrFd = int | str | bytes | os.PathLike[str] | os.PathLike[bytes]

AT_EMPTY_PATH = 0x1000
_AT_FDCWD = -100
# The maximum size of one read. Its memory is allocated before the number of available bytes is known.
PIECE_MAX_BYTES = 64 * 1024 * 1024
# The maximum number of cached bytes that are copied in the loop's thread. More would take longer than a tenth
# of a millisecond, so another thread copies them.
DIRECT_MAX_BYTES = 256 * 1024
# The maximum number of opens that may block at a time. The kernel has at least four threads for them, which
# other file operations need too.
_BLOCKING_OPENS_MAX = 2
_RETRY_SECONDS = 0.02


class Opened(NamedTuple):
    """An open descriptor."""

    fd: int
    mode: int
    """``st_mode``."""
    taken: bytes = b""
    """Bytes that were already read from the descriptor."""


class Files:
    """File operations in the threads of an executor (``None`` is the loop's default one).

    Args:
        loop: the loop whose coroutines wait.
        executor: runs the blocking calls.
    """

    # True if a read or write without an offset moves the position by the transferred bytes even if it fails.
    moves_position = True
    # True if a read of an empty pipe occupies a thread until bytes arrive.
    waits_in_threads = True

    def __init__(self, loop: asyncio.AbstractEventLoop, executor: Pool = None) -> None:
        self.loop = loop
        self.executor = executor
        self.direct: _uringcore.PageCacheReads = _uringcore.PageCacheReads(
            loop if isinstance(loop, UringEventLoop) else None
        )

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> Operation[T]:
        """Call a blocking function in a thread."""
        if kwargs:
            function = partial(function, **kwargs)
        return ThreadOperation(self.loop, self.loop.run_in_executor(self.executor, function, *args))

    async def open(self, path: str | bytes, flags: int, mode: int) -> Opened:
        """Open a file as ``os.open`` does.

        Raises:
            OSError: with ``filename``.
        """
        fd = await finish(self.call(os.open, path, flags | os.O_CLOEXEC, mode), os.close)
        return _opened(fd)

    def close(self, fd: int) -> Operation[Any]:
        """Close a descriptor; its number is free even if an error is raised."""
        return self.call(os.close, fd)

    def read(self, fd: int, size: int, offset: int) -> Operation[bytes]:
        """Read once at ``offset``. A negative ``offset`` means the file's position."""
        if offset < 0:
            return self.call(os.read, fd, size)
        return self.call(os.pread, fd, size, offset)

    def write(self, fd: int, data: Any, offset: int) -> Operation[int]:
        """Write once, at the file's position if ``offset`` is negative."""
        if offset < 0:
            return self.call(os.write, fd, data)
        return self.call(os.pwrite, fd, data, offset)

    def sync(self, fd: int, data_only: bool) -> Operation[Any]:
        """``fsync``, or ``fdatasync``."""
        return self.call(os.fdatasync if data_only else os.fsync, fd)

    def truncate(self, fd: int, length: int) -> Operation[Any]:
        """``ftruncate``."""
        return self.call(os.ftruncate, fd, length)

    def fstat(self, fd: int) -> Operation[Any]:
        """``fstat``, as the arguments of ``os.stat_result``."""
        return self.call(os.fstat, fd)


class RingFiles(Files):
    """File operations on the ring of one of our loops."""

    moves_position = False
    waits_in_threads = False
    loop: UringEventLoop
    # The number of opens that block one of the kernel's threads, until the other end of a FIFO is opened.
    _blocking = 0

    async def open(self, path: str | bytes, flags: int, mode: int) -> Opened:
        try:
            opened = await self._open(path, flags, mode, wait=False)
        except OSError as error:
            if error.errno == errno.EAGAIN and not flags & os.O_NONBLOCK:
                # Another process has a lease on the file. A blocking open waits until that process has
                # released its lease.
                return await self._open(path, flags, mode, wait=True)
            # ENXIO means that a FIFO has no reader: without `wait` the ring opens a file without blocking.
            if error.errno != errno.ENXIO or flags & os.O_NONBLOCK:
                raise
            return await self._wait_for_reader(path, flags, mode)
        if not stat.S_ISFIFO(opened.mode) or flags & (os.O_ACCMODE | os.O_NONBLOCK):
            return opened
        try:
            return opened._replace(taken=await self._wait_for_writer(opened.fd, path, flags))
        except BaseException:
            os.close(opened.fd)
            raise

    async def _wait_for_reader(self, path: str | bytes, flags: int, mode: int) -> Opened:
        """Open a FIFO for writing after another process has opened it for reading."""
        if self._blocking < _BLOCKING_OPENS_MAX:
            self._blocking += 1
            return await self._open_blocking(path, flags, mode)
        while True:
            await asyncio.sleep(_RETRY_SECONDS)
            try:
                return await self._open(path, flags, mode, wait=False)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise

    async def _wait_for_writer(self, fd: int, path: str | bytes, flags: int) -> bytes:
        """Wait until a FIFO that is open for reading has a writer, as a blocking open would.

        A second, blocking open returns when a writer arrives. A writer from before it began may already
        have closed the FIFO; the first descriptor then has bytes or the end of the file. Returns
        the bytes that this check read.
        """
        seen = self.loop.create_future()
        self.loop.add_reader(fd, lambda: None if seen.done() else seen.set_result(None))
        blocking = None
        if self._blocking < _BLOCKING_OPENS_MAX:
            self._blocking += 1
            blocking = self.loop.create_task(self._open_blocking(path, flags, 0))
        try:
            if blocking is None:
                return await self._look_for_writer(fd, seen)
            await asyncio.wait({seen, blocking}, return_when=asyncio.FIRST_COMPLETED)
            if blocking.done() and blocking.exception() is not None:
                # The FIFO's name was removed, so no new process can open it. Only a process that has opened
                # it already can be the writer.
                return await self._look_for_writer(fd, seen)
        finally:
            self.loop.remove_reader(fd)
            if blocking is not None:
                if not blocking.done():
                    blocking.cancel()
                elif not blocking.cancelled() and blocking.exception() is None:
                    os.close(blocking.result().fd)
        return b""

    async def _look_for_writer(self, fd: int, seen: asyncio.Future[None]) -> bytes:
        os.set_blocking(fd, False)
        try:
            while True:
                await asyncio.wait({seen}, timeout=_RETRY_SECONDS)
                if seen.done():
                    return b""
                if got := os.read(fd, 1):
                    return got
        except BlockingIOError:
            # EAGAIN shows a writer that has not written anything yet: without a writer the read would return
            # the end of the file.
            return b""
        finally:
            os.set_blocking(fd, True)

    async def _open_blocking(self, path: str | bytes, flags: int, mode: int) -> Opened:
        try:
            return await self._open(path, flags, mode, wait=True)
        finally:
            self._blocking -= 1

    async def _open(self, path: str | bytes, flags: int, mode: int, wait: bool) -> Opened:
        # With O_CREAT the kernel opens the file in one of its threads, which an open of a FIFO would block
        # until the other end is opened. O_NONBLOCK prevents that, and has no effect on other files.
        nonblocking = not wait and bool(flags & os.O_CREAT) and not flags & os.O_NONBLOCK
        asked = flags | os.O_NONBLOCK if nonblocking else flags
        name = os.fsencode(path)
        operation = _uringcore.file_open(self.loop, name, _AT_FDCWD, asked, mode, wait, (path,))
        fd = await finish(operation, os.close)
        if nonblocking:
            os.set_blocking(fd, True)
        return _opened(fd)

    def close(self, fd: int) -> Operation[Any]:
        return _uringcore.file_close(self.loop, fd)

    def read(self, fd: int, size: int, offset: int) -> Operation[bytes]:
        return _uringcore.file_read(self.loop, fd, size, offset, size > DIRECT_MAX_BYTES)

    def write(self, fd: int, data: Any, offset: int) -> Operation[int]:
        return _uringcore.file_write(self.loop, fd, data, offset)

    def sync(self, fd: int, data_only: bool) -> Operation[Any]:
        return _uringcore.file_sync(self.loop, fd, data_only)

    def truncate(self, fd: int, length: int) -> Operation[Any]:
        if not _has_ftruncate:
            return super().truncate(fd, length)
        return _uringcore.file_truncate(self.loop, fd, length)

    def fstat(self, fd: int) -> Operation[Any]:
        return _uringcore.file_stat(self.loop, b"", fd, AT_EMPTY_PATH, None)


def files_of(loop: Loop = None, executor: Pool = None) -> Files:
    """Returns the object for the file operations of ``loop`` (``None`` is the running one).

    Raises:
        RuntimeError: no loop was given and none is running.
    """
    if loop is None:
        loop = asyncio.get_running_loop()
    files: Files | None = getattr(loop, "_uringcore_files", None)
    if files is not None and executor is None:
        return files
    on_ring = isinstance(loop, UringEventLoop) and loop.backend == "uring"
    files = RingFiles(loop, executor) if on_ring else Files(loop, executor)
    if executor is None:
        # Stored on the loop: a table of all loops would keep them alive, because `Files` refers to its loop.
        cast(Any, loop)._uringcore_files = files
    return files


def at_directory(dir_fd: int | None) -> int:
    """Returns a ``dir_fd`` argument as system calls expect it."""
    return _AT_FDCWD if dir_fd is None else dir_fd


def _opened(fd: int) -> Opened:
    try:
        return Opened(fd, _uringcore.file_describe(fd)[0])
    except BaseException:
        os.close(fd)
        raise


def _kernel_version() -> tuple[int, int]:
    major, _, rest = os.uname().release.partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


# True if io_uring has ftruncate. Older kernels return EINVAL, and all kernels do for a negative length.
_has_ftruncate = _kernel_version() >= (6, 9)
