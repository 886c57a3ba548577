"""What is served: bytes whose every position is known (`pattern`), and uploads that are looked at.

/take/SIZE/KEY          the first SIZE bytes of KEY
/slow/SIZE/KEY          the same, in parts with pauses
/late/SECONDS/SIZE/KEY  a tenth of them, and after a while the rest
/give/KEY               takes bytes of KEY and answers how many there were
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from tests.stress.pattern import Pattern
from tests.stress.served.state import state
from uringcore.server import _watch as watch

# A stopping worker must not take a client for gone that a busy machine keeps from answering.
watch.SILENCE_SECONDS = 10.0

PARTS = 10
PAUSE_SECONDS = 0.02


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Plain ASGI, so that nothing stands between the server and the clients."""
    if scope["type"] == "lifespan":
        await receive()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, show_state)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    name, *rest = scope["path"][1:].split("/")
    if name == "give":
        body = await taken(receive, rest[0])
        await answer(send, [body], [0.0])
        return
    seconds = {"take": 0.0, "slow": PAUSE_SECONDS, "late": 0.0}[name]
    pauses = [0.0, *[seconds] * (PARTS - 1)]
    if name == "late":
        pauses[1] = float(rest.pop(0))
    size, key = int(rest[0]), rest[1]
    content = Pattern(key)
    step = size // PARTS
    sizes = [step] * (PARTS - 1) + [size - step * (PARTS - 1)]
    if name == "take":
        await answer(send, [content.take(size)], [0.0])
    else:
        await answer(send, [content.take(one) for one in sizes], pauses)


def show_state() -> None:
    """For the operator, in the log."""
    print(f"process {os.getpid()}:\n{state()}", file=sys.stderr, flush=True)


async def taken(receive: Any, key: str) -> bytes:
    expected = Pattern(key)
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            # Nobody waits for an answer.
            return b""
        expected.check(message.get("body", b""))
        if not message.get("more_body"):
            return b"%d" % expected.position


async def answer(send: Any, parts: list[bytes], pauses: list[float]) -> None:
    headers = [
        (b"content-length", b"%d" % sum(map(len, parts))),
        (b"x-worker", b"%d" % os.getpid()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for number, (part, pause) in enumerate(zip(parts, pauses, strict=True), 1):
        if pause:
            await asyncio.sleep(pause)
        more = number < len(parts)
        await send({"type": "http.response.body", "body": part, "more_body": more})
