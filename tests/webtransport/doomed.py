"""Clients that are to be killed. ``python -m tests.webtransport.doomed PORT HASH COUNT``, told to begin,
opens so many sessions, each on a connection of its own, says so, and goes on for as long as it is let.
"""

from __future__ import annotations

import asyncio
import sys

import uringcore
from uringcore.quic import ClientConfig
from uringcore.webtransport import connect_webtransport

AT_ONCE = 25


async def live(url: str, hashes: list[bytes], kept: list[object]) -> None:
    """A session with a stream half sent, one that is finished, and a datagram."""
    config = ClientConfig(keep_alive=0.5)
    session = await connect_webtransport(url, config, server_certificate_hashes=hashes)
    stream = await session.open_stream()
    await stream.send(b"half of")
    one_way = await session.open_uni_stream()
    await one_way.send(b"whole")
    await one_way.finish()
    session.send_datagram(b"x")
    kept += [session, stream]


async def main(port: str, certificate_hash: str, count: str) -> None:
    """Opens all of them."""
    url, hashes, kept = f"https://127.0.0.1:{port}/", [bytes.fromhex(certificate_hash)], []
    sys.stdin.readline()
    for _ in range(0, int(count), AT_ONCE):
        await asyncio.gather(*(live(url, hashes, kept) for _ in range(AT_ONCE)))
    print("all are there", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uringcore.run(main(*sys.argv[1:]))
