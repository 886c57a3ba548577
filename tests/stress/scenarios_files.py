"""Scenarios of files: `uringcore.aio`, which has no counterpart in asyncio, and `loop.sendfile`."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

from tests.loop.harness import connected_pair
from tests.stress.byte_pattern import Pattern, Violation
from tests.stress.stream_peers import End, Peer
from tests.stress.stress_round import StressRound

SIZES = (0, 1, 5000, 70_000, 300_000)


async def files(stress_round: StressRound, rng: random.Random) -> None:
    """A file written in pieces reads back whole, even if reads in between are cancelled."""
    if not stress_round.ours:
        return
    from uringcore import aio

    key = f"{stress_round.key} file {rng.getrandbits(32):x}"
    path, size = stress_round.path(rng), rng.choice(SIZES)
    written, read = Pattern(key), Pattern(key)
    async with aio.open(path, "wb") as file:
        while written.position < size:
            piece = min(size - written.position, rng.choice((1, 1000, 100_000)))
            await file.write(written.take(piece))
    async with aio.open(path, "rb") as file:
        if size and rng.random() < 0.5:
            cancelled = asyncio.ensure_future(file.read(size))
            await asyncio.sleep(0)
            cancelled.cancel()
            await asyncio.gather(cancelled, return_exceptions=True)
            await file.seek(0)
        while data := await file.read(rng.choice((1000, 100_000))):
            read.check(data)
    os.unlink(path)
    if read.position != size:
        raise Violation(f"{key}: {read.position} of {size} bytes")


async def sendfile(stress_round: StressRound, rng: random.Random) -> None:
    """Bytes, a range of a file, and bytes again arrive at a blocking peer in this order."""
    key = f"{stress_round.key} sendfile {rng.getrandbits(32):x}"
    loop = asyncio.get_running_loop()
    near, far = connected_pair()
    sizes = [rng.choice(SIZES) for _ in range(3)]
    up = Pattern(f"{key} up")
    head, middle, tail = (up.take(size) for size in sizes)
    path, skipped = Path(stress_round.path(rng)), rng.choice((0, 10, 5000))
    path.write_bytes(bytes(skipped) + middle + b"not sent")
    end = End(stress_round, f"{key} near", f"{key} down", random.Random(0))
    transport, _ = await loop.create_connection(lambda: end, sock=near)
    thread = Peer(f"{key} far", f"{key} down", f"{key} up", random.Random(rng.random())).start(
        far, 1000, sum(sizes)
    )
    transport.write(head)
    with path.open("rb") as file:
        if middle:
            sent = await loop.sendfile(transport, file, skipped, len(middle))
            if sent != len(middle):
                raise Violation(f"{key}: sendfile says {sent} of {len(middle)}")
    transport.write(tail)
    transport.write_eof()
    await end.until("eof")
    transport.close()
    await asyncio.gather(end.until("lost"), thread)
    path.unlink()
    if end.received != 1000:
        raise Violation(f"{key}: {end.received} of 1000 bytes")


SCENARIOS = [files, sendfile]
