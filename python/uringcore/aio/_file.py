"""An open file: its descriptor, single reads and writes, its end.

What all binary files have in common, with or without a buffer. ``_taken`` holds bytes that were read
from the descriptor and that nobody has got yet; they come first in every read. Sequential reads and
writes use the descriptor's own position, so it is right for whoever else has it (a child process, a
duplicate). Not here: gathering (``_buffered``), single reads as the caller sees them (``_raw``).
"""

from __future__ import annotations

import asyncio
import errno
import io
import os
import stat
import warnings
from collections.abc import Callable, Coroutine
from fcntl import F_GETFL, fcntl
from typing import Any, NamedTuple, TypeVar

from ._files import DIRECT_MAX_BYTES, Files
from ._operation import Operation
from ._turns import Turns

__all__ = ["AsyncFile", "Source", "as_bytes"]

_Self = TypeVar("_Self", bound="AsyncFile")

# What is asked for at once, however much is wanted: memory is taken before anybody knows how much
# there is to read.
_PIECE_MAX_BYTES = 64 * 1024 * 1024
_PIPE_BUF_BYTES = 4096


class Source(NamedTuple):
    """What a file object is made from."""

    files: Files
    fd: int
    name: Any
    mode: str
    """As ``io.FileIO.mode``: ``"rb"``, ``"rb+"``, ``"wb"``, ``"ab"``, ..."""
    closefd: bool
    st_mode: int
    taken: bytes = b""
    """Bytes that come before those of the descriptor."""


