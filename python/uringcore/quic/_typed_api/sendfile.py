"""``sendfile``: a file's bytes onto a stream. They pass through this process, because they have to be
encrypted. The function saves copies, Python code for each piece, and iterations of the loop if the page
cache has the data.
"""

from __future__ import annotations

import asyncio
from typing import IO

from uringcore._uringcore import SendStream
from uringcore.aio._file_backends import DIRECT_MAX_BYTES, Files, files_of
from uringcore.aio._pending_operation import finish

__all__ = ["sendfile"]


async def sendfile(
    stream: SendStream, file: IO[bytes], offset: int = 0, count: int | None = None
) -> int:
    """See :meth:`SendStream.sendfile`."""
    if offset < 0:
        raise ValueError(f"offset must be 0 or more, not {offset}")
    if count is not None and count < 0:
        raise ValueError(f"count must be 0 or more, not {count}")
    mode = getattr(file, "mode", None)
    if isinstance(mode, str) and "b" not in mode:
        raise ValueError("file must be open in binary mode")
    files, descriptor = files_of(), file.fileno()
    at, end = offset, None if count is None else offset + count
    try:
        while end is None or at < end:
            size = DIRECT_MAX_BYTES if end is None else min(DIRECT_MAX_BYTES, end - at)
            piece = await _read(files, descriptor, size, at)
            if not piece:
                break
            await stream.send(piece)
            at += len(piece)
    finally:
        if at > offset:
            # After the call the file's position is behind the sent bytes, as with loop.sendfile.
            file.seek(at)
    return at - offset


async def _read(files: Files, descriptor: int, size: int, offset: int) -> bytes:
    """Reads at once if the data is in memory, and waits otherwise; an empty result is the end of the file."""
    while (got := files.direct.read(descriptor, size, offset)) is True:
        # A result without a wait must not keep other tasks from running.
        await asyncio.sleep(0)
        files.direct.rested()
    if isinstance(got, bytes):
        return got
    return await finish(files.read(descriptor, size, offset))
