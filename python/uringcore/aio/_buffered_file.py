"""Buffered binary files, as ``io.BufferedReader``, ``BufferedWriter`` and ``BufferedRandom``.

A call that the buffer can answer does not suspend. After a cancelled call:

- a read has consumed nothing, and bytes that had arrived are available to the next one;
- a write that had begun is accepted whole and is written in order, with the next ``flush``, ``write``
  or ``close``;
- a call that was still waiting for the lock has done nothing.

``_file_buffer`` implements the buffer, and ``_text_file`` text files.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

from ._binary_file import AsyncFile
from ._file_backends import Opened
from ._file_base import as_bytes, as_size
from ._raw_file import AsyncFileIO

__all__ = ["AsyncBufferedIOBase", "AsyncBufferedReader"]


class AsyncBufferedIOBase(AsyncFile):
    """A buffered binary file that is only written, so it has no ``peek``."""

    _raw: AsyncFileIO | None = None
    # A method of the text file above this file, which discards decoded text. It is called when this file is
    # closed or detached.
    _forget_above: weakref.WeakMethod[Callable[[], None]] | None = None

    @property
    def raw(self) -> AsyncFileIO:
        """An unbuffered file on this descriptor. Closing it does not close this file."""
        self._check_open()
        if self._raw is None or self._raw.closed:
            self._raw = self._unbuffered(closefd=False)
        return self._raw

    def detach(self) -> AsyncFileIO:
        """Transfer the descriptor to an unbuffered file. Not a coroutine, as in aiofiles.

        Buffered bytes are written first, in the calling thread.

        Raises:
            ValueError: the file is closed, or an operation is in progress.
        """
        self._check_open()
        if self._busy or self._positional:
            raise ValueError("detach: an operation of the file is under way")
        self._write_out_blocking()
        self._undo_read_ahead()
        raw = self._unbuffered(self.closefd)
        self._give_up_descriptor()
        return raw

    def _give_up_descriptor(self) -> int:
        # The file that `raw` has returned must not use the descriptor any more, because its number may soon
        # belong to another file.
        if self._raw is not None:
            self._raw._fd = -1
        forget = self._forget_above and self._forget_above()
        if forget:
            forget()
        return super()._give_up_descriptor()

    def _unbuffered(self, closefd: bool) -> AsyncFileIO:
        opened = Opened(self._fd, os.fstat(self._fd).st_mode)
        return AsyncFileIO(self._files, opened, self._name, self.mode, closefd)

    async def read1(self, size: int = -1, /) -> bytes:
        """Read at most ``size`` bytes with at most one read of the descriptor.

        Raises:
            As :meth:`read`.
        """
        wanted = as_size(size)
        await self._begin_reading()
        try:
            if wanted < 0:
                wanted = self._ahead_max
            if wanted == 0 or self._at < len(self._taken):
                return self._take(wanted)
            return await self._read_once(wanted)
        finally:
            self._end()

    async def write(self, data: Any, /) -> int:
        """Write all of ``data``: into the buffer while there is space, otherwise to the file.

        Returns:
            The number of bytes of ``data``.

        Raises:
            OSError: writing failed (``ENOSPC``...). Earlier bytes stay in the buffer; a part of ``data``
                may have been written.
            TypeError: ``data`` is not bytes-like.
            ValueError: the file is closed.
            io.UnsupportedOperation: the file is not open for writing.
        """
        self._check_writable()
        piece = as_bytes(data)
        size = len(piece)
        if self._accept(piece):
            return size
        await self._begin()
        try:
            await self._put(piece)
            return size
        finally:
            self._end()

    async def _put(self, piece: bytes) -> None:
        """Write all of ``piece``, while this task holds the file's lock."""
        self._check_open()
        size = len(piece)
        if self._taken:
            self._undo_read_ahead()
        if self._unwritten + size > self._limit:
            await self._write_out()
        self._out.append(piece)
        self._unwritten += size
        if size > self._limit:
            try:
                await self._write_out()
            except OSError:
                # The write has failed, so the caller still has this data. The data is dropped, because it
                # must not be written later.
                self._out.clear()
                self._unwritten = 0
                raise

    def _accept(self, piece: bytes) -> bool:
        """Put ``piece`` into the buffer, if nothing else has to be done first. Returns True on success."""
        size = len(piece)
        if self._busy or self._taken or self._unwritten + size > self._limit:
            return False
        self._out.append(piece)
        self._unwritten += size
        return True


class AsyncBufferedReader(AsyncBufferedIOBase):
    """A buffered binary file that is read, or read and written."""

    async def peek(self, size: int = 0, /) -> bytes:
        """Return read-ahead bytes without moving the position; reads at most once if there are none.

        ``size`` is ignored, as in ``io.BufferedReader``.

        Raises:
            As :meth:`read`.
        """
        await self._begin_reading()
        try:
            if self._at == len(self._taken):
                self._taken, self._at = await self._fetch(), 0
            return self._taken[self._at :]
        finally:
            self._end()
