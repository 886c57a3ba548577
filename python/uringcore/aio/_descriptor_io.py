"""An open descriptor: single operations on it, and its position.

``_taken`` holds bytes that were read from the descriptor. Those from ``_at`` on were not returned yet, and
every read returns them first. Sequential reads and writes use the descriptor's own position, so processes and
duplicates that share the descriptor find the right position. ``_binary_file`` implements a file's methods.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Callable, Coroutine
from fcntl import F_GETFL, fcntl
from functools import partial
from typing import Any, Final

from ._file_backends import DIRECT_MAX_BYTES, PIECE_MAX_BYTES, Files, Opened
from ._operation_order import OrderedOperations
from ._pending_operation import Operation

__all__ = ["PIPE_BUF_BYTES", "Descriptor"]

# A pipe that is ready for writing accepts at least this many bytes without blocking.
PIPE_BUF_BYTES = 4096


class Descriptor(OrderedOperations):
    """The part of a binary file below its methods. All of it runs while the task holds the file's lock."""

    _fd = -1
    # A duplicate of the descriptor, which the loop watches for readiness. The program may so watch the
    # descriptor itself. -1 if there is none.
    _watched = -1

    def __init__(self, files: Files, opened: Opened, name: Any, mode: str, closefd: bool) -> None:
        super().__init__(files.loop)
        self._files = files
        self._fd = opened.fd
        self._name = name
        self.mode: Final = mode
        """The mode as ``io.FileIO`` spells it: ``"rb"``, ``"rb+"``, ``"wb"``, ``"ab"``, ..."""
        self.closefd: Final = closefd
        """True if closing the file closes the descriptor."""
        self._readable = "r" in mode or "+" in mode
        self._writable = "r" not in mode or "+" in mode
        # True in append mode, in which the kernel writes to the end, regardless of offsets.
        self._append = self._writable and bool(fcntl(opened.fd, F_GETFL) & os.O_APPEND)
        self._regular = stat.S_ISREG(opened.mode)
        self._pollable = not (self._regular or stat.S_ISBLK(opened.mode))
        # True while reads may try to return cached bytes at once; False if the file does not support this.
        self._direct = self._readable
        self._taken = opened.taken
        self._at = 0
        # The number of operations at offsets that are in progress, and a future that is done after the last
        # one.
        self._positional = 0
        self._idle: asyncio.Future[None] | None = None
        self._after_close: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._closing: asyncio.Task[None] | None = None

    def _check_open(self) -> None:
        if self._fd < 0:
            raise ValueError("I/O operation on closed file")

    # Waiting for operations -----------------------------------------------------------------------

    async def _at_offset(self, operation: Operation[Any]) -> Any:
        """Wait for an operation at an offset, which does not use the position and so needs no lock."""
        self._positional += 1
        try:
            result = await operation.future
        except (asyncio.CancelledError, GeneratorExit):
            operation.abandon(self._positional_ended)
            raise
        except BaseException:
            self._positional_ended()
            raise
        self._positional_ended()
        return result

    def _positional_ended(self, result: Any = None, error: BaseException | None = None) -> None:
        self._positional -= 1
        if self._positional == 0 and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def _in_turn(self, operation: Operation[Any]) -> Any:
        """Wait for an operation that needs the lock. Its result is lost if the task is cancelled."""
        try:
            return await operation.future
        except (asyncio.CancelledError, GeneratorExit):
            self._abandon(operation, None)
            raise

    def _abandon(self, operation: Operation[Any], late: Callable[[Any], None] | None) -> None:
        """Stop waiting for an operation whose task was cancelled. The lock is held until the operation has
        ended and ``late`` has got its result."""
        self._busy += 1

        def over(result: Any, error: BaseException | None) -> None:
            try:
                if late is not None and error is None:
                    late(result)
            finally:
                self._end()

        operation.abandon(over)

    # Single reads and writes ----------------------------------------------------------------------

    async def _read_once(self, size: int) -> bytes:
        """Read at most ``size`` bytes at the position; empty at the end of the file.

        If the read is cancelled, bytes that still arrive are appended to ``_taken``.
        """
        if self._pollable:
            # A read of a pipe returns the bytes that are available, so a small buffer is enough.
            size = min(size, DIRECT_MAX_BYTES)
        while self._direct and size <= DIRECT_MAX_BYTES:
            got = self._files.direct.read(self._fd, size, -1)
            if got.__class__ is bytes:
                return got
            if got is True:
                await self._rest()
            elif got is False:
                self._direct = False
            elif self._pollable and self._files.waits_in_threads:
                await self._wait_ready(write=False)
            else:
                break
        data: bytes = await self._transfer(min(size, PIECE_MAX_BYTES), write=False)
        return data

    async def _transfer(self, what: Any, write: bool) -> Any:
        """Write the bytes ``what`` once and return the number of written bytes, or read up to ``what`` bytes
        and return them.

        If it is cancelled, ``_abandoned_write_ended`` gets the number, or ``_taken`` the bytes.
        """
        files = self._files
        while True:
            if self._pollable and files.waits_in_threads:
                await self._wait_ready(write)
                if write:
                    what = memoryview(what)[:PIPE_BUF_BYTES]
            # On the ring the transfer uses an offset, and this code moves the position afterwards. If the
            # transfer used the position, an error or a cancellation could transfer bytes without moving it
            # (Linux 6.18).
            start = -1
            if not (self._pollable or files.moves_position or (write and self._append)):
                start = os.lseek(self._fd, 0, os.SEEK_CUR)
            operation: Any = (files.write if write else files.read)(self._fd, what, start)
            try:
                result = await operation.future
            except (asyncio.CancelledError, GeneratorExit):
                self._abandon(operation, partial(self._transferred_late, write, start))
                raise
            except BlockingIOError:
                # The descriptor was ready, but another process has taken the bytes or the space since.
                if not self._pollable:
                    raise
            else:
                self._move_position(start, result if write else len(result))
                return result

    def _transferred_late(self, write: bool, start: int, result: Any) -> None:
        self._move_position(start, result if write else len(result))
        if write:
            self._abandoned_write_ended(result)
        else:
            self._taken, self._at = self._taken[self._at :] + result, 0

    def _move_position(self, start: int, count: int) -> None:
        if start >= 0 and count:
            os.lseek(self._fd, start + count, os.SEEK_SET)

    def _abandoned_write_ended(self, count: int) -> None:
        """Called when an abandoned write has written ``count`` bytes."""

    async def _rest_if_due(self) -> None:
        """Let other tasks run from time to time, if the buffer answers many calls in a row."""
        if self._files.direct.is_due():
            await self._rest()

    async def _rest(self) -> None:
        await asyncio.sleep(0)
        self._files.direct.rested()

    async def _wait_ready(self, write: bool) -> None:
        """Wait for a pipe, socket or terminal, so that no thread blocks in a read or write."""
        loop, ready = self._loop, self._loop.create_future()
        if self._watched < 0:
            self._watched = os.dup(self._fd)
        add, remove = loop.add_reader, loop.remove_reader
        if write:
            add, remove = loop.add_writer, loop.remove_writer
        try:
            add(self._watched, lambda: None if ready.done() else ready.set_result(None))
        except (PermissionError, ValueError):
            # The loop cannot watch /dev/zero and similar devices, which are always ready.
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
        """``lseek``, without blocking the loop's thread on a network file system."""
        if whence in (os.SEEK_SET, os.SEEK_CUR) or self._pollable:
            return os.lseek(self._fd, offset, whence)
        if whence == os.SEEK_END and self._regular:
            size = os.stat_result(await self._at_offset(self._files.fstat(self._fd))).st_size
            if size + offset < 0:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            return os.lseek(self._fd, size + offset, os.SEEK_SET)
        position: int = await self._in_turn(self._files.call(os.lseek, self._fd, offset, whence))
        return position

    def _undo_read_ahead(self) -> None:
        """Undo reading ahead: move the descriptor's position to the file's."""
        if ahead := len(self._taken) - self._at:
            os.lseek(self._fd, -ahead, os.SEEK_CUR)
        self._taken, self._at = b"", 0
