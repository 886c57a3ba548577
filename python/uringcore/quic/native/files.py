"""``sendfile``: a file's bytes onto a stream. They have to be encrypted, so they pass through this process;
what is spared are turns of the loop for what the page cache has, and Python code a piece.
"""

from __future__ import annotations

import asyncio
import os
from typing import IO

from uringcore._uringcore import SendStream

__all__ = ["sendfile"]

PIECE = 256 * 1024


async def sendfile(
    stream: SendStream, file: IO[bytes], offset: int = 0, count: int | None = None
) -> int:
    """See :meth:`SendStream.sendfile`."""
    if offset < 0:
        raise ValueError(f"offset must be 0 or more, not {offset}")
    if count is not None and count < 0:
        raise ValueError(f"count must be 0 or more, not {count}")
    at, end = offset, None if count is None else offset + count
    try:
        while end is None or at < end:
            piece = await _read(file.fileno(), at, PIECE if end is None else min(PIECE, end - at))
            if not piece:
                break
            await stream.send(piece)
            at += len(piece)
    finally:
        # As loop.sendfile leaves it.
        file.seek(at)
    return at - offset


async def _read(descriptor: int, offset: int, size: int) -> bytes:
    """Reads in the caller what is in memory, and in a thread what is not."""
    room = bytearray(size)
    try:
        got = os.preadv(descriptor, [room], offset, os.RWF_NOWAIT)
    except OSError:
        # A file system that cannot say, or a page that is not there: an error comes again.
        got = 0
    if got:
        return bytes(memoryview(room)[:got])
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, os.pread, descriptor, size, offset)
