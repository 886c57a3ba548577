"""What the clients over QUIC have in common: they do as much as stdin tells them, and say when it is done.

What they do is theirs. The client of plain echoes, which has no loop, reads its stdin by itself.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable

ACKNOWLEDGED_SECONDS = 0.1
"""Longer than an acknowledgement may wait (RFC 9000 section 18.2)."""


def yield_the_core() -> None:
    """Such a process does not take the core from another when it wakes up."""
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def shares(count: int, at_once: int) -> list[int]:
    """How much each of so many does, that it is `count` together."""
    each, rest = divmod(count, at_once)
    return [each + (index < rest) for index in range(at_once)]


async def until_stdin_ends(do: Callable[[int], Awaitable[object]]) -> None:
    """Each line is a number, to be done; a byte on stdout says that it is, and acknowledged."""
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async for line in lines:
        await do(int(line))
        await asyncio.sleep(ACKNOWLEDGED_SECONDS)
        sys.stdout.buffer.write(b".")
        sys.stdout.buffer.flush()
