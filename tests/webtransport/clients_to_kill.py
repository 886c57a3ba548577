"""Clients for the test to kill: ``python -m tests.webtransport.clients_to_kill PORT CLIENTS SESSIONS``.

Waits for a line on stdin, then opens the connections with their sessions, prints a line, and keeps them open.
"""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace

from tests.http.raw_client import connect_raw
from tests.webtransport import webtransport_bytes


async def live(port: int, sessions: int, ready: asyncio.Semaphore) -> None:
    """Opens a session with a half-sent stream, a finished stream, and a datagram."""
    server = SimpleNamespace(port=port)
    async with connect_raw(server, max_datagram_frame_size=65536) as raw:
        raw.control(webtransport_bytes.DRAFTS["02"])
        for _ in range(sessions):
            await raw.wait_room(2)
            session = raw.bidi(webtransport_bytes.asked("/"))
            await raw.wait(lambda session=session: raw.answer(session).status == 200)
            raw.bidi(webtransport_bytes.bidi(session, b"half of"))
            raw.uni(webtransport_bytes.uni(session, b"whole"), fin=True)
            raw.datagram(session, b"x")
        await raw.wait_sent()
        ready.release()
        await raw.keep_alive()


async def main(port: int, clients: int, sessions: int) -> None:
    """Opens all sessions of all connections."""
    sys.stdin.readline()
    ready = asyncio.Semaphore(0)
    lives = [asyncio.ensure_future(live(port, sessions, ready)) for _ in range(clients)]
    for _ in lives:
        await ready.acquire()
    print("all are there", flush=True)
    await asyncio.wait(lives)


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
