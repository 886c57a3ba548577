"""Reading text: what a decoder makes of a buffered file's bytes, in lines and pieces.

The rule that all of it keeps: ``_text`` is exactly what the decoder made of the bytes of
``_snapshot`` from the state in it, and ``_used`` characters of that are given out. So a position is
always known, and a cancelled or failed read leaves text and position as they were.
"""

from __future__ import annotations

import codecs
import io
import operator
from typing import Any, TypeVar

from ._buffered import AsyncBufferedIOBase
from ._turns import Turns

__all__ = ["TextReader"]

_Self = TypeVar("_Self", bound="TextReader")

# As io.TextIOWrapper's, so that writing after reading meets the same place in the file.
_CHUNK_BYTES = 8192


class TextReader(Turns):
    """The reading half of a text file."""

    __slots__ = (
        "__weakref__",
        "_buffer",
        "_decoder",
        "_encoding",
        "_errors",
        "_newline",
        "_snapshot",
        "_text",
        "_translate",
        "_universal",
        "_used",
    )

    def __init__(
        self,
        buffer: AsyncBufferedIOBase,
        encoding: str | None,
        errors: str | None,
        newline: str | None,
    ) -> None:
        Turns.__init__(self, buffer._loop)
        # Only asked what it makes of the arguments: they mean what they mean to `open`.
        model = io.TextIOWrapper(io.BytesIO(), encoding, errors, newline)
        self._encoding: str = model.encoding
        self._errors: str = model.errors or "strict"
        self._buffer: AsyncBufferedIOBase | None = buffer
        self._newline = newline
        self._universal = not newline
        self._translate = newline is None
        self._decoder: Any = None
        self._text = ""
        self._used = 0
        # The decoder's state before `_text`, the bytes that it was made of, and how many of those the
        # decoder had from the piece before.
        self._snapshot: tuple[int, bytes, int] | None = None

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

    def _below(self) -> AsyncBufferedIOBase:
        if self._buffer is None:
            raise ValueError("underlying buffer has been detached")
        return self._buffer


class _History:
    """What a read across several pieces began with, to undo it."""

    __slots__ = ("_fed", "_flags", "_none", "_text", "_used")

    def __init__(self, file: TextReader) -> None:
        self._used = file._used
        self._none = file._snapshot is None
        self._flags = 0
        self._fed: list[bytes] = []
        self._text: list[str] = []

    def add(self, file: TextReader) -> None:
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

    def restore(self, file: TextReader) -> None:
        """Nothing was read: all pieces become one, of which as much is used as was before."""
        if self._fed:
            file._snapshot = (self._flags, b"".join(self._fed), 0)
            file._text = "".join(self._text)
            file._used = 0 if self._none else self._used
        else:
            file._forget_text()
