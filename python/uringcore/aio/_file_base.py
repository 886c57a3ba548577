"""The methods that binary and text files share.

``_taken`` holds bytes or text that were read ahead, and ``_at`` is the position in it. A call that it
can answer does not suspend. ``_below()`` is the binary file: that of a text file, or the file itself.
``_binary_file`` and ``_text_file`` fill ``_taken`` and handle positions.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable
from typing import Any, AnyStr, Generic, TypeVar

from ._file_backends import DIRECT_MAX_BYTES, PIECE_MAX_BYTES
from ._file_buffer import Buffer
from ._operation_order import OrderedOperations

__all__ = ["AsyncIOBase", "as_bytes", "as_size"]

_Self = TypeVar("_Self", bound="AsyncIOBase[Any]")


class AsyncIOBase(OrderedOperations, Generic[AnyStr]):
    """A file of ``bytes`` or ``str``."""

    _taken: AnyStr
    _at: int
    # The string that ends every line of this file. None if lines may end in different ways; `_collect` then
    # finds the ends.
    _line_end: AnyStr | None

    def _below(self) -> Buffer:
        raise NotImplementedError

    def _check_open(self) -> None:
        self._below()._check_open()

    async def _begin_reading(self) -> None:
        """Wait for the file's lock, and do what must precede a read, such as writing buffered bytes."""
        raise NotImplementedError

    def _reads_no_line(self) -> bool:
        """True if reading a line of at most 0 characters succeeds although the file is not readable."""
        return False

    async def _collect(self, limit: int, line: bool) -> AnyStr:
        """Read up to ``limit`` bytes or characters (negative: no limit), to the end of the file, or to the
        end of a line if ``line`` is true."""
        raise NotImplementedError

    # Properties that need no operation ------------------------------------------------------------

    @property
    def name(self) -> Any:
        """The path, or the descriptor that the file was opened with."""
        return self._below()._name

    @property
    def closed(self) -> bool:
        """True once the file is closed."""
        return self._below()._fd < 0

    def fileno(self) -> int:
        """The descriptor.

        Raises:
            ValueError: the file is closed.
        """
        self._check_open()
        return self._below()._fd

    async def writable(self) -> bool:
        """True if the file was opened for writing."""
        self._check_open()
        return self._below()._writable

    async def seekable(self) -> bool:
        """True if the file has a position."""
        self._check_open()
        return self._below()._has_position()

    async def isatty(self) -> bool:
        """True if the file is a terminal."""
        return os.isatty(self.fileno())

    # Reading and writing in sequence --------------------------------------------------------------

    async def read(self, size: int | None = -1, /) -> AnyStr:
        """Read ``size`` bytes or characters, fewer only at the end of the file; all if negative.

        Raises:
            OSError: reading failed.
            UnicodeDecodeError: the bytes are not text of the file's encoding.
            ValueError: the file is closed, or ``size`` of a binary file is below -1.
            io.UnsupportedOperation: the file is not open for reading.
        """
        if size.__class__ is int and not self._busy:
            at = self._at
            end = at + size
            if at < end <= len(self._taken):
                self._at = end
                return self._taken[at:end]
        limit = as_size(size)
        await self._begin_reading()
        try:
            return await self._collect(limit, line=False)
        finally:
            self._end()

    async def readline(self, size: int | None = -1, /) -> AnyStr:
        """Read a line with its end, at most ``size`` bytes or characters; empty at the end of the file.

        Raises:
            As :meth:`read`.
        """
        mark = self._line_end
        if mark and not self._busy and (size is None or size == -1):
            at = self._at
            # A closed file has no bytes that were read ahead, so no check for a closed file is needed.
            end = self._taken.find(mark, at) + 1
            if end:
                self._at = end
                return self._taken[at:end]
        limit = as_size(size)
        if limit == 0 and self._reads_no_line():
            return self._taken[:0]
        await self._begin_reading()
        try:
            return await self._collect(limit, line=True)
        finally:
            self._end()

    async def readlines(self, hint: int | None = -1, /) -> list[AnyStr]:
        """Read lines to the end, or until they are more than ``hint`` bytes or characters.

        Raises:
            As :meth:`read`.
        """
        limit = as_size(hint)
        lines: list[AnyStr] = []
        total = 0
        while line := await self.readline():
            lines.append(line)
            total += len(line)
            if 0 < limit < total:
                break
        return lines

    def __aiter__(self: _Self) -> _Self:
        return self

    async def __anext__(self) -> AnyStr:
        mark = self._line_end
        if mark and not self._busy:
            at = self._at
            end = self._taken.find(mark, at) + 1
            if end:
                self._at = end
                return self._taken[at:end]
        if line := await self.readline():
            return line
        raise StopAsyncIteration

    async def write(self, data: Any, /) -> int:
        raise NotImplementedError

    async def writelines(self, lines: Iterable[Any], /) -> None:
        """Write each of ``lines``, without adding line ends. Raises the errors of :meth:`write`."""
        self._check_open()
        for line in lines:
            await self.write(line)

    # Reading and writing at an offset -------------------------------------------------------------

    async def pread(self, size: int, offset: int, /) -> bytes:
        """Read bytes at an offset, without moving the position.

        Several may be under way at once; they do not wait for other operations of the file, except
        for written bytes that are still in the buffer, which are flushed first.

        Args:
            size: the maximum number of bytes; fewer only at the end of the file.
            offset: bytes from the start of the file.

        Raises:
            OSError: the read failed; ``ESPIPE`` for a file without positions.
            ValueError: a negative argument, or the file is closed.
            io.UnsupportedOperation: the file is not open for reading.
        """
        below = self._below()
        below._check_readable()
        if size < 0 or offset < 0:
            raise ValueError("pread: size and offset must not be negative")
        if below._busy or below._unwritten:
            await below._settle()
        parts: list[bytes] = []
        while size > 0:
            got: Any = None
            while below._direct and size <= DIRECT_MAX_BYTES:
                got = below._files.direct.read(below._fd, size, offset)
                if got is not True:
                    break
                await below._rest()
                below._check_open()
            if got.__class__ is not bytes:
                if got is False:
                    below._direct = False
                want = min(size, PIECE_MAX_BYTES)
                got = await below._at_offset(below._files.read(below._fd, want, offset))
            if len(got) == size and not parts:
                whole: bytes = got
                return whole
            if not got:
                break
            below._check_open()
            parts.append(got)
            size -= len(got)
            offset += len(got)
        return b"".join(parts)

    async def pwrite(self, data: Any, offset: int, /) -> int:
        """Write all of ``data`` at an offset, without moving the position.

        It is not buffered. A file in append mode writes at its end regardless of the offset, as
        ``pwrite(2)`` does on Linux.

        Args:
            data: a bytes-like object.
            offset: bytes from the start of the file.

        Returns:
            The number of bytes, which is always all of them.

        Raises:
            OSError: the write failed, perhaps after a part of the data.
            ValueError: a negative offset, or the file is closed.
            io.UnsupportedOperation: the file is not open for writing.
        """
        below = self._below()
        below._check_writable()
        if offset < 0:
            raise ValueError("pwrite: the offset must not be negative")
        piece = as_bytes(data)
        size = len(piece)
        await below._settle(step_back=len(below._taken) > 0)
        while piece:
            below._check_open()
            count = await below._at_offset(below._files.write(below._fd, piece, offset))
            # The remaining bytes are copied, which is rare: writes to files are short only after errors.
            piece = piece[count:]
            offset += count
        return size

    # The file as a whole --------------------------------------------------------------------------

    async def flush(self) -> None:
        """Pass all buffered bytes to the kernel.

        Raises:
            OSError: writing failed. Unwritten bytes stay in the buffer.
            ValueError: the file is closed.
        """
        self._check_open()
        await self._below()._settle()

    async def fsync(self) -> None:
        """Flush, and wait until the file's contents and attributes are on the disk.

        Raises:
            OSError: the device failed; written data may be lost.
            ValueError: the file is closed.
        """
        await self._sync(data_only=False)

    async def fdatasync(self) -> None:
        """Flush, and wait until the file's contents are on the disk. Errors as :meth:`fsync`."""
        await self._sync(data_only=True)

    async def _sync(self, data_only: bool) -> None:
        await self.flush()
        fd, below = self.fileno(), self._below()
        await below._at_offset(below._files.sync(fd, data_only))

    async def stat(self) -> os.stat_result:
        """Returns the file's attributes, as ``os.fstat``, without buffered bytes.

        Raises:
            ValueError: the file is closed.
        """
        fd, below = self.fileno(), self._below()
        return os.stat_result(await below._at_offset(below._files.fstat(fd)))

    async def close(self) -> None:
        raise NotImplementedError

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"cannot pickle {type(self).__name__!r} instances")

    async def __aenter__(self: _Self) -> _Self:
        self._check_open()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


def as_size(size: Any) -> int:
    """Returns the size argument of a read as an integer: -1 for ``None``.

    Raises:
        TypeError: ``size`` is neither an integer nor ``None``.
    """
    if size is None:
        return -1
    try:
        return operator.index(size)
    except TypeError:
        kind = type(size).__name__
        raise TypeError(f"argument should be integer or None, not '{kind}'") from None


def as_bytes(data: Any) -> bytes:
    """Returns the argument of a write as immutable bytes: a mutable object may change before it is written.

    Raises:
        TypeError: it is not bytes-like.
    """
    if data.__class__ is bytes:
        return data
    if isinstance(data, str):
        raise TypeError("a bytes-like object is required, not 'str'")
    return memoryview(data).tobytes()
