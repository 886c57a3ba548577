"""The buffer of a binary file: bytes read ahead, or bytes that wait to be written.

At any time either bytes were read ahead (``_taken``) or bytes wait to be written (``_out``), never
both. An unbuffered file has read-ahead bytes only after a cancelled read, and no bytes to write.
``_descriptor_io`` implements single operations, and ``_binary_file`` a file's methods.
"""

from __future__ import annotations

import io
import os
import select
from typing import Any

from .. import _uringcore
from ._descriptor_io import PIPE_BUF_BYTES, Descriptor
from ._file_backends import Files, Opened

__all__ = ["Buffer"]

# The number of bytes to read ahead: the minimum at first and after a seek, doubled at each read up to the
# maximum.
_AHEAD_MIN_BYTES = 8 * 1024
_AHEAD_MAX_BYTES = 64 * 1024
_WRITE_BYTES = 64 * 1024
# The size of one read(2) from a file whose size is unknown (in /proc, a pipe).
_UNKNOWN_PIECE_BYTES = 64 * 1024
_PIECE_MIN_BYTES = 1024 * 1024
_LINE_END = ord("\n")


class Buffer(Descriptor):
    """The part of a binary file that reads and writes in sequence."""

    # False for an unbuffered file, whose position moves by the bytes of each read, and which writes at once.
    _is_buffered = True

    def __init__(
        self,
        files: Files,
        opened: Opened,
        name: Any,
        mode: str,
        closefd: bool = True,
        buffer_size: int | None = None,
    ) -> None:
        super().__init__(files, opened, name, mode, closefd)
        self._ahead_first = self._ahead = buffer_size or _AHEAD_MIN_BYTES
        self._ahead_max = buffer_size or _AHEAD_MAX_BYTES
        # `_limit` is the maximum number of unwritten bytes, `_out` has the unwritten pieces in order, and
        # `_out_size` is their total size.
        self._limit = (buffer_size or _WRITE_BYTES) if self._writable and self._is_buffered else 0
        self._out: list[bytes] = []
        self._unwritten = 0

    def _check_readable(self) -> None:
        if self._fd < 0 or not self._readable:
            self._check_open()
            raise io.UnsupportedOperation("File not open for reading")

    def _check_writable(self) -> None:
        if self._fd < 0 or not self._writable:
            self._check_open()
            raise io.UnsupportedOperation("File not open for writing")

    # Reading --------------------------------------------------------------------------------------

    async def _begin_reading(self) -> None:
        self._check_readable()
        await self._begin()
        try:
            self._check_open()
            if self._unwritten:
                await self._write_out()
        except BaseException:
            self._end()
            raise

    def _take(self, size: int, line: bool = False) -> bytes:
        """Take at most ``size`` read-ahead bytes, or all if negative, up to the end of a line."""
        at = self._at
        end = len(self._taken) if size < 0 else min(at + size, len(self._taken))
        if line:
            end = self._taken.find(b"\n", at, end) + 1 or end
        self._at = end
        return self._taken[at:end]

    async def _collect(self, limit: int, line: bool) -> bytes:
        """Read up to ``limit``, the end of the file or the end of a line; negative for no limit.

        If the read is cancelled or fails, the bytes it had read are returned first by the next one.
        """
        if limit < -1 and not line:
            raise ValueError("read length must be non-negative or -1")
        parts: list[bytes] = []
        left = limit
        try:
            while left:
                if self._at < len(self._taken):
                    part = self._take(left, line)
                elif not line and not 0 <= left < self._ahead:
                    # A read larger than the read-ahead size skips the buffer.
                    part = await self._read_once(self._piece(left))
                else:
                    self._taken, self._at = await self._fetch(), 0
                    part = self._take(left, line)
                if not part:
                    break
                parts.append(part)
                left -= len(part)
                if line and part[-1] == _LINE_END:
                    break
        except BaseException:
            self._taken, self._at = b"".join([*parts, self._taken[self._at :]]), 0
            raise
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _fetch(self) -> bytes:
        """Read ahead once."""
        got = await self._read_once(self._ahead)
        self._ahead = min(2 * self._ahead, self._ahead_max)
        return got

    def _piece(self, size: int) -> int:
        """Returns the size of a read if ``size`` is wanted, to avoid memory for bytes that do not exist."""
        if 0 <= size <= _PIECE_MIN_BYTES:
            return size
        _, length, _, position = _uringcore.file_describe(self._fd)
        if position is None or length <= position:
            rest = _UNKNOWN_PIECE_BYTES
        else:
            # One byte more than the file still has, so that one read returns the data and finds the end of
            # the file.
            rest = length - position + 1
        return rest if size < 0 else min(size, max(rest, _PIECE_MIN_BYTES))

    # Writing --------------------------------------------------------------------------------------

    async def _settle(self, step_back: bool = False) -> None:
        """Write buffered bytes and those of pending operations; with ``step_back`` undo reading ahead."""
        if not (step_back or self._unwritten or (self._busy and self._limit)):
            return
        await self._begin()
        try:
            self._check_open()
            await self._write_out()
            if step_back:
                self._undo_read_ahead()
        finally:
            self._end()

    async def _write_out(self) -> None:
        while self._unwritten:
            if len(self._out) > 1:
                self._out = [b"".join(self._out)]
            self._abandoned_write_ended(await self._transfer(self._out[0], write=True))

    def _abandoned_write_ended(self, count: int) -> None:
        if count and self._out:
            rest = self._out[0][count:]
            self._out[:1] = [rest] if rest else []
            self._unwritten -= count

    def _write_out_blocking(self, only_ready: bool = False) -> None:
        """Write the buffered bytes in this thread.

        Args:
            only_ready: drop bytes that a pipe, socket or terminal does not accept at once.
        """
        for piece in self._out:
            rest = memoryview(piece)
            while rest and not (only_ready and not self._is_ready_to_write()):
                most = rest[:PIPE_BUF_BYTES] if only_ready else rest
                rest = rest[os.write(self._fd, most) :]
        self._out.clear()
        self._unwritten = 0

    def _is_ready_to_write(self) -> bool:
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        return bool(poll.poll(0))
