"""An open file: what all binary files offer, with or without a buffer, and its end.

Not here: single operations (``_descriptor``), gathering (``_buffered``), single reads as the caller
sees them (``_raw``).
"""

from __future__ import annotations

import asyncio
import io
import os
import warnings
from typing import Any, TypeVar

from ._descriptor import PIECE_MAX_BYTES, Descriptor
from ._files import DIRECT_MAX_BYTES

__all__ = ["AsyncFile", "as_bytes"]

_Self = TypeVar("_Self", bound="AsyncFile")


class AsyncFile(Descriptor):
    """The common part of the binary files. Made by :func:`uringcore.aio.open`."""

    __slots__ = ()

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
                want = min(size, PIECE_MAX_BYTES)
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


def _ignore(result: Any, error: BaseException | None) -> None:
    """A descriptor is gone whatever closing it came to, and nobody is left to be told."""
