"""Positions in text: what ``tell`` answers and ``seek`` takes, in the layout of ``io.TextIOWrapper``.

Mostly a cookie is a byte's position. In general it names a byte from which decoding can start with a
known decoder state, and how many characters to skip from there. The built-in class finds them: it is
shown the bytes and read as far as the position is.
"""

from __future__ import annotations

import io
from typing import NamedTuple

__all__ = ["Cookie", "find_cookie"]

_START_BITS = 64
# Of flags, feed, skip.
_BITS = 32
_MASK = (1 << _BITS) - 1


class Cookie(NamedTuple):
    """What ``tell`` returns, taken apart."""

    start: int
    """The byte to go to."""
    flags: int
    """The decoder's state there, with nothing undecoded."""
    feed: int
    """How many bytes to decode from there."""
    skip: int
    """How many of the characters that this gives are before the position."""
    need_eof: bool
    """Whether the decoder has to be told that the bytes end after these."""

    @classmethod
    def unpack(cls, packed: int) -> Cookie:
        """The cookie of an integer."""
        rest = packed >> _START_BITS
        flags, feed, skip = (rest >> shift & _MASK for shift in (0, _BITS, 2 * _BITS))
        return cls(packed & (1 << _START_BITS) - 1, flags, feed, skip, bool(rest >> 3 * _BITS))


def find_cookie(
    encoding: str, errors: str, newline: str | None, start: int, flags: int, fed: bytes, used: int
) -> int:
    """The position after ``used`` characters of the bytes ``fed``.

    Args:
        encoding: as ``open``'s, as are ``errors`` and ``newline``.
        start: the position of the first byte of ``fed``.
        flags: the decoder's state before ``fed``.

    Raises:
        OSError, UnicodeDecodeError, OverflowError: as the built-in's ``tell``, where a decoder has no
            state for the position.
    """
    # One byte before: at the start of a file the built-in resets the decoder, whatever its state.
    model = io.TextIOWrapper(io.BytesIO(b"\0" + fed), encoding, errors, newline)
    model.seek(1 | flags << _START_BITS)
    model.read(used)
    return model.tell() - 1 + start
