"""What the tests of file I/O share."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from tests.loop.support import PATIENCE


def open_descriptors_of(path: Path) -> int:
    """How many descriptors of this process lead to `path`."""
    count = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{number}") == str(path)
        except FileNotFoundError:
            continue
    return count


async def assert_closed(path: Path) -> None:
    """Waits until nothing is left of operations on `path` that were cancelled: those in threads, which
    may not even have begun, those of the ring, and then every descriptor."""
    loop: Any = asyncio.get_running_loop()
    await loop.shutdown_default_executor()
    for _ in range(3000):
        is_busy = hasattr(loop, "stats") and loop.stats()["ops"]
        if not is_busy and not open_descriptors_of(path):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{open_descriptors_of(path)} descriptors are left")


async def ticks_during(work: asyncio.Future[object] | asyncio.Task[object]) -> int:
    """How many turns others had while `work` went on."""
    count = 0
    while not work.done():
        count += 1
        await asyncio.sleep(0)
    return count


async def soon(future: asyncio.Future[object]) -> object:
    """The result, or a failure after a time that no loaded machine needs."""
    return await asyncio.wait_for(future, PATIENCE)
