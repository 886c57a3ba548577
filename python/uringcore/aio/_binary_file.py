"""An open binary file, with or without a buffer: its position and its close.

``_file_buffer``, ``_buffered_file`` and ``_raw_file`` read and write in sequence; ``_file_base`` has the
methods that text files share."""

from __future__ import annotations

import asyncio
import errno
import operator
import os
import warnings
from functools import partial
from typing import Any

from ._file_base import AsyncIOBase, as_size
from ._file_buffer import Buffer

__all__ = ["AsyncFile"]


class AsyncFile(Buffer, AsyncIOBase[bytes]):
    """The base class of binary files. :func:`uringcore.aio.open` makes them."""

    _line_end = b"\n"

    def _below(self) -> AsyncFile:
        return self

    def readable(self) -> bool:
        """True if the file was opened for reading. Not a coroutine, as in aiofiles."""
        self._check_open()
        return self._readable

    def _reads_no_line(self) -> bool:
        self._check_open()
        return not self._readable

    def __repr__(self) -> str:
        state = "closed" if self._fd < 0 else f"mode={self.mode!r}"
        return f"<{type(self).__module__}.{type(self).__qualname__} name={self._name!r} {state}>"

    async def readinto(self, buffer: Any, /) -> int:
        """Read into a writable buffer as ``read`` does. Returns the byte count.

        Raises:
            TypeError: the buffer is not writable.
            As :meth:`read`.
        """
        self._check_readable()
        with memoryview(buffer) as view:
            if view.readonly:
                kind = type(buffer).__name__
                raise TypeError(
                    f"readinto() argument must be read-write bytes-like object, not {kind}"
                )
            with view.cast("B") as room:
                data = await self.read(len(room)) if len(room) else b""
                room[: len(data)] = data
                return len(data)

    # The position ---------------------------------------------------------------------------------

    async def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to ``offset`` from the start (0), the position (1) or the end (2).

        Returns:
            The new position in bytes.

        Raises:
            OSError: the file has no position, or the target is before its start.
            ValueError: ``whence`` is unknown, or the file is closed.
        """
        self._check_open()
        offset = operator.index(offset)
        if self._is_buffered and not 0 <= whence <= 4:
            raise ValueError(f"invalid whence ({whence}, should be 0, 1, 2, 3 or 4)")
        await self._begin()
        try:
            self._check_open()
            await self._rest_if_due()
            await self._write_out()
            ahead = len(self._taken) - self._at
            if whence == os.SEEK_CUR:
                offset -= ahead
            if ahead and self._is_buffered and whence in (os.SEEK_SET, os.SEEK_CUR):
                # A target inside the bytes that were read ahead needs no system call.
                end = os.lseek(self._fd, 0, os.SEEK_CUR)
                back = end - offset if whence == os.SEEK_SET else -offset
                if 0 <= back <= len(self._taken):
                    self._at = len(self._taken) - back
                    return end - back
            position = await self._move(offset, whence)
            self._taken, self._at = b"", 0
            self._ahead = self._ahead_first
            return position
        finally:
            self._end()

    async def tell(self) -> int:
        """Returns the position in bytes.

        Raises:
            OSError: the file has no position.
            ValueError: the file is closed.
        """
        self._check_open()
        if not self._busy:
            return self._position()
        await self._begin()
        try:
            self._check_open()
            return self._position()
        finally:
            self._end()

    def _position(self) -> int:
        position = os.lseek(self._fd, 0, os.SEEK_CUR)
        return position - (len(self._taken) - self._at) + self._unwritten

    async def truncate(self, size: int | None = None, /) -> int:
        """Cut or extend the file to ``size`` bytes, by default to the position, which does not move.

        Returns:
            The new size.

        Raises:
            OSError: the file cannot be resized.
            ValueError: the file is closed.
            io.UnsupportedOperation: the file is not open for writing.
        """
        self._check_writable()
        length = None if size is None else as_size(size)
        await self._begin()
        try:
            self._check_open()
            await self._write_out()
            self._undo_read_ahead()
            if length is None:
                length = self._position()
            if length < 0:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            await self._in_turn(self._files.truncate(self._fd, length))
            return length
        finally:
            self._end()

    # Closing --------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Write buffered bytes and close the file. Idempotent.

        It waits for pending operations of other tasks. A cancelled close completes in the
        background, even if `asyncio.run` cancels it at the end of the program.

        Raises:
            OSError: buffered bytes could not be written, or closing failed. The file is closed
                in any case.
        """
        if self._closing is None:
            if self._fd < 0:
                return
            if not (self._busy or self._positional or self._unwritten):
                await self._close_now()
                return
            grant = self._ask()
            self._closing = self._loop.create_task(self._close_with_lock(grant))
            self._closing.add_done_callback(partial(self._closing_ended, grant))
        await asyncio.shield(self._closing)

    async def _close_with_lock(self, grant: asyncio.Future[None] | None) -> None:
        """Close the file when this task gets the lock, and also if the task is cancelled."""
        try:
            try:
                await self._wait_until_idle(grant)
                try:
                    if self._fd >= 0:
                        await self._write_out_and_close()
                finally:
                    self._end()
            except asyncio.CancelledError:
                # This task was cancelled, perhaps at the end of `asyncio.run`, which waits for its tasks. So
                # the file is closed without further waits, unless an abandoned write still holds the lock.
                if self._fd >= 0:
                    await self._wait_until_idle(self._ask())
                    self._close_blocking()
                raise
        finally:
            self._closing = None

    async def _wait_until_idle(self, grant: asyncio.Future[None] | None) -> None:
        """Wait until nothing uses the file, before it is closed: until ``grant`` is granted, if the file's
        lock was taken, and until all reads and writes at explicit offsets, which take no lock, have ended."""
        if grant is not None:
            await self._wait_for(grant)
        try:
            while self._positional:
                self._idle = self._loop.create_future()
                await self._idle
        except BaseException:
            self._end()
            raise

    async def _write_out_and_close(self) -> None:
        try:
            await self._write_out()
        except asyncio.CancelledError:
            raise
        except BaseException:
            await self._close_now()
            raise
        await self._close_now()

    def _closing_ended(
        self, grant: asyncio.Future[None] | None, closing: asyncio.Task[None]
    ) -> None:
        """Close the file if the closing task was cancelled before it began."""
        if self._closing is not closing:
            return
        self._closing = None
        if grant is None or grant.done():
            self._close_blocking()
        else:
            grant.add_done_callback(
                lambda grant: None if grant.cancelled() else self._close_blocking()
            )

    def _close_blocking(self) -> None:
        """Write buffered bytes and close the file, blocking the loop's thread; then release the lock."""
        try:
            # While operations at offsets may still use the descriptor, the file is not closed here but by its
            # finaliser.
            if self._fd >= 0 and not self._positional:
                try:
                    self._write_out_blocking(only_ready=self._pollable)
                finally:
                    fd = self._give_up_descriptor()
                    if self.closefd:
                        os.close(fd)
        finally:
            self._end()

    def _give_up_descriptor(self) -> int:
        """Mark the file as closed and return the descriptor."""
        fd, self._fd = self._fd, -1
        self._taken, self._at = b"", 0
        self._unwatch()
        return fd

    async def _close_now(self) -> None:
        fd = self._give_up_descriptor()
        if not self.closefd:
            return
        if self._loop.is_closed():
            os.close(fd)
            return
        try:
            await self._close_descriptor(fd)
        finally:
            after, self._after_close = self._after_close, None
            if after is not None:
                await after()

    async def _close_descriptor(self, fd: int) -> None:
        try:
            operation = self._files.close(fd)
        except RuntimeError:
            # The executor was shut down and accepts no more calls.
            os.close(fd)
            return
        try:
            await operation.future
        except (asyncio.CancelledError, GeneratorExit):
            # Nothing waits for the result of this close. The descriptor is closed even if an error is
            # returned.
            operation.abandon(lambda result, error: None)
            raise

    def __del__(self) -> None:
        if self._fd < 0:
            self._unwatch()
            return
        if self.closefd:
            warnings.warn(f"unclosed file {self!r}", ResourceWarning, stacklevel=2, source=self)
        # If an abandoned write has not ended, it is unknown how many bytes it has written. The buffer is
        # dropped, because bytes must not be written twice.
        try:
            if not self._busy:
                self._write_out_blocking()
        finally:
            fd = self._give_up_descriptor()
            if self.closefd:
                os.close(fd)
