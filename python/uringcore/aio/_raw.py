"""Unbuffered binary files: what ``io.FileIO`` does, one operation for one call.

``_taken`` is empty but for bytes of a cancelled read, which the next one gets. Not here: buffers
(``_buffered``).
"""

from __future__ import annotations

import errno
import operator
import os
from collections.abc import Iterable
from typing import Any, TypeVar

from .. import _uringcore
from ._file import AsyncFile, as_bytes

__all__ = ["AsyncFileIO"]

_Self = TypeVar("_Self", bound="AsyncFileIO")

_LINE_PIECE_BYTES = 4096
_UNKNOWN_PIECE_BYTES = 64 * 1024


class AsyncFileIO(AsyncFile):
    """An unbuffered binary file."""

    __slots__ = ()

    async def read(self, size: int | None = -1, /) -> bytes:
        """Read at most ``size`` bytes with one read; everything that is left if negative.

        Returns:
            What was there; empty at the end of the file.

        Raises:
            OSError: reading failed.
            ValueError: the file is closed.
            io.UnsupportedOperation: the file is not open for reading.
        """
        self._check_open()
        self._check_readable()
        wanted = -1 if size is None else operator.index(size)
        if wanted < 0:
            return await self.readall()
        await self._begin()
        try:
            self._check_open()
            return await self._read_some(wanted)
        finally:
            self._end()

    async def readall(self) -> bytes:
        """Read everything that is left. Errors as :meth:`read`."""
        self._check_open()
        self._check_readable()
        parts: list[bytes] = []
        await self._begin()
        try:
            self._check_open()
            while got := await self._read_some(self._rest_of_file()):
                parts.append(got)
        except BaseException:
            self._put_back(parts)
            raise
        finally:
            self._end()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def readinto(self, buffer: Any, /) -> int:
        """Read into a writable buffer with one read. Returns the byte count. Errors as :meth:`read`.

        Raises:
            TypeError: the buffer is not writable.
        """
        self._check_open()
        self._check_readable()
        with memoryview(buffer) as view:
            if view.readonly:
                kind = type(buffer).__name__
                raise TypeError(
                    f"readinto() argument must be read-write bytes-like object, not {kind}"
                )
            with view.cast("B") as room:
                data = await self.read(len(room))
                room[: len(data)] = data
                return len(data)

    async def readline(self, size: int | None = -1, /) -> bytes:
        """Read up to and with the next ``\\n``, at most ``size`` bytes. Errors as :meth:`read`.

        More is read and the position set back, so this is slow without a buffer; a file without
        positions is read byte by byte.
        """
        self._check_open()
        self._check_readable()
        limit = -1 if size is None else operator.index(size)
        parts: list[bytes] = []
        total = 0
        await self._begin()
        try:
            self._check_open()
            piece = _LINE_PIECE_BYTES if self._has_position() else 1
            while total != limit:
                got = await self._read_some(min(piece, limit - total) if limit >= 0 else piece)
                end = got.find(b"\n") + 1
                if end:
                    self._put_back([got[end:]])
                    got = got[:end]
                parts.append(got)
                total += len(got)
                if end or not got:
                    break
            if self._taken:
                self._settle_position()
        except BaseException:
            self._put_back(parts)
            raise
        finally:
            self._end()
        return b"".join(parts)

    async def readlines(self, hint: int | None = -1, /) -> list[bytes]:
        """Read lines to the end, or until they are more than ``hint`` bytes. Errors as :meth:`read`."""
        lines: list[bytes] = []
        total = 0
        while line := await self.readline():
            lines.append(line)
            total += len(line)
            if hint is not None and 0 < hint < total:
                break
        return lines

    def __aiter__(self: _Self) -> _Self:
        return self

    async def __anext__(self) -> bytes:
        if line := await self.readline():
            return line
        raise StopAsyncIteration

    async def write(self, data: Any, /) -> int:
        """Write ``data`` with one write.

        A cancelled write may have been done or not.

        Returns:
            How many bytes were written, perhaps fewer than there are.

        Raises:
            OSError: writing failed.
            TypeError: ``data`` is not bytes-like.
            ValueError: the file is closed.
            io.UnsupportedOperation: the file is not open for writing.
        """
        self._check_open()
        self._check_writable()
        piece = as_bytes(data)
        await self._begin()
        try:
            self._check_open()
            self._settle_position()
            return await self._write_once(piece)
        finally:
            self._end()

    async def writelines(self, lines: Iterable[Any], /) -> None:
        """Write each of ``lines``, all of it. Errors as :meth:`write`."""
        self._check_open()
        for line in lines:
            rest = memoryview(as_bytes(line))
            while rest:
                rest = rest[await self.write(rest) :]

    async def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to ``offset`` from the start (0), the position (1) or the end (2).

        Returns:
            The new position in bytes.

        Raises:
            OSError: the file has no position, or the target is before its start.
            ValueError: the file is closed.
        """
        self._check_open()
        await self._begin()
        try:
            self._check_open()
            self._settle_position()
            return await self._move(offset, whence)
        finally:
            self._end()

    async def tell(self) -> int:
        """The position in bytes.

        Raises:
            OSError: the file has no position.
            ValueError: the file is closed.
        """
        return await self.seek(0, os.SEEK_CUR)

    async def truncate(self, size: int | None = None, /) -> int:
        """Cut or extend the file to ``size`` bytes, by default to the position, which stays.

        Returns:
            The new size.

        Raises:
            OSError: the file cannot be resized.
            ValueError: the file is closed.
            io.UnsupportedOperation: the file is not open for writing.
        """
        self._check_open()
        self._check_writable()
        await self._begin()
        try:
            self._check_open()
            self._settle_position()
            length = os.lseek(self._fd, 0, os.SEEK_CUR) if size is None else operator.index(size)
            if length < 0:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            await self._truncate(length)
            return length
        finally:
            self._end()

    async def _read_some(self, size: int) -> bytes:
        if self._at < len(self._taken):
            data = self._taken[self._at : self._at + size]
            self._at += len(data)
            return data
        if not size:
            return b""
        got = await self._read_once(size)
        if 0 < len(got) < size and self._regular and not self._at_end():
            # What was in memory; the rest has to be fetched.
            try:
                got += await self._read_once(size - len(got))
            except BaseException:
                self._put_back([got])
                raise
        return got

    def _at_end(self) -> bool:
        _, size, _, position = _uringcore.file_describe(self._fd)
        return position is None or position >= size

    def _put_back(self, parts: list[bytes]) -> None:
        self._taken = b"".join([*parts, self._taken[self._at :]])
        self._at = 0

    def _settle_position(self) -> None:
        """What a cancelled read or a line took too much is given back to the file."""
        if self._at < len(self._taken):
            self._step_back()

    def _rest_of_file(self) -> int:
        _, size, _, position = _uringcore.file_describe(self._fd)
        if position is None or size <= position:
            return _UNKNOWN_PIECE_BYTES
        return size - position + 1

    async def _settle(self, drop: bool = False) -> None:
        if drop and self._at < len(self._taken) and not self._busy:
            self._settle_position()
