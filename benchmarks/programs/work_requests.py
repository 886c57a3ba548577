"""Common parts of the clients over QUIC: they read amounts of work from stdin and report the end on stdout.

The work is each client's own. The client of plain echoes has no loop and reads its stdin by itself.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable

ACKNOWLEDGED_SECONDS = 0.1
"""Longer than an acknowledgement may wait (RFC 9000 section 18.2)."""


def yield_the_core() -> None:
    """Set SCHED_BATCH: the process does not preempt another one when it wakes up."""
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def shares(count: int, at_once: int) -> list[int]:
    """Divide `count` into `at_once` parts of almost equal size."""
    each, rest = divmod(count, at_once)
    return [each + (index < rest) for index in range(at_once)]


async def until_stdin_ends(do: Callable[[int], Awaitable[object]]) -> None:
    """Call `do` with the number in each line. Once it is done and acknowledged, write a byte to stdout."""
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async for line in lines:
        await do(int(line))
        await asyncio.sleep(ACKNOWLEDGED_SECONDS)
        sys.stdout.buffer.write(b".")
        sys.stdout.buffer.flush()