class AsyncFile(Turns):
    """The common part of the binary files. Made by :func:`uringcore.aio.open`."""

    __slots__ = (
        "__weakref__",
        "_after_close",
        "_append",
        "_at",
        "_closefd",
        "_closing",
        "_direct",
        "_fd",
        "_files",
        "_idle",
        "_mode",
        "_name",
        "_pollable",
        "_positional",
        "_readable",
        "_regular",
        "_started",
        "_taken",
        "_watched",
        "_writable",
    )

    def __init__(self, source: Source) -> None:
        Turns.__init__(self, source.files.loop)
        self._files = source.files
        self._fd = source.fd
        self._name = source.name
        self._mode = source.mode
        self._closefd = source.closefd
        self._readable = "r" in source.mode or "+" in source.mode
        self._writable = "r" not in source.mode or "+" in source.mode
        # Writes go to the end whatever they are told.
        self._append = self._writable and bool(fcntl(source.fd, F_GETFL) & os.O_APPEND)
        # Where the last sequential operation began, if it had to be told.
        self._started = -1
        self._regular = stat.S_ISREG(source.st_mode)
        self._pollable = not (stat.S_ISREG(source.st_mode) or stat.S_ISBLK(source.st_mode))
        # A duplicate to wait for readiness on, so that a watcher of the user's own stays his.
        self._watched = -1
        # Whether reads that need not wait are worth trying.
        self._direct = self._readable
        self._taken = source.taken
        self._at = 0
        # Positional operations under way, and who waits for there to be none.
        self._positional = 0
        self._idle: asyncio.Future[None] | None = None
        # What is left to do when the file is closed.
        self._after_close: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._closing: asyncio.Task[None] | None = None

    # What is known without asking -----------------------------------------------------------------

    @property
    def name(self) -> Any:
        """The path, or the descriptor that the file was opened with."""
        return self._name

    @property
    def mode(self) -> str:
        """The mode as ``io.FileIO`` spells it."""
        return self._mode

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return self._fd < 0

    @property
    def closefd(self) -> bool:
        """Whether closing the file closes the descriptor."""
        return self._closefd

    def fileno(self) -> int:
        """The descriptor.

        Raises:
            ValueError: the file is closed.
        """
        self._check_open()
        return self._fd

    def readable(self) -> bool:
        """Whether the file was opened for reading. Not a coroutine, as in aiofiles."""
        self._check_open()
        return self._readable

    async def writable(self) -> bool:
        """Whether the file was opened for writing."""
        self._check_open()
        return self._writable

    async def seekable(self) -> bool:
        """Whether the file has a position."""
        self._check_open()
        return self._has_position()

    async def isatty(self) -> bool:
        """Whether the file is a terminal."""
        self._check_open()
        return os.isatty(self._fd)

    def __repr__(self) -> str:
        state = "closed" if self._fd < 0 else f"mode={self._mode!r}"
        return f"<{type(self).__module__}.{type(self).__qualname__} name={self._name!r} {state}>"

    # Operations that do not move the position -----------------------------------------------------

    async def pread(self, size: int, offset: int, /) -> bytes:
        """Read at an offset, without moving the position.

        Several may be under way at once; they do not wait for other operations of the file, except
        for written bytes that are still in the buffer, which are flushed first.

        Args:
            size: how many bytes at most; fewer only at the end of the file.
            offset: bytes from the start of the file.

        Raises:
            OSError: the read failed; ``ESPIPE`` for a file without positions.
            ValueError: a negative argument, or the file is closed.
            io.UnsupportedOperation: the file is not open for reading.
        """
        self._check_open()
        self._check_readable()
        if size < 0 or offset < 0:
            raise ValueError("pread: size and offset must not be negative")
        await self._settle()
        if self._direct and size <= DIRECT_MAX_BYTES and self._fd >= 0:
            got = self._files.direct.read(self._fd, size, offset)
            if got.__class__ is bytes and (len(got) == size or not got):
                return got
        return await self._pread(size, offset)

    async def _pread(self, size: int, offset: int) -> bytes:
        parts = []
        while size > 0:
            self._check_open()
            got: Any = None
            while self._direct and size <= DIRECT_MAX_BYTES:
                got = self._files.direct.read(self._fd, size, offset)
                if got is not True:
                    break
                await self._rest()
                self._check_open()
            if got is False:
                self._direct = False
            if got.__class__ is not bytes:
                want = min(size, _PIECE_MAX_BYTES)
                got = await self._at_offset(self._files.read(self._fd, want, offset))
            if not got:
                break
            parts.append(got)
            size -= len(got)
            offset += len(got)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def pwrite(self, data: Any, offset: int, /) -> int:
        """Write all of ``data`` at an offset, without moving the position.

        It is not buffered. A file in append mode writes at its end whatever the offset, as
        ``pwrite(2)`` does on Linux.

        Args:
            data: a bytes-like object.
            offset: bytes from the start of the file.

        Returns:
            The number of bytes, which is all of them.

        Raises:
            OSError: the write failed, perhaps after a part of the data.
            ValueError: a negative offset, or the file is closed.
            io.UnsupportedOperation: the file is not open for writing.
        """
        self._check_open()
        self._check_writable()
        if offset < 0:
            raise ValueError("pwrite: the offset must not be negative")
        piece = as_bytes(data)
        size = len(piece)
        await self._settle(drop=True)
        while piece:
            self._check_open()
            count = await self._at_offset(self._files.write(self._fd, piece, offset))
            # Short only in trouble, so the copy does not matter.
            piece = piece[count:]
            offset += count
        return size

    async def fsync(self) -> None:
        """Flush, and wait until the file's contents and attributes are on the disk.

        Raises:
            OSError: the device failed; what was written may be lost.
            ValueError: the file is closed.
        """
        await self._sync(data_only=False)

    async def fdatasync(self) -> None:
        """Flush, and wait until the file's contents are on the disk. Errors as :meth:`fsync`."""
        await self._sync(data_only=True)

    async def _sync(self, data_only: bool) -> None:
        await self.flush()
        self._check_open()
        await self._at_offset(self._files.sync(self._fd, data_only))

    async def stat(self) -> os.stat_result:
        """The file's attributes, as ``os.fstat``; buffered bytes are not in them.

        Raises:
            ValueError: the file is closed.
        """
        self._check_open()
        return os.stat_result(await self._at_offset(self._files.fstat(self._fd)))

    async def flush(self) -> None:
        """Nothing is held back here.

        Raises:
            ValueError: the file is closed.
        """
        self._check_open()

    async def _settle(self, drop: bool = False) -> None:
        """Have the descriptor hold what the file holds: nothing is left to write, nor, if ``drop``,
        taken by reading ahead."""

    async def _at_offset(self, operation: Operation[Any]) -> Any:
        """Wait for an operation that has nothing to do with the position."""
        self._positional += 1
        try:
            result = await operation.future
        except (asyncio.CancelledError, GeneratorExit):
            operation.abandon(self._positional_late)
            raise
        except BaseException:
            self._positional_ended()
            raise
        self._positional_ended()
        return result

    def _positional_late(self, result: Any, error: BaseException | None) -> None:
        self._positional_ended()

    def _positional_ended(self) -> None:
        self._positional -= 1
        if self._positional == 0 and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    # Single reads and writes, in the file's turn --------------------------------------------------

    async def _read_once(self, size: int) -> bytes:
        """At most ``size`` bytes at the position, empty at the end of the file.

        When cancelled, the bytes that were read nevertheless are put behind ``_taken``.
        """
        if self._pollable:
            # Whatever is there is an answer: no reason to have a thread wait for more.
            size = min(size, DIRECT_MAX_BYTES)
        while True:
            while self._direct and size <= DIRECT_MAX_BYTES:
                got = self._files.direct.read(self._fd, size, -1)
                if got.__class__ is bytes:
                    return got
                if got is None:
                    if not (self._pollable and self._files.waits_in_threads):
                        break
                    await self._wait_ready(write=False)
                elif got is True:
                    await self._rest()
                else:
                    self._direct = False
            if self._pollable and self._files.waits_in_threads:
                await self._wait_ready(write=False)
            start = self._start(write=False)
            operation = self._files.read(self._fd, min(size, _PIECE_MAX_BYTES), start)
            try:
                data = await operation.future
                self._moved(start, len(data))
                return data
            except (asyncio.CancelledError, GeneratorExit):
                self._orphan()
                operation.abandon(self._read_late)
                raise
            except BlockingIOError:
                if not self._pollable:
                    raise
                # Somebody else took what there was.

    def _read_late(self, result: Any, error: BaseException | None) -> None:
        if result:
            self._moved(self._started, len(result))
            self._taken = self._taken[self._at :] + result
            self._at = 0
        self._orphan_ended()

    async def _write_once(self, data: Any) -> int:
        """How many bytes of ``data`` were written at the position.

        When cancelled, ``_wrote_late`` is told what was written nevertheless.
        """
        while True:
            if self._pollable and self._files.waits_in_threads:
                await self._wait_ready(write=True)
                # No more than a pipe takes without blocking once it is ready.
                data = memoryview(data)[:_PIPE_BUF_BYTES]
            start = self._start(write=True)
            operation = self._files.write(self._fd, data, start)
            try:
                count = await operation.future
                self._moved(start, count)
                return count
            except (asyncio.CancelledError, GeneratorExit):
                self._orphan()
                operation.abandon(self._write_late)
                raise
            except BlockingIOError:
                if not self._pollable:
                    raise
                # Somebody else filled the room that there was.

    def _write_late(self, result: Any, error: BaseException | None) -> None:
        self._moved(self._started, result or 0)
        self._wrote_late(result or 0)
        self._orphan_ended()

    def _wrote_late(self, count: int) -> None:
        """An abandoned write turned out to have written this much."""

    def _start(self, write: bool) -> int:
        """The offset that a read or write at the position has to be told; negative for none.

        The ring is told, and the position moved afterwards: a transfer that the kernel cuts short by
        an error or a cancel leaves the position where it was (seen on Linux 6.18).
        """
        if self._pollable or self._files.moves_position or (write and self._append):
            self._started = -1
        else:
            self._started = os.lseek(self._fd, 0, os.SEEK_CUR)
        return self._started

    def _moved(self, start: int, count: int) -> None:
        if start >= 0 and count:
            os.lseek(self._fd, start + count, os.SEEK_SET)

    async def _rest_if_due(self) -> None:
        """For what may go on for ever inside of a buffer."""
        if self._files.direct.is_due():
            await self._rest()

    async def _rest(self) -> None:
        """Let others run: many reads in a row needed no waiting."""
        await asyncio.sleep(0)
        self._files.direct.rested()

    async def _wait_ready(self, write: bool) -> None:
        """Wait for a pipe, socket or terminal on a loop whose reads are made in threads."""
        loop, ready = self._loop, self._loop.create_future()
        if self._watched < 0:
            self._watched = os.dup(self._fd)
        add, remove = (
            (loop.add_writer, loop.remove_writer)
            if write
            else (loop.add_reader, loop.remove_reader)
        )
        try:
            add(self._watched, _set_ready, ready)
        except (PermissionError, ValueError):
            # /dev/zero and the like are always ready, and no loop can watch them.
            self._unwatch()
            self._pollable = False
            return
        try:
            await ready
        finally:
            remove(self._watched)

    def _unwatch(self) -> None:
        if self._watched >= 0:
            os.close(self._watched)
            self._watched = -1

    # Position -------------------------------------------------------------------------------------

    def _has_position(self) -> bool:
        try:
            os.lseek(self._fd, 0, os.SEEK_CUR)
        except OSError:
            return False
        return True

    async def _move(self, offset: int, whence: int) -> int:
        """``lseek``, without waiting for a server in the loop's thread."""
        if whence in (os.SEEK_SET, os.SEEK_CUR) or self._pollable:
            return os.lseek(self._fd, offset, whence)
        if whence == os.SEEK_END and self._regular:
            size = (await self.stat()).st_size
            if size + offset < 0:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            return os.lseek(self._fd, size + offset, os.SEEK_SET)
        operation = self._files.call(os.lseek, self._fd, offset, whence)
        try:
            return await operation.future
        except (asyncio.CancelledError, GeneratorExit):
            self._orphan()
            operation.abandon(self._move_late)
            raise

    def _move_late(self, result: Any, error: BaseException | None) -> None:
        self._orphan_ended()

    def _step_back(self) -> None:
        """Undo what was read ahead: the descriptor is where the file is."""
        ahead = len(self._taken) - self._at
        self._taken, self._at = b"", 0
        if ahead:
            os.lseek(self._fd, -ahead, os.SEEK_CUR)

    async def _truncate(self, length: int) -> None:
        operation = self._files.truncate(self._fd, length)
        try:
            await operation.future
        except (asyncio.CancelledError, GeneratorExit):
            self._orphan()
            operation.abandon(self._move_late)
            raise

    # The end --------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Write what is buffered and close the file. Idempotent.

        It waits for operations of other tasks that are under way. A cancelled close goes on by
        itself.

        Raises:
            OSError: buffered bytes could not be written, or closing failed. The file is closed
                nevertheless.
        """
        if self._fd < 0 and self._closing is None:
            return
        if self._closing is None:
            if not (self._busy or self._positional or self._has_unwritten()):
                await self._close_now()
                return
            self._closing = self._loop.create_task(self._close_in_turn(self._ask()))
        await asyncio.shield(self._closing)

    def _has_unwritten(self) -> bool:
        return False

    async def _close_in_turn(self, turn: asyncio.Future[None] | None) -> None:
        try:
            if turn is not None:
                await self._wait_for(turn)
        except BaseException:
            self._closing = None
            raise
        try:
            if self._fd < 0:
                return
            while self._positional:
                self._idle = self._loop.create_future()
                await self._idle
            try:
                await self._write_out()
            finally:
                await self._close_now()
        finally:
            self._closing = None
            self._end()

    async def _write_out(self) -> None:
        """Write what is buffered."""

    async def _close_now(self) -> None:
        fd, self._fd = self._fd, -1
        self._taken, self._at = b"", 0
        self._unwatch()
        if not self._closefd:
            return
        if self._loop.is_closed():
            os.close(fd)
            return
        operation = self._files.close(fd)
        try:
            await operation.future
        except (asyncio.CancelledError, GeneratorExit):
            operation.abandon(_ignore)
            raise
        finally:
            after, self._after_close = self._after_close, None
            if after is not None:
                await after()

    async def __aenter__(self: _Self) -> _Self:
        self._check_open()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def __del__(self) -> None:
        fd = getattr(self, "_fd", -1)
        if fd < 0:
            return
        if self._closefd:
            warnings.warn(f"unclosed file {self!r}", ResourceWarning, stacklevel=2, source=self)
        # With a write of unknown outcome under way, writing again might write twice.
        try:
            if not self._busy:
                self._write_out_blocking()
        finally:
            self._fd = -1
            self._unwatch()
            if self._closefd:
                os.close(fd)

    def _write_out_blocking(self) -> None:
        """Write what is buffered without a loop."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"cannot pickle {type(self).__name__!r} instances")

    # Checks ---------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._fd < 0:
            raise ValueError("I/O operation on closed file")

    def _check_readable(self) -> None:
        if not self._readable:
            raise io.UnsupportedOperation("File not open for reading")

    def _check_writable(self) -> None:
        if not self._writable:
            raise io.UnsupportedOperation("File not open for writing")


def as_bytes(data: Any) -> bytes:
    """What ``write`` was given, as immutable bytes: a mutable object may change before it is written.

    Raises:
        TypeError: it is not bytes-like.
    """
    if data.__class__ is bytes:
        return data
    if isinstance(data, str):
        raise TypeError("a bytes-like object is required, not 'str'")
    return memoryview(data).tobytes()


def _set_ready(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _ignore(result: Any, error: BaseException | None) -> None:
    """A descriptor is gone whatever closing it came to, and nobody is left to be told."""
