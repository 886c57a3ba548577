"""The decoder of a text file: characters and positions from the bytes of a buffered file.

One invariant holds throughout: ``_taken`` is the decoded text of the bytes in ``_pieces``,
and ``_at`` of its characters were returned. So the position is always known, and a cancelled or
failed read only leaves more text for the next one. ``_text_file`` implements a text file's methods.
"""

from __future__ import annotations

import codecs
import io
import struct
import weakref
from typing import Any, Final, NamedTuple

from ._buffered_file import AsyncBufferedIOBase
from ._file_base import AsyncIOBase

__all__ = ["TextReader"]

# The size of one read: io.TextIOWrapper's, so that a write after a read goes to the position at which it
# would go there.
_CHUNK_BYTES = 8192
# A position in text, in the layout of io.TextIOWrapper. Usually it is the offset of a byte. In general
# it contains the offset of a byte to decode from (8), the decoder's state there (4), the number of bytes to
# decode (4), the number of decoded characters before the position (4), and a flag if the end of these bytes
# is the end of the file for the decoder (1).
_COOKIE = struct.Struct("<QIIIB")


class _Piece(NamedTuple):
    """Bytes that were decoded together."""

    data: bytes
    pending: int
    """The number of leading bytes that the decoder had left over from the previous piece."""
    flags: int
    """The decoder's state before these bytes."""
    offset: int
    """The start of their characters in ``_taken``."""


