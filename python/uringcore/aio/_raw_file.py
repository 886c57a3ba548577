"""Unbuffered binary files, as ``io.FileIO``: one operation for one call.

``_binary_file`` and ``_file_buffer`` have the code that buffered files share.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import _uringcore
from ._binary_file import AsyncFile
from ._file_base import as_bytes, as_size

__all__ = ["AsyncFileIO"]

_LINE_PIECE_BYTES = 4096


class AsyncFileIO(AsyncFile):
    """An unbuffered binary file.

    Its ``readline`` reads too much and moves the position back, so it is slow; a file without
    a position is read byte by byte.
    """

    _is_buffered = False

    async def read(self, size: int | None = -1, /) -> bytes:
        """Read at most ``size`` bytes with one read; all remaining bytes if negative.

        Returns:
            The available bytes; empty at the end of the file.

        Raises:
            OSError: reading failed.
            ValueError: the file is closed.
            io.UnsupportedOperation: the file is not open for reading.
        """
        self._check_readable()
        wanted = as_size(size)
        await self._begin_reading()
        try:
            return await (self._collect(-1, False) if wanted < 0 else self._read_some(wanted))
        finally:
            self._end()

    async def readall(self) -> bytes:
        """Read all remaining bytes. Raises the errors of :meth:`read`."""
        return await self.read(-1)

    async def write(self, data: Any, /) -> int:
        """Write ``data`` with one write.

        After a cancellation the data may have been written or not.

        Returns:
            The number of written bytes, which may be less than the length of ``data``.

        Raises:
            OSError: writing failed.
            TypeError: ``data`` is not bytes-like.
            ValueError: the file is closed.
            io.UnsupportedOperation: the file is not open for writing.
        """
        self._check_writable()
        piece = as_bytes(data)
        await self._begin()
        try:
            self._check_open()
            self._undo_read_ahead()
            count: int = await self._transfer(piece, write=True)
            return count
        finally:
            self._end()

    async def writelines(self, lines: Iterable[Any], /) -> None:
        """Write each of ``lines`` completely. Raises the errors of :meth:`write`."""
        self._check_open()
        for line in lines:
            rest = as_bytes(line)
            while rest := rest[await self.write(rest) :]:
                continue

    async def _read_some(self, size: int) -> bytes:
        if size == 0 or self._at < len(self._taken):
            return self._take(size)
        got = await self._read_once(size)
        if 0 < len(got) < size and self._regular:
            _, length, _, position = _uringcore.file_describe(self._fd)
            if position is not None and position < length:
                # The bytes so far were cached; the next ones must be read from the device.
                try:
                    got += await self._read_once(size - len(got))
                except BaseException:
                    self._taken, self._at = got + self._taken[self._at :], 0
                    raise
        return got

    async def _collect(self, limit: int, line: bool) -> bytes:
        got = await super()._collect(limit, line)
        if self._at < len(self._taken) and self._has_position():
            self._undo_read_ahead()
        return got

    async def _fetch(self) -> bytes:
        return await self._read_once(_LINE_PIECE_BYTES if self._has_position() else 1)
