"""Buffered binary files: what ``io.BufferedReader``, ``BufferedWriter`` and ``BufferedRandom`` do.

One class serves all three: at any time either bytes were read ahead (``_taken``) or bytes wait to be
written (``_out``), never both. A call that the buffer can answer does not suspend.

What a cancelled call leaves: a read has taken nothing, whatever had arrived is there for the next
one; a write that had begun is accepted whole and goes out in order, with the next ``flush``, ``write``
or ``close``; one that still waited for its turn has done nothing. Not here: single reads and writes
(``_file``), text (``_text``).
"""

from __future__ import annotations

import errno
import io
import operator
import os
from collections.abc import Iterable
from typing import Any, TypeVar

from .. import _uringcore
from ._descriptor import Source
from ._file import AsyncFile, as_bytes
from ._raw import AsyncFileIO

__all__ = ["AsyncBufferedIOBase", "AsyncBufferedReader"]

_Self = TypeVar("_Self", bound="AsyncBufferedIOBase")

# Read ahead: this much at first and after a jump, then twice as much each time.
_AHEAD_MIN_BYTES = 8 * 1024
_AHEAD_MAX_BYTES = 64 * 1024
_WRITE_BUFFER_BYTES = 64 * 1024
# Reading to the end of a file whose size says nothing (/proc, a pipe).
_UNKNOWN_PIECE_BYTES = 64 * 1024
_PIECE_MIN_BYTES = 1024 * 1024