class TextReader(AsyncIOBase[str]):
    """The reading half of a text file."""

    def __init__(
        self,
        buffer: AsyncBufferedIOBase,
        encoding: str | None,
        errors: str | None,
        newline: str | None,
    ) -> None:
        super().__init__(buffer._loop)
        # The standard library's class checks the arguments and finds the encoding.
        model = io.TextIOWrapper(io.BytesIO(), encoding, errors, newline)
        self.encoding: Final[str] = model.encoding
        """The encoding's name."""
        self.errors: Final[str] = model.errors or "strict"
        """The error handler's name."""
        self._newline = newline
        self._line_end = "\n" if newline in (None, "\n") else None
        self._buffer: AsyncBufferedIOBase | None = buffer
        self._decoder: Any = None
        self._forget_text()
        buffer._forget_above = weakref.WeakMethod(self._forget_text)

    def _below(self) -> AsyncBufferedIOBase:
        if self._buffer is None:
            raise ValueError("underlying buffer has been detached")
        return self._buffer

    async def _begin_reading(self) -> None:
        self._check_open()
        if not self._below()._readable:
            raise io.UnsupportedOperation("not readable")
        await self._begin()

    def _forget_text(self) -> None:
        """Discard decoded text: the position is that of the binary file from now on."""
        self._taken, self._at = "", 0
        self._pieces: list[_Piece] = []

    def _get_decoder(self) -> Any:
        if self._decoder is None:
            self._decoder = codecs.getincrementaldecoder(self.encoding)(self.errors)
            if not self._newline:
                translate = self._newline is None
                self._decoder = io.IncrementalNewlineDecoder(self._decoder, translate)
        return self._decoder

    # Reading --------------------------------------------------------------------------------------

    async def _collect(self, limit: int, line: bool) -> str:
        if limit < 0 and not line:
            data = await self._below().read()
            rest: str = self._taken[self._at :] + self._get_decoder().decode(data, True)
            self._forget_text()
            return rest
        # `text` must be the only reference to the string: then CPython appends to it in place instead of
        # copying it.
        text, self._taken = self._taken, ""
        start = searched = self._at
        more: str | None = ""
        try:
            while (end := self._find_end(text, start, searched, limit, line)) < 0:
                # The end of a line may begin with the last character of this piece.
                searched = max(start, len(text) - 1)
                more = await self._decode(len(text), limit - (len(text) - start))
                if more is None:
                    end = len(text)
                    break
                text += more
        finally:
            self._taken = text
        self._at = end
        if line and more is None:
            self._forget_text()
        elif self._pieces and 0 < self._pieces[-1].offset <= end:
            # The position is in the last piece, so earlier pieces are not needed any more.
            offset = self._pieces[-1].offset
            self._pieces = [self._pieces[-1]._replace(offset=0)]
            self._taken, self._at = text[offset:], end - offset
        return text[start:end]

    async def _decode(self, offset: int, characters: int) -> str | None:
        """Decode the next piece, for appending at ``offset``. Returns ``None`` at the end of the file."""
        decoder, below = self._get_decoder(), self._below()
        await below._rest_if_due()
        pending, flags = decoder.getstate()
        # As many bytes as characters are wanted: a character takes at least one byte, except in a few codecs.
        data = await below.read1(max(characters, _CHUNK_BYTES))
        text: str = decoder.decode(data, not data)
        self._pieces.append(_Piece(pending + data, len(pending), flags, offset))
        return text if data or text else None

    def _find_end(self, text: str, start: int, searched: int, limit: int, line: bool) -> int:
        """Return the end of the result that begins at ``start``. -1 if more text has to be decoded first."""
        if not line:
            return start + limit if len(text) - start >= limit else -1
        if len(text) == start:
            # No decoded text is left. The built-in reads from the file then, even for `readline(0)`.
            return -1
        end = self._find_line_end(text, searched)
        if limit >= 0 and len(text) - start >= limit and not 0 <= end <= start + limit:
            return start + limit
        return end

    def _find_line_end(self, text: str, searched: int) -> int:
        if self._newline != "":
            mark = self._newline or "\n"
            at = text.find(mark, searched)
            return at + len(mark) if at >= 0 else -1
        feed, carriage = text.find("\n", searched), text.find("\r", searched)
        if carriage < 0 or 0 <= feed < carriage:
            return feed + 1 or -1
        # The decoder returns "\r" only together with the next character, so a "\n" would be there already.
        return carriage + 2 if feed == carriage + 1 else carriage + 1

    # Positions ------------------------------------------------------------------------------------

    async def _cookie(self) -> int:
        """Returns the position, as the built-in's ``tell`` does.

        Raises:
            OSError, UnicodeDecodeError, OverflowError: the decoder has no state for this position.
        """
        position = await self._below().tell()
        if not self._pieces:
            return position
        flags = self._pieces[0].flags
        fed = b"".join(
            piece.data[piece.pending if index else 0 :] for index, piece in enumerate(self._pieces)
        )
        # The bytes begin at offset 1, because at offset 0 the built-in resets the decoder's state.
        model = io.TextIOWrapper(io.BytesIO(b"\0" + fed), self.encoding, self.errors, self._newline)
        model.seek(1 | flags << 64)
        # The position is behind trailing bytes that yield no characters, such as a byte order mark.
        at_end = (
            len(self._pieces) > 1 and self._at == len(self._taken) and not self._pieces[-1].data
        )
        model.read(self._at + at_end)
        return model.tell() - 1 + position - len(fed)

    async def _go_to(self, cookie: int) -> int:
        """Move to a position that ``_cookie`` returned. Returns 0 if no text comes before it.

        Raises:
            OSError: there is no such position.
        """
        start, flags, size, skip, at_end = _COOKIE.unpack(cookie.to_bytes(_COOKIE.size, "little"))
        await self._below().seek(start)
        self._forget_text()
        if cookie == 0:
            if self._decoder is not None:
                self._decoder.reset()
        elif self._below()._readable or flags or skip:
            decoder = self._get_decoder()
            decoder.setstate((b"", flags))
            data = await self._below().read(size) if skip else b""
            self._pieces = [_Piece(data, 0, flags, 0)]
            self._taken, self._at = decoder.decode(data, bool(at_end)) if skip else "", skip
            if len(self._taken) < skip:
                raise OSError("can't restore logical file position")
        return int(start or flags)
