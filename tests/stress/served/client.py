"""`python -m tests.stress.served.client URL CAFILE SEED`: clients in a process that the trial kills."""

from __future__ import annotations

import asyncio
import random
import sys

import uringcore
from tests.stress.served.verifying_clients import HTTP2, Caller, Httpx, HttpxAnew, Ours, Target

READY = "the requests go on"


async def call(caller: Caller, rng: random.Random) -> None:
    while True:
        await caller.once(rng)


async def main(target: Target, seed: str) -> None:
    callers = [kind(target) for kind in (Ours, Ours, Httpx, HttpxAnew, HTTP2)]
    rng = random.Random(seed)
    await asyncio.gather(*(caller.once(rng) for caller in callers))
    print(READY, flush=True)
    # The HTTP/2 client makes one exchange at a time.
    await asyncio.gather(
        *(call(caller, rng) for caller in (*callers, *callers[:-1], *callers[:-1]))
    )


if __name__ == "__main__":
    uringcore.run(main(Target(sys.argv[1], sys.argv[2]), sys.argv[3]))
