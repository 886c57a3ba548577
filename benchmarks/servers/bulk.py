"""The common parts of the bulk servers of all libraries: the pattern and the upload's answer.

The protocol is described in `native/quic_load.rs`; the pattern is `native/pattern.rs`'s.
"""

from __future__ import annotations

import hashlib

BLOCK = 64 * 1024
ALPN = "bulk"
WINDOW = 16 << 20
"""The receive window of a stream in bytes, equal for all libraries."""
IN_FLIGHT_MAX = 1 << 20
"""The most bytes that a server keeps queued, if the library leaves this limit to the program."""


def pattern() -> bytes:
    """The block that downloads repeat (64 KiB)."""
    state = 1
    out = bytearray(BLOCK)
    for index in range(BLOCK):
        state = (state * 1_664_525 + 1_013_904_223) & 0xFFFFFFFF
        out[index] = state >> 24
    return bytes(out)


class Upload:
    """Counts an upload, hashes it with `hashed`, and makes the answer."""

    def __init__(self, *, hashed: bool) -> None:
        self.count = 0
        self._hash = hashlib.sha256() if hashed else None

    def feed(self, data: bytes | memoryview) -> None:
        """Take the next piece."""
        self.count += len(data)
        if self._hash is not None:
            self._hash.update(data)

    def answer(self) -> bytes:
        """The count, 8 bytes big-endian, and the SHA-256 with `hashed`."""
        digest = self._hash.digest() if self._hash is not None else b""
        return self.count.to_bytes(8, "big") + digest
