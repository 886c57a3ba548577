"""Positions in text: from bytes and a number of characters to a cookie, and back.

A cookie names a byte from which decoding can start with a known decoder state, and how many
characters to skip from there; mostly nothing is to be skipped and the cookie is a byte's position.
The layout is that of ``io.TextIOWrapper.tell``: ``start`` in the lowest 64 bits, ``flags``, ``feed``
and ``skip`` in 32 bits each, ``need_eof`` in 8; bits of ``flags`` beyond 32, which the built-in
cannot express, come after those.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Cookie", "find_cookie"]

# Of start, flags, feed, skip, need_eof.
_WIDTHS = (64, 32, 32, 32, 8)
_FLAGS_MASK = (1 << 32) - 1


class Cookie(NamedTuple):
    """What ``tell`` returns, taken apart."""

    start: int
    """The byte to go to."""
    flags: int = 0
    """The decoder's state there, with nothing undecoded."""
    feed: int = 0
    """How many bytes to decode from there."""
    skip: int = 0
    """How many of the characters that this gives are before the position."""
    need_eof: bool = False
    """Whether the decoder has to be told that the bytes end after these."""

    def pack(self) -> int:
        """The integer."""
        fields = (self.start, self.flags & _FLAGS_MASK, self.feed, self.skip, int(self.need_eof))
        packed = shift = 0
        for field, width in zip(fields, _WIDTHS, strict=True):
            packed |= field << shift
            shift += width
        return packed | self.flags >> 32 << shift

    @classmethod
    def unpack(cls, packed: int) -> Cookie:
        """The cookie of an integer."""
        fields = []
        for width in _WIDTHS:
            fields.append(packed & ((1 << width) - 1))
            packed >>= width
        start, flags, feed, skip, need_eof = fields
        return cls(start, flags | packed << 32, feed, skip, bool(need_eof))


def find_cookie(
    decoder: Any, start: int, flags: int, fed: bytes, used: int, guess: Callable[[], int]
) -> Cookie:
    """The position after ``used`` characters of what ``decoder`` makes of ``fed``.

    Args:
        decoder: an incremental decoder; its state is the same afterwards.
        start: the position of the first byte of ``fed``.
        flags: the decoder's state before ``fed``.
        fed: the bytes.
        used: how many characters.
        guess: tells how many bytes they probably are.

    Raises:
        OSError: the decoder cannot be brought to that position again.
    """
    if not used:
        return Cookie(start, flags)
    saved = decoder.getstate()
    try:

        def decode(count: int) -> tuple[int, bytes, int]:
            decoder.setstate((b"", flags))
            characters = len(decoder.decode(fed[:count]))
            return (characters, *decoder.getstate())

        count = guess()
        characters, pending, there = decode(count) if count <= len(fed) else (-1, b"", 0)
        if characters == used and not pending:
            return Cookie(start + count, there)

        # The last byte up to which there are not too many characters...
        low, high = 0, len(fed)
        while low < high:
            middle = (low + high + 1) // 2
            if decode(middle)[0] <= used:
                low = middle
            else:
                high = middle - 1
        # ...and from there back to where the decoder holds nothing undecoded.
        characters, pending, there = decode(low)
        while pending and low:
            low -= min(len(pending), low)
            characters, pending, there = decode(low)
        if not low:
            characters, there = 0, flags
        missing = used - characters
        if not missing:
            return Cookie(start + low, there)

        decoder.setstate((b"", there))
        made = 0
        for index in range(low, len(fed)):
            made += len(decoder.decode(fed[index : index + 1]))
            if made >= missing:
                return Cookie(start + low, there, index + 1 - low, missing)
        made += len(decoder.decode(b"", True))
        if made < missing:
            raise OSError("can't reconstruct logical file position")
        return Cookie(start + low, there, len(fed) - low, missing, True)
    finally:
        decoder.setstate(saved)
