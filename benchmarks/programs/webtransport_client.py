"""The client of a WebTransport server that somebody else looks at: as many streams or sessions as it is told.

    python -m benchmarks.programs.webtransport_client PORT CERTIFICATE {streams,sessions,datagrams}

Each line on stdin is a number of them, eight at once on one connection; a byte on stdout says that all are
through and acknowledged. As `echo_client.py` it runs when the server, on the same core, has nothing to do.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable

import uringcore
from benchmarks.programs.h3_client import ACKNOWLEDGED_SECONDS
from benchmarks.servers.webtransport import PATH
from uringcore.quic import ClientConfig
from uringcore.webtransport import WebTransportSession, connect_webtransport

AT_ONCE = 8
ECHOED = bytes(100)


async def stream(session: WebTransportSession) -> None:
    """One stream, echoed and closed."""
    opened = await session.open_stream()
    await opened.send(b"E" + ECHOED)
    await opened.finish()
    if await opened.read() != ECHOED:
        raise ValueError("a wrong echo")


async def another(session: WebTransportSession) -> None:
    """One session, accepted and closed."""
    async with session.open_session(PATH):
        """That it was accepted is all."""


async def datagram(session: WebTransportSession) -> None:
    """One datagram, sent back; whose it was does not matter, for all are the same."""
    session.send_datagram(ECHOED)
    if await session.receive_datagram() != ECHOED:
        raise ValueError("a wrong echo")


MODES: dict[str, Callable[[WebTransportSession], Awaitable[None]]] = {
    "streams": stream,
    "sessions": another,
    "datagrams": datagram,
}


async def ask(session: WebTransportSession, mode: str, count: int) -> None:
    """Do it `count` times."""

    async def some(number: int) -> None:
        for _ in range(number):
            await MODES[mode](session)

    each, rest = divmod(count, AT_ONCE)
    await asyncio.gather(*(some(each + (index < rest)) for index in range(AT_ONCE)))
    await asyncio.sleep(ACKNOWLEDGED_SECONDS)


async def main() -> None:
    """Ask until stdin ends."""
    port, certificate, mode = sys.argv[1:]
    # Such a process does not take the core from another when it wakes up.
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    config = ClientConfig(authorities=certificate)
    async with connect_webtransport(f"https://localhost:{port}{PATH}", config) as session:
        lines = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        async for line in lines:
            await ask(session, mode, int(line))
            sys.stdout.buffer.write(b".")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    uringcore.run(main())
