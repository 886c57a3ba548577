"""Text files: what ``io.TextIOWrapper`` does over a buffered file.

The rule that all of it keeps: ``_text`` is exactly what the decoder made of the bytes of
``_snapshot`` from the state in it, and ``_used`` characters of that are given out. So a position is
always known (``tell``), and a cancelled or failed read leaves text and position as they were.
Cookies of ``tell`` have the layout of ``io.TextIOWrapper``'s. Not here: bytes (``_buffered``), the
arithmetic of cookies (``_cookie``).
"""

from __future__ import annotations

import codecs
import io
import operator
import os
from collections.abc import Iterable
from typing import Any, TypeVar

from ._buffered import AsyncBufferedIOBase
from ._cookie import Cookie, find_cookie
from ._turns import Turns

__all__ = ["AsyncTextIOWrapper"]

_Self = TypeVar("_Self", bound="AsyncTextIOWrapper")

# As io.TextIOWrapper's, so that writing after reading meets the same place in the file.
_CHUNK_BYTES = 8192


class AsyncTextIOWrapper(Turns):
    """Text over a buffered binary file.

    Args:
        buffer: the file; it belongs to this object from now on.
        encoding: as ``open``'s; ``None`` is the locale's.
        errors: as ``open``'s.
        newline: as ``open``'s.
        line_buffering: whether a line's end flushes.
        write_through: accepted for likeness; text is never held back here.
        mode: what :attr:`mode` answers.

    Raises:
        LookupError: the encoding or the error handler is not known, or is not one of text.
        ValueError: ``newline`` is not one of ``None``, ``""``, ``"\\n"``, ``"\\r"``, ``"\\r\\n"``.
    """

    __slots__ = (
        "__weakref__",
        "_buffer",
        "_decoder",
        "_encoder",
        "_encoding",
        "_errors",
        "_line_buffering",
        "_mode",
        "_newline",
        "_snapshot",
        "_text",
        "_translate",
        "_universal",
        "_used",
        "_write_newline",
        "_write_through",
    )

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
        Turns.__init__(self, buffer._loop)
        # Only asked what it makes of the arguments: they mean what they mean to `open`.
        model = io.TextIOWrapper(io.BytesIO(), encoding, errors, newline)
        self._encoding: str = model.encoding
        self._errors: str = model.errors or "strict"
        self._buffer: AsyncBufferedIOBase | None = buffer
        self._mode = mode
        self._line_buffering = line_buffering
        self._write_through = write_through
        self._newline = newline
        self._universal = not newline
        self._translate = newline is None
        self._write_newline = newline if newline in ("\r", "\r\n") else None
        self._decoder: Any = None
        self._encoder: Any = None
        self._text = ""
        self._used = 0
        # The decoder's state before `_text`, the bytes that it was made of, and how many of those the
        # decoder had from the piece before.
        self._snapshot: tuple[int, bytes, int] | None = None
        if buffer._writable and buffer._has_position():
            position = os.lseek(buffer._fd, 0, os.SEEK_CUR)
            if position:
                self._start_encoding_at(position)

    # What is known without asking -----------------------------------------------------------------

    @property
    def buffer(self) -> AsyncBufferedIOBase:
        """The binary file below."""
        return self._below()

    @property
    def encoding(self) -> str:
        """The encoding's name."""
        return self._encoding

    @property
    def errors(self) -> str:
        """The error handler's name."""
        return self._errors

    @property
    def newlines(self) -> str | tuple[str, ...] | None:
        """The line ends met so far, if line ends are recognised."""
        return getattr(self._decoder, "newlines", None)

    @property
    def line_buffering(self) -> bool:
        """Whether a line's end flushes."""
        return self._line_buffering

    @property
    def write_through(self) -> bool:
        """As given; text is never held back above the buffer."""
        return self._write_through

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return self._below().closed

    @property
    def name(self) -> Any:
        """The path, or the descriptor that the file was opened with."""
        return self._below().name

    @property
    def mode(self) -> str:
        """The mode that the file was opened with."""
        return self._below().mode if self._mode is None else self._mode

    def fileno(self) -> int:
        """The descriptor.

        Raises:
            ValueError: the file is closed.
        """
        return self._below().fileno()

    async def readable(self) -> bool:
        """Whether the file was opened for reading. A coroutine for text, as in aiofiles."""
        return self._below().readable()

    async def writable(self) -> bool:
        """Whether the file was opened for writing."""
        return await self._below().writable()

    async def seekable(self) -> bool:
        """Whether the file has a position."""
        return await self._below().seekable()

    async def isatty(self) -> bool:
        """Whether the file is a terminal."""
        return await self._below().isatty()

    def detach(self) -> AsyncBufferedIOBase:
        """Give the binary file up. Not a coroutine, as in aiofiles.

        Raises:
            ValueError: there is none any more.
        """
        below = self._below()
        self._buffer = None
        return below

    def __repr__(self) -> str:
        name = f" name={self._buffer.name!r}" if self._buffer is not None else ""
        kind = f"{type(self).__module__}.{type(self).__qualname__}"
        return f"<{kind}{name} mode={self._mode!r} encoding={self._encoding!r}>"

    # Below the text -------------------------------------------------------------------------------

    async def pread(self, size: int, offset: int, /) -> bytes:
        """Bytes of the file, as :meth:`AsyncFile.pread`."""
        return await self._below().pread(size, offset)

    async def pwrite(self, data: Any, offset: int, /) -> int:
        """Write bytes into the file, as :meth:`AsyncFile.pwrite`."""
        return await self._below().pwrite(data, offset)

    async def fsync(self) -> None:
        """As :meth:`AsyncFile.fsync`."""
        await self._below().fsync()

    async def fdatasync(self) -> None:
        """As :meth:`AsyncFile.fdatasync`."""
        await self._below().fdatasync()

    async def stat(self) -> os.stat_result:
        """As :meth:`AsyncFile.stat`."""
        return await self._below().stat()

    async def flush(self) -> None:
        """Hand everything that is buffered to the kernel. Errors as the binary file's."""
        await self._below().flush()

    async def close(self) -> None:
        """Write what is buffered and close the file. Idempotent. Errors as the binary file's."""
        if self._buffer is not None:
            try:
                await self._buffer.close()
            finally:
                if self._buffer.closed:
                    self._forget_text()

    async def __aenter__(self: _Self) -> _Self:
        self._below()._check_open()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    # Reading --------------------------------------------------------------------------------------

    async def read(self, size: int | None = -1, /) -> str:
        """Read ``size`` characters, fewer only at the end of the file; all if negative.

        Raises:
            OSError: reading failed.
            UnicodeDecodeError: the bytes are not text of this encoding.
            ValueError: the file is closed.
            io.UnsupportedOperation: the file is not open for reading.
        """
        wanted = -1 if size is None else operator.index(size)
        await self._begin_reading()
        try:
            return await (self._gather(wanted) if wanted >= 0 else self._all())
        finally:
            self._end()

    async def readline(self, size: int | None = -1, /) -> str:
        """Read a line with its end, at most ``size`` characters; empty at the end of the file.

        Raises:
            As :meth:`read`.
        """
        if self._translate and not self._busy and (size is None or size == -1):
            used = self._used
            end = self._text.find("\n", used) + 1
            # Detached or closed, there is no text left to be found.
            if end:
                self._used = end
                return self._text[used:end]
        limit = -1 if size is None else operator.index(size)
        await self._begin_reading()
        try:
            return await self._line(limit)
        finally:
            self._end()

    async def readlines(self, hint: int | None = -1, /) -> list[str]:
        """Read lines to the end, or until they are more than ``hint`` characters.

        Raises:
            As :meth:`read`.
        """
        lines: list[str] = []
        total = 0
        while line := await self.readline():
            lines.append(line)
            total += len(line)
            if hint is not None and 0 < hint < total:
                break
        return lines

    def __aiter__(self: _Self) -> _Self:
        return self

    async def __anext__(self) -> str:
        if self._translate and not self._busy:
            used = self._used
            end = self._text.find("\n", used) + 1
            if end:
                self._used = end
                return self._text[used:end]
        if line := await self.readline():
            return line
        raise StopAsyncIteration

    async def _begin_reading(self) -> None:
        below = self._below()
        below._check_open()
        if not below._readable:
            raise io.UnsupportedOperation("not readable")
        await self._begin()

    async def _chunk(self, characters: int = 0) -> bool:
        """Decode the next piece into ``_text``, whose old contents the caller has. False at the end."""
        if self._decoder is None:
            self._decoder = self._make_decoder()
        await self._below()._rest_if_due()
        pending, flags = self._decoder.getstate()
        # A character is at least a byte, but for codecs that nobody minds reading ahead.
        data = await self._below().read1(max(characters, _CHUNK_BYTES))
        text = self._decoder.decode(data, not data)
        self._snapshot = (flags, pending + data, len(pending))
        self._text = text
        self._used = 0
        return bool(data or text)

    async def _gather(self, size: int) -> str:
        history = _History(self)
        text = self._text[self._used : self._used + size]
        if len(text) == size:
            self._used += size
            return text
        try:
            while len(text) < size:
                history.add(self)
                if not await self._chunk(size - len(text)):
                    break
                self._used = min(len(self._text), size - len(text))
                text += self._text[: self._used]
        except BaseException:
            history.restore(self)
            raise
        return text

    async def _all(self) -> str:
        if self._decoder is None:
            self._decoder = self._make_decoder()
        data = await self._below().read()
        text: str = self._text[self._used :] + self._decoder.decode(data, True)
        self._forget_text()
        return text

    async def _line(self, limit: int) -> str:
        history = _History(self)
        line = self._text[self._used :]
        searched = 0
        try:
            while True:
                # Nothing decoded yet: even a line of no characters looks at the file.
                end = self._line_end(line, searched) if line else -1
                if line and limit >= 0 and (end > limit or (end < 0 and len(line) >= limit)):
                    end = limit
                if end >= 0:
                    break
                # The end may begin with the last character of this piece.
                searched = max(len(line) - 1, 0)
                history.add(self)
                if not await self._chunk():
                    self._forget_text()
                    return line
                line += self._text
        except BaseException:
            history.restore(self)
            raise
        self._used = len(self._text) - (len(line) - end)
        return line[:end]

    def _line_end(self, line: str, searched: int) -> int:
        """Where the first line of ``line`` ends; -1 if it does not."""
        if self._newline in (None, "\n"):
            return line.find("\n", searched) + 1 or -1
        if self._newline:
            at = line.find(self._newline, searched)
            return at + len(self._newline) if at >= 0 else -1
        feed, carriage = line.find("\n", searched), line.find("\r", searched)
        if carriage < 0 or 0 <= feed < carriage:
            return feed + 1 or -1
        # The decoder gives a "\r" out only when it knows what comes next.
        return carriage + 2 if feed == carriage + 1 else carriage + 1

    def _make_decoder(self) -> Any:
        decoder = codecs.getincrementaldecoder(self._encoding)(self._errors)
        if self._universal:
            return io.IncrementalNewlineDecoder(decoder, self._translate)
        return decoder

    def _forget_text(self) -> None:
        """The position is that of the binary file."""
        self._text, self._used, self._snapshot = "", 0, None

    # Writing --------------------------------------------------------------------------------------

    async def write(self, text: str, /) -> int:
        """Write ``text``, as the binary file's ``write``.

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

    async def writelines(self, lines: Iterable[str], /) -> None:
        """Write each of ``lines``; no line ends are added. Errors as :meth:`write`."""
        self._below()._check_open()
        for line in lines:
            await self.write(line)

    async def _write(self, text: str) -> int:
        below = self._below()
        below._check_open()
        if not below._writable:
            raise io.UnsupportedOperation("not writable")
        encoder = self._encoder or self._make_encoder()
        out = text
        if self._write_newline is not None:
            out = text.replace("\n", self._write_newline)
        piece = encoder.encode(out)
        if self._decoder is not None:
            self._forget_text()
            self._decoder.reset()
        if not below._accept(piece):
            await below.write(piece)
        if self._line_buffering and ("\n" in text or "\r" in text):
            await below.flush()
        return len(text)

    def _make_encoder(self) -> Any:
        self._encoder = codecs.getincrementalencoder(self._encoding)(self._errors)
        return self._encoder

    def _start_encoding_at(self, position: int) -> None:
        """A byte order mark belongs to the start of the file only."""
        encoder = self._encoder or self._make_encoder()
        if position:
            encoder.setstate(0)
        else:
            encoder.reset()

    # Position -------------------------------------------------------------------------------------

    async def tell(self) -> int:
        """The position, as a cookie for :meth:`seek`.

        Raises:
            OSError: the decoder cannot be brought to this position again.
            ValueError: the file is closed.
            io.UnsupportedOperation: the file has no position.
        """
        await self._begin_positioning()
        try:
            return await self._tell()
        finally:
            self._end()

    async def _tell(self) -> int:
        below = self._below()
        position = await below.tell()
        if self._snapshot is None:
            return position
        flags, fed, _ = self._snapshot
        start = position - len(fed)
        return find_cookie(
            self._encoding, self._errors, self._newline, start, flags, fed, self._used
        )

    async def seek(self, cookie: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to a position of :meth:`tell`, to the start (0), or to the end (``seek(0, 2)``).

        Returns:
            The new position.

        Raises:
            OSError: no such position.
            ValueError: a negative position, an unknown ``whence``, or the file is closed.
            io.UnsupportedOperation: the file has no position, or the way is not from the start.
        """
        await self._begin_positioning()
        try:
            below = self._below()
            if whence == os.SEEK_CUR:
                if cookie != 0:
                    raise io.UnsupportedOperation("can't do nonzero cur-relative seeks")
                cookie = await self._tell()
            elif whence == os.SEEK_END:
                if cookie != 0:
                    raise io.UnsupportedOperation("can't do nonzero end-relative seeks")
                position = await below.seek(0, os.SEEK_END)
                self._forget_text()
                if self._decoder is not None:
                    self._decoder.reset()
                self._start_encoding_at(position)
                return position
            elif whence != os.SEEK_SET:
                raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
            if cookie < 0:
                raise ValueError(f"negative seek position {cookie}")
            await self._go_to(cookie)
            return cookie
        finally:
            self._end()

    async def _go_to(self, position: int) -> None:
        below = self._below()
        cookie = Cookie.unpack(position)
        await below.seek(cookie.start)
        self._forget_text()
        if position == 0:
            if self._decoder is not None:
                self._decoder.reset()
        elif self._decoder is not None or cookie.flags or cookie.skip:
            if self._decoder is None:
                self._decoder = self._make_decoder()
            self._decoder.setstate((b"", cookie.flags))
            self._snapshot = (cookie.flags, b"", 0)
        if cookie.skip:
            data = await below.read(cookie.feed)
            text = self._decoder.decode(data, cookie.need_eof)
            if len(text) < cookie.skip:
                raise OSError("can't restore logical file position")
            self._snapshot = (cookie.flags, data, 0)
            self._text, self._used = text, cookie.skip
        self._start_encoding_at(cookie.start)

    async def _begin_positioning(self) -> None:
        below = self._below()
        below._check_open()
        if not below._has_position():
            raise io.UnsupportedOperation("underlying stream is not seekable")
        await self._begin()

    async def truncate(self, position: int | None = None, /) -> int:
        """Cut or extend the file to ``position`` bytes, by default to the position, which stays.

        Raises:
            As the binary file's ``truncate``.
        """
        below = self._below()
        below._check_open()
        if position is None:
            position = await self.tell()
        return await below.truncate(position)

    def _below(self) -> AsyncBufferedIOBase:
        if self._buffer is None:
            raise ValueError("underlying buffer has been detached")
        return self._buffer


class _History:
    """What a read across several pieces began with, to undo it."""

    __slots__ = ("_fed", "_flags", "_none", "_text", "_used")

    def __init__(self, file: AsyncTextIOWrapper) -> None:
        self._used = file._used
        self._none = file._snapshot is None
        self._flags = 0
        self._fed: list[bytes] = []
        self._text: list[str] = []

    def add(self, file: AsyncTextIOWrapper) -> None:
        """The piece in ``file`` is about to be replaced by the next."""
        if file._snapshot is None:
            return
        flags, fed, pending = file._snapshot
        if not self._fed:
            self._flags = flags
            self._fed.append(fed)
        else:
            self._fed.append(fed[pending:])
        self._text.append(file._text)

    def restore(self, file: AsyncTextIOWrapper) -> None:
        """Nothing was read: all pieces become one, of which as much is used as was before."""
        if self._fed:
            file._snapshot = (self._flags, b"".join(self._fed), 0)
            file._text = "".join(self._text)
            file._used = 0 if self._none else self._used
        else:
            file._forget_text()
