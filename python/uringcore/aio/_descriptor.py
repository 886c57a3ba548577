"""An open descriptor: single operations on it, and its position.

``_taken`` holds bytes that were read from the descriptor and that nobody has got yet; they come first
in every read. Sequential reads and writes use the descriptor's own position, so it is right for
whoever else has it (a child process, a duplicate). Not here: what a file offers (``_file``).
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Callable, Coroutine
from fcntl import F_GETFL, fcntl
from typing import Any, NamedTuple

from ._files import DIRECT_MAX_BYTES, Files
from ._operation import Operation
from ._turns import Turns

__all__ = ["PIECE_MAX_BYTES", "Descriptor", "Source"]

# What is asked for at once, however much is wanted: memory is taken before anybody knows how much
# there is to read.
PIECE_MAX_BYTES = 64 * 1024 * 1024
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


class Descriptor(Turns):
    """What lies below the operations of a file, which run in its turn."""

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

    # Operations that have nothing to do with the position ------------------------------------------

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
            operation = self._files.read(self._fd, min(size, PIECE_MAX_BYTES), start)
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
            size = os.stat_result(await self._at_offset(self._files.fstat(self._fd))).st_size
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


def _set_ready(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
