"""The client of a WebTransport server that another program measures: the streams or sessions on stdin.

    python -m benchmarks.programs.webtransport_client PORT CERTIFICATE {streams,sessions,datagrams}

Each line on stdin is a number of them, eight at once on one connection. A byte on stdout follows once all are
done and acknowledged. Like `echo_client.py` it runs when the server, on the same core, is idle.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

import uringcore
from benchmarks.programs.work_requests import shares, until_stdin_ends, yield_the_core
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
        """The server has accepted the session."""


async def datagram(session: WebTransportSession) -> None:
    """Send one datagram and receive an echo; all echoes are equal, so any of them counts."""
    session.send_datagram(ECHOED)
    if await session.receive_datagram() != ECHOED:
        raise ValueError("a wrong echo")


MODES: dict[str, Callable[[WebTransportSession], Awaitable[None]]] = {
    "streams": stream,
    "sessions": another,
    "datagrams": datagram,
}


async def main() -> None:
    """Send until stdin ends."""
    port, certificate, mode = sys.argv[1:]
    yield_the_core()
    config = ClientConfig(authorities=certificate)
    async with connect_webtransport(f"https://localhost:{port}{PATH}", config) as session:

        async def some(number: int) -> None:
            for _ in range(number):
                await MODES[mode](session)

        async def ask(count: int) -> None:
            await asyncio.gather(*map(some, shares(count, AT_ONCE)))

        await until_stdin_ends(ask)


if __name__ == "__main__":
    uringcore.run(main())
