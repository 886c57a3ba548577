"""Text files: ``io.TextIOWrapper``'s interface over a buffered file.

``_text_decoder`` decodes and handles positions, and ``_buffered_file`` handles bytes.
"""

from __future__ import annotations

import codecs
import io
import os
from typing import Any, Final

from ._buffered_file import AsyncBufferedIOBase
from ._text_decoder import TextReader

__all__ = ["AsyncTextIOWrapper"]


class AsyncTextIOWrapper(TextReader):
    """Text over a buffered binary file.

    Args:
        buffer: the file, which this object owns from now on.
        encoding: as in ``open``; ``None`` is the locale's.
        errors: as in ``open``.
        newline: as in ``open``.
        line_buffering: flush at the end of each line.
        write_through: ignored; text is never buffered above the binary file.
        mode: the value of :attr:`mode`.

    Raises:
        LookupError: the encoding or the error handler is unknown, or not for text.
        ValueError: ``newline`` is not one of ``None``, ``""``, ``"\\n"``, ``"\\r"``, ``"\\r\\n"``.
    """

    def __init__(
        self,
        buffer: AsyncBufferedIOBase,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        line_buffering: bool = False,
        write_through: bool = False,
        *,
        mode: str | None = None,
    ) -> None:
        super().__init__(buffer, encoding, errors, newline)
        self._mode = mode
        self.line_buffering: Final = line_buffering
        """True if a write that contains the end of a line also flushes."""
        self.write_through: Final = write_through
        """The value that the program has passed. It has no effect, because text is never buffered above the
        binary file."""
        self._write_newline = newline if newline in ("\r", "\r\n") else None
        self._encoder: Any = None
        if buffer._writable and buffer._has_position():
            position = os.lseek(buffer._fd, 0, os.SEEK_CUR)
            if position:
                self._start_encoding_at(position)

    # Properties that need no operation ------------------------------------------------------------

    @property
    def buffer(self) -> AsyncBufferedIOBase:
        """The underlying binary file."""
        return self._below()

    @property
    def newlines(self) -> str | tuple[str, ...] | None:
        """The kinds of line ends found so far, if line ends are translated."""
        return getattr(self._decoder, "newlines", None)

    @property
    def mode(self) -> str:
        """The mode that the file was opened with."""
        return self._below().mode if self._mode is None else self._mode

    async def readable(self) -> bool:
        """True if the file was opened for reading. A coroutine for text, as in aiofiles."""
        return self._below().readable()

    def detach(self) -> AsyncBufferedIOBase:
        """Separate the binary file from this object and return it. Not a coroutine, as in aiofiles.

        Raises:
            ValueError: it was already detached.
        """
        below = self._below()
        self._buffer = below._forget_above = None
        self._forget_text()
        return below

    def __repr__(self) -> str:
        name = f" name={self._buffer.name!r}" if self._buffer is not None else ""
        kind = f"{type(self).__module__}.{type(self).__qualname__}"
        return f"<{kind}{name} mode={self._mode!r} encoding={self.encoding!r}>"

    async def close(self) -> None:
        """Write buffered text and close the file. Idempotent. Errors as the binary file's."""
        if self._buffer is not None:
            await self._buffer.close()

    # Writing --------------------------------------------------------------------------------------

    async def write(self, text: str, /) -> int:
        """Write ``text``, with the buffering of the binary file's ``write``.

        Returns:
            The number of characters.

        Raises:
            OSError: writing failed.
            TypeError: ``text`` is not a ``str``.
            UnicodeEncodeError: the encoding cannot express it; nothing was written.
            ValueError: the file is closed.
            io.UnsupportedOperation: the file is not open for writing.
        """
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if not self._busy:
            return await self._write(text)
        await self._begin()
        try:
            return await self._write(text)
        finally:
            self._end()

    async def _write(self, text: str) -> int:
        below = self._below()
        below._check_open()
        if not below._writable:
            raise io.UnsupportedOperation("not writable")
        out = text
        if self._write_newline is not None:
            out = text.replace("\n", self._write_newline)
        # While another operation holds the lock, text must not be encoded yet, because encoding changes the
        # state of the encoder.
        if below._busy:
            await below._begin()
            try:
                below._check_open()
                await below._put(self._encode(out))
            finally:
                below._end()
        else:
            piece = self._encode(out)
            if not below._accept(piece):
                await below.write(piece)
        if self.line_buffering and ("\n" in text or "\r" in text):
            await below.flush()
        return len(text)

    def _encode(self, text: str) -> bytes:
        piece: bytes = (self._encoder or self._get_encoder()).encode(text)
        if self._decoder is not None:
            self._forget_text()
            self._decoder.reset()
        return piece

    def _get_encoder(self) -> Any:
        if self._encoder is None:
            self._encoder = codecs.getincrementalencoder(self.encoding)(self.errors)
        return self._encoder

    def _start_encoding_at(self, position: int) -> None:
        """Set the encoder's state: a byte order mark belongs to the start of the file only."""
        if position:
            self._get_encoder().setstate(0)
        else:
            self._get_encoder().reset()

    # Position -------------------------------------------------------------------------------------

    async def tell(self) -> int:
        """Returns the position, as a cookie for :meth:`seek`. In append mode buffered text is written first.

        Raises:
            OSError: the decoder's state at this position cannot be restored.
            ValueError: the file is closed.
            io.UnsupportedOperation: the file has no position.
        """
        await self._begin_positioning()
        try:
            below = self._below()
            if below._append:
                # In append mode the position of buffered text is known only when it is written.
                await below._settle()
            return await self._cookie()
        finally:
            self._end()

    async def seek(self, cookie: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to a position of :meth:`tell`, to the start (0), or to the end (``seek(0, 2)``).

        Returns:
            The new position.

        Raises:
            OSError: no such position.
            ValueError: a negative position, an unknown ``whence``, or the file is closed.
            io.UnsupportedOperation: the file has no position, or the offset is not relative to the start.
        """
        await self._begin_positioning()
        try:
            if whence not in (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END):
                raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
            if whence != os.SEEK_SET and cookie != 0:
                kind = "cur" if whence == os.SEEK_CUR else "end"
                raise io.UnsupportedOperation(f"can't do nonzero {kind}-relative seeks")
            if whence == os.SEEK_END:
                start = cookie = await self._below().seek(0, os.SEEK_END)
                self._forget_text()
                if self._decoder is not None:
                    self._decoder.reset()
            else:
                if whence == os.SEEK_CUR:
                    cookie = await self._cookie()
                if cookie < 0:
                    raise ValueError(f"negative seek position {cookie}")
                start = await self._go_to(cookie)
            self._start_encoding_at(start)
            return cookie
        finally:
            self._end()

    async def _begin_positioning(self) -> None:
        self._check_open()
        if not self._below()._has_position():
            raise io.UnsupportedOperation("underlying stream is not seekable")
        await self._begin()

    async def truncate(self, position: int | None = None, /) -> int:
        """Cut or extend the file to ``position`` bytes, by default to the position, which does not move.

        Raises:
            As the binary file's ``truncate``.
        """
        self._check_open()
        if position is None:
            position = await self.tell()
        return await self._below().truncate(position)
