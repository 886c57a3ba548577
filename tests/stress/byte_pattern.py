"""Byte streams with predictable content: a lost, duplicated, altered or misplaced byte shows at once."""

from __future__ import annotations

import random

BLOCK = 65521
"""A prime, so that no power-of-two buffer hides a shift by its own size."""


class Violation(AssertionError):
    """A broken rule."""


class Pattern:
    """The byte stream of the name `key`: one end takes it, the other checks it."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._block = random.Random(key).randbytes(BLOCK) * 2
        self.position = 0

    def take(self, size: int) -> bytes:
        """Returns the next `size` bytes."""
        pieces = []
        while size:
            start = self.position % BLOCK
            piece = self._block[start : start + min(size, BLOCK)]
            self.position += len(piece)
            size -= len(piece)
            pieces.append(piece)
        return b"".join(pieces)

    def check(self, data: bytes | bytearray | memoryview) -> None:
        """Checks that `data` are the next bytes; raises `Violation` otherwise."""
        start, expected = self.position, self.take(len(data))
        if data != expected:
            got = bytes(data)
            wrong = next(at for at in range(len(got)) if got[at] != expected[at])
            raise Violation(f"{self._key}: byte {start + wrong} is wrong (chunk of {len(got)})")
