"""Helpers of the file I/O tests."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from tests.loop.harness import PATIENCE


def open_descriptors_of(path: Path) -> int:
    """Returns the number of this process's descriptors of `path`."""
    count = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{number}") == str(path)
        except FileNotFoundError:
            continue
    return count


async def assert_closed(path: Path) -> None:
    """Waits until no cancelled operation on `path` is left: operations in threads, which may not even have
    started, operations of the ring, and then every descriptor.
    """
    loop: Any = asyncio.get_running_loop()
    await loop.shutdown_default_executor()
    for _ in range(3000):
        is_busy = hasattr(loop, "stats") and loop.stats()["ops"]
        if not is_busy and not open_descriptors_of(path):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{open_descriptors_of(path)} descriptors are left")


async def ticks_during(work: asyncio.Future[object] | asyncio.Task[object]) -> int:
    """Returns the number of loop iterations in which other tasks ran during `work`."""
    count = 0
    while not work.done():
        count += 1
        await asyncio.sleep(0)
    return count


async def soon(future: asyncio.Future[object]) -> object:
    """Returns the result, or fails after a time that is long enough for any loaded machine."""
    return await asyncio.wait_for(future, PATIENCE)
