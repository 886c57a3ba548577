"""The ASGI application of the trial: responses with predictable bytes (`byte_pattern`), and checked uploads.

/take/SIZE/KEY          the first SIZE bytes of KEY
/slow/SIZE/KEY          these bytes, in parts with pauses
/late/SECONDS/SIZE/KEY  a tenth of these bytes, and the rest after a pause
/give/KEY               accepts bytes of KEY and answers how many there were
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from tests.stress.byte_pattern import Pattern
from tests.stress.served.hang_report import state
from uringcore.server import _client_liveness_at_shutdown as watch

# On a busy machine a stopping worker must not give up a client that is only slow to answer.
watch.SILENCE_SECONDS = 10.0

PARTS = 10
PAUSE_SECONDS = 0.02


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Serves the paths. It is plain ASGI, so that no framework is between the server and the clients."""
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
    """Prints the process's state into the log, where the operator reads it."""
    print(f"process {os.getpid()}:\n{state()}", file=sys.stderr, flush=True)


async def taken(receive: Any, key: str) -> bytes:
    expected = Pattern(key)
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            # No client waits for a response.
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
