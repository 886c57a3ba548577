"""The client of an HTTP/3 server that somebody else looks at: it makes as many requests as it is told.

    python -m benchmarks.programs.h3_client PORT CERTIFICATE AT_ONCE

Each line on stdin is a number of requests, so many of them in flight; a byte on stdout says that all have
been answered and the answers acknowledged. As `echo_client.py` it runs when the server, on the same core,
has nothing to do.
"""

from __future__ import annotations

import asyncio
import os
import sys

import uringcore
import uringcore.http3
from benchmarks.applications.bare import HELLO

ACKNOWLEDGED_SECONDS = 0.1
"""Longer than an acknowledgement may wait (RFC 9000 section 18.2)."""


async def ask(client: uringcore.http3.Client, count: int, at_once: int) -> None:
    """Make `count` requests and compare the answers."""

    async def some(number: int) -> None:
        for _ in range(number):
            response = await client.get("/")
            if (response.status, response.content) != (200, HELLO):
                raise ValueError(f"a wrong answer: {response}")

    each, rest = divmod(count, at_once)
    await asyncio.gather(*(some(each + (index < rest)) for index in range(at_once)))
    await asyncio.sleep(ACKNOWLEDGED_SECONDS)


async def main() -> None:
    """Ask until stdin ends."""
    port, certificate, at_once = sys.argv[1:]
    # Such a process does not take the core from another when it wakes up.
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    async with uringcore.http3.connect(f"https://localhost:{port}/", cafile=certificate) as client:
        lines = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        async for line in lines:
            await ask(client, int(line), int(at_once))
            sys.stdout.buffer.write(b".")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    uringcore.run(main())