class AsyncBufferedIOBase(AsyncFile):
    """A buffered binary file that cannot be peeked into: one that is only written.

    Args:
        source: the open descriptor.
        buffer_size: bytes; ``None`` to fit the buffer to what is done.
    """

    __slots__ = ("_ahead", "_ahead_first", "_ahead_max", "_limit", "_out", "_raw", "_unwritten")

    def __init__(self, source: Source, buffer_size: int | None = None) -> None:
        super().__init__(source)
        self._ahead_first = self._ahead = buffer_size or _AHEAD_MIN_BYTES
        self._ahead_max = buffer_size or _AHEAD_MAX_BYTES
        self._limit = buffer_size or _WRITE_BUFFER_BYTES
        # Pieces to be written, in order, and how many bytes they are.
        self._out: list[bytes] = []
        self._unwritten = 0
        self._raw: AsyncFileIO | None = None

    @property
    def raw(self) -> AsyncFileIO:
        """The same descriptor without a buffer. Closing it does not close this file."""
        self._check_open()
        if self._raw is None or self._raw.closed:
            self._raw = AsyncFileIO(self._source(closefd=False))
        return self._raw

    def detach(self) -> AsyncFileIO:
        """Give the descriptor up to an unbuffered file. Not a coroutine, as in aiofiles.

        What is buffered is written before, in the calling thread.

        Raises:
            ValueError: the file is closed, or an operation is under way.
        """
        self._check_open()
        if self._busy or self._positional:
            raise ValueError("detach: an operation of the file is under way")
        self._write_out_blocking()
        if self._taken:
            self._step_back()
        raw = AsyncFileIO(self._source(closefd=self._closefd))
        self._fd = -1
        self._unwatch()
        return raw

    def _source(self, closefd: bool) -> Source:
        mode = os.fstat(self._fd).st_mode
        return Source(self._files, self._fd, self._name, self._mode, closefd, mode)

    # Reading --------------------------------------------------------------------------------------

    async def read(self, size: int | None = -1, /) -> bytes:
        """Read ``size`` bytes, fewer only at the end of the file; all that is left if negative.

        Raises:
            OSError: reading failed.
            ValueError: ``size`` is below -1, or the file is closed.
            io.UnsupportedOperation: the file is not open for reading.
        """
        if size.__class__ is int and not self._busy:
            at = self._at
            end = at + size
            if at < end <= len(self._taken):
                self._at = end
                return self._taken[at:end]
        wanted = _size(size)
        if wanted is not None and wanted < -1:
            raise ValueError("read length must be non-negative or -1")
        await self._begin_reading("read")
        try:
            return await (
                self._gather(wanted) if wanted is not None and wanted >= 0 else self._all()
            )
        finally:
            self._end()

    async def read1(self, size: int = -1, /) -> bytes:
        """Read at most ``size`` bytes with at most one read of the descriptor.

        Raises:
            As :meth:`read`.
        """
        wanted = operator.index(size)
        await self._begin_reading("read1")
        try:
            if wanted == 0:
                return b""
            if wanted < 0:
                wanted = self._ahead_max
            if self._at == len(self._taken):
                return await self._read_once(wanted)
            return self._take(wanted)
        finally:
            self._end()

    async def readinto(self, buffer: Any, /) -> int:
        """Read into a writable buffer until it is full or the file ends. Returns the byte count.

        Raises:
            TypeError: the buffer is not writable.
            As :meth:`read`.
        """
        self._check_open()
        if not self._readable:
            raise io.UnsupportedOperation("readinto")
        with memoryview(buffer) as view:
            if view.readonly:
                kind = type(buffer).__name__
                raise TypeError(
                    f"readinto() argument must be read-write bytes-like object, not {kind}"
                )
            with view.cast("B") as room:
                data = await self.read(len(room)) if len(room) else b""
                room[: len(data)] = data
                self._check_open()
                return len(data)

    async def readline(self, size: int | None = -1, /) -> bytes:
        """Read up to and with the next ``\\n``, at most ``size`` bytes; empty at the end of the file.

        Raises:
            As :meth:`read`.
        """
        if not self._busy and (size is None or size == -1):
            at = self._at
            end = self._taken.find(b"\n", at) + 1
            if end:
                self._at = end
                return self._taken[at:end]
        limit = _size(size)
        await self._begin_reading("readline")
        try:
            return await self._line(-1 if limit is None else limit)
        finally:
            self._end()

    async def readlines(self, hint: int | None = -1, /) -> list[bytes]:
        """Read lines to the end, or until they are more than ``hint`` bytes.

        Raises:
            As :meth:`read`.
        """
        limit = _size(hint)
        lines: list[bytes] = []
        total = 0
        while line := await self.readline():
            lines.append(line)
            total += len(line)
            if limit is not None and 0 < limit < total:
                break
        return lines

    def __aiter__(self: _Self) -> _Self:
        return self

    async def __anext__(self) -> bytes:
        if not self._busy:
            at = self._at
            end = self._taken.find(b"\n", at) + 1
            if end:
                self._at = end
                return self._taken[at:end]
        if line := await self.readline():
            return line
        raise StopAsyncIteration

    async def _begin_reading(self, call: str) -> None:
        self._check_open()
        if not self._readable:
            raise io.UnsupportedOperation(call)
        await self._begin()
        try:
            self._check_open()
            if self._unwritten:
                await self._write_out()
        except BaseException:
            self._end()
            raise

    def _take(self, size: int) -> bytes:
        at = self._at
        data = self._taken[at : at + size]
        self._at = at + len(data)
        return data

    def _keep(self, data: bytes) -> None:
        """Bytes that come after those taken already."""
        self._taken = self._taken[self._at :] + data
        self._at = 0

    def _put_back(self, parts: list[bytes]) -> None:
        """A read did not come to its end: what it had comes before those taken."""
        self._taken = b"".join([*parts, self._taken[self._at :]])
        self._at = 0

    async def _fetch(self) -> bytes:
        """Read ahead once."""
        got = await self._read_once(self._ahead)
        self._ahead = min(2 * self._ahead, self._ahead_max)
        return got

    async def _gather(self, size: int) -> bytes:
        parts: list[bytes] = []
        try:
            while size > 0:
                if self._at == len(self._taken):
                    # What is more than would be read ahead goes straight to the caller.
                    if size >= self._ahead:
                        got = await self._read_once(self._piece(size))
                    else:
                        got = await self._fetch()
                    if not got:
                        break
                    if len(got) > size:
                        self._keep(got)
                        got = self._take(size)
                else:
                    got = self._take(size)
                parts.append(got)
                size -= len(got)
        except BaseException:
            self._put_back(parts)
            raise
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _all(self) -> bytes:
        parts: list[bytes] = []
        try:
            if self._at < len(self._taken):
                parts.append(self._take(len(self._taken)))
            while got := await self._read_once(self._rest_of_file()):
                parts.append(got)
        except BaseException:
            self._put_back(parts)
            raise
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _line(self, limit: int) -> bytes:
        parts: list[bytes] = []
        total = 0
        try:
            while limit != total:
                if self._at == len(self._taken):
                    got = await self._fetch()
                    if not got:
                        break
                    self._keep(got)
                at = self._at
                most = len(self._taken) if limit < 0 else min(len(self._taken), at + limit - total)
                end = self._taken.find(b"\n", at, most) + 1
                part = self._take((end or most) - at)
                parts.append(part)
                total += len(part)
                if end:
                    break
        except BaseException:
            self._put_back(parts)
            raise
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _piece(self, size: int) -> int:
        """How much to ask for when ``size`` is wanted: no memory for what the file does not have."""
        if size <= _PIECE_MIN_BYTES:
            return size
        return min(size, max(self._rest_of_file(), _PIECE_MIN_BYTES))

    def _rest_of_file(self) -> int:
        """One more than there seems to be, so that a single read meets the end."""
        _, size, _, position = _uringcore.file_describe(self._fd)
        if position is None or size <= position:
            return _UNKNOWN_PIECE_BYTES
        return size - position + 1

    # Writing --------------------------------------------------------------------------------------

    async def write(self, data: Any, /) -> int:
        """Write all of ``data``: into the buffer while it has room, else to the file.

        Returns:
            The number of bytes of ``data``.

        Raises:
            OSError: writing failed (``ENOSPC``...). Earlier bytes stay in the buffer; of ``data``
                a part may have been written.
            TypeError: ``data`` is not bytes-like.
            ValueError: the file is closed.
            io.UnsupportedOperation: the file is not open for writing.
        """
        self._check_open()
        if not self._writable:
            raise io.UnsupportedOperation("write")
        piece = as_bytes(data)
        size = len(piece)
        if self._accept(piece):
            return size
        await self._begin()
        try:
            self._check_open()
            if self._taken:
                self._step_back()
            if self._unwritten + size > self._limit:
                await self._write_out()
            self._out.append(piece)
            self._unwritten += size
            if size > self._limit:
                await self._write_through(size)
            return size
        finally:
            self._end()

    def _accept(self, piece: bytes) -> bool:
        """Take ``piece`` into the buffer, if that is all that there is to do."""
        size = len(piece)
        if self._busy or self._taken or self._unwritten + size > self._limit:
            return False
        self._out.append(piece)
        self._unwritten += size
        return True

    async def writelines(self, lines: Iterable[Any], /) -> None:
        """Write each of ``lines``; no separators are added. Errors as :meth:`write`."""
        self._check_open()
        for line in lines:
            await self.write(line)

    async def flush(self) -> None:
        """Hand everything that is buffered to the kernel.

        Raises:
            OSError: writing failed. What was not written stays in the buffer.
            ValueError: the file is closed.
        """
        self._check_open()
        if not self._unwritten and not self._busy:
            return
        await self._begin()
        try:
            self._check_open()
            await self._write_out()
        finally:
            self._end()

    async def _write_out(self) -> None:
        while self._unwritten:
            if len(self._out) > 1:
                self._out = [b"".join(self._out)]
            self._wrote_late(await self._write_once(self._out[0]))

    async def _write_through(self, size: int) -> None:
        """Write more than the buffer is for. What fails is the caller's, and not kept."""
        try:
            await self._write_out()
        except OSError:
            self._out.clear()
            self._unwritten = 0
            raise

    def _wrote_late(self, count: int) -> None:
        if count:
            rest = self._out[0][count:]
            self._out[:1] = [rest] if rest else []
            self._unwritten -= count

    def _has_unwritten(self) -> bool:
        return self._unwritten > 0

    def _write_out_blocking(self) -> None:
        for piece in self._out:
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        self._out.clear()
        self._unwritten = 0

    async def _settle(self, drop: bool = False) -> None:
        if self._unwritten or (drop and self._taken) or (self._busy and self._writable):
            await self._begin()
            try:
                self._check_open()
                await self._write_out()
                if drop and self._taken:
                    self._step_back()
            finally:
                self._end()

    # Position -------------------------------------------------------------------------------------

    async def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to ``offset`` from the start (0), the position (1) or the end (2).

        Returns:
            The new position in bytes.

        Raises:
            OSError: the file has no position, or the target is before its start.
            ValueError: ``whence`` is unknown, or the file is closed.
        """
        self._check_open()
        if not 0 <= whence <= 4:
            raise ValueError(f"invalid whence ({whence}, should be 0, 1, 2, 3 or 4)")
        await self._begin()
        try:
            self._check_open()
            await self._rest_if_due()
            await self._write_out()
            ahead = len(self._taken) - self._at
            if whence == os.SEEK_CUR:
                offset -= ahead
            if ahead and whence in (os.SEEK_SET, os.SEEK_CUR):
                # A short way is gone inside of what was read ahead.
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
        """The position in bytes.

        Raises:
            OSError: the file has no position.
            ValueError: the file is closed.
        """
        self._check_open()
        if self._busy:
            await self._begin()
            try:
                return self._position()
            finally:
                self._end()
        return self._position()

    def _position(self) -> int:
        self._check_open()
        position = os.lseek(self._fd, 0, os.SEEK_CUR)
        return position - (len(self._taken) - self._at) + self._unwritten

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
        if not self._writable:
            raise io.UnsupportedOperation("truncate")
        length = _size(size)
        await self._begin()
        try:
            self._check_open()
            await self._write_out()
            if self._taken:
                self._step_back()
            if length is None:
                length = self._position()
            if length < 0:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            await self._truncate(length)
            return length
        finally:
            self._end()


class AsyncBufferedReader(AsyncBufferedIOBase):
    """A buffered binary file that is read, or read and written."""

    __slots__ = ()

    async def peek(self, size: int = 0, /) -> bytes:
        """What is read ahead, without moving; at most one read if nothing is.

        ``size`` is not looked at, as in ``io.BufferedReader``.

        Raises:
            As :meth:`read`.
        """
        await self._begin_reading("peek")
        try:
            if self._at == len(self._taken):
                self._keep(await self._fetch())
            return self._taken[self._at :]
        finally:
            self._end()


def _size(size: Any) -> int | None:
    if size is None:
        return None
    try:
        return operator.index(size)
    except TypeError:
        kind = type(size).__name__
        raise TypeError(f"argument should be integer or None, not '{kind}'") from None
