"""The cost of scheduling: callbacks, timers, futures, tasks, threads. No file descriptor is used."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from benchmarks.programs.rows import Row, arguments, tell
from benchmarks.servers import heap
from benchmarks.servers.loops import LOOPS, new_loop

TASKS = 100
"""The number of tasks in one gather()."""
BATCH = 1000
"""Callbacks scheduled at once."""


def nothing() -> None:
    """A callback that does nothing."""


async def empty() -> None:
    """A coroutine that returns at once."""


class Rows:
    """The rows, on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    def all(self) -> dict[str, Row]:
        """The rows by their names in the table."""
        return {
            "call_soon, batches of 1,000": self.call_soon_batch,
            "call_soon, a chain": self.call_soon_chain,
            "sleep(0)": self._in_task(self.sleep_zero),
            "future round trip": self._in_task(self.future_round_trip),
            "create_task and await": self._in_task(self.create_task),
            "gather of 100 tasks, per task": self._in_task(self.gather),
            "call_later and cancel": self.call_later_cancel,
            "call_later(0)": self.call_later_zero,
            "run_in_executor round trip": self._in_task(self.executor),
            "call_soon_threadsafe round trip": self.threadsafe,
        }

    def _in_task(self, main: Callable[[int], Coroutine[Any, Any, None]]) -> Row:
        def row(count: int) -> None:
            self.loop.run_until_complete(main(count))

        return row

    def call_soon_batch(self, count: int) -> None:
        """Schedule many callbacks, then run them in one turn."""
        loop = self.loop
        while count > 0:
            for _ in range(min(count, BATCH)):
                loop.call_soon(nothing)
            count -= BATCH
            loop.call_soon(loop.stop)
            loop.run_forever()

    def call_soon_chain(self, count: int) -> None:
        """Each callback schedules the next: one turn for each."""
        loop = self.loop
        left = count

        def link() -> None:
            nonlocal left
            left -= 1
            if left > 0:
                loop.call_soon(link)
            else:
                loop.stop()

        loop.call_soon(link)
        loop.run_forever()

    async def sleep_zero(self, count: int) -> None:
        """A task that yields."""
        for _ in range(count):
            await asyncio.sleep(0)

    async def future_round_trip(self, count: int) -> None:
        """A future set by a callback and awaited."""
        loop = self.loop
        for _ in range(count):
            future = loop.create_future()
            loop.call_soon(future.set_result, None)
            await future

    async def create_task(self, count: int) -> None:
        """A task made and awaited, one at a time."""
        for _ in range(count):
            await asyncio.ensure_future(empty())

    async def gather(self, count: int) -> None:
        """Tasks made and awaited a hundred at a time."""
        for _ in range(max(count // TASKS, 1)):
            await asyncio.gather(*(empty() for _ in range(TASKS)))

    def call_later_cancel(self, count: int) -> None:
        """The cost of a time-out that does not happen."""
        loop = self.loop
        for _ in range(count):
            loop.call_later(60, nothing).cancel()
        # The loop's turns remove cancelled timers: their cost belongs to the row.
        loop.call_soon(loop.stop)
        loop.run_forever()

    def call_later_zero(self, count: int) -> None:
        """Timers that are due at once."""
        loop = self.loop
        while count > 0:
            for _ in range(min(count, BATCH)):
                loop.call_later(0, nothing)
            count -= BATCH
            loop.call_later(0, loop.stop)
            loop.run_forever()

    async def executor(self, count: int) -> None:
        """A function call in a thread, awaited, one at a time."""
        loop = self.loop
        for _ in range(count):
            await loop.run_in_executor(None, nothing)

    def threadsafe(self, count: int) -> None:
        """Another thread hands over a callback and waits until it has run, again and again."""
        loop = self.loop
        ran = threading.Semaphore(0)

        def other() -> None:
            for _ in range(count):
                loop.call_soon_threadsafe(ran.release)
                ran.acquire()
            loop.call_soon_threadsafe(loop.stop)

        thread = threading.Thread(target=other)
        thread.start()
        loop.run_forever()
        thread.join()


def main() -> None:
    """Run every row on the loop named on the command line."""
    options = arguments(__doc__, LOOPS)
    heap.warm()
    loop = new_loop(options.peer)
    asyncio.set_event_loop(loop)
    try:
        tell(Rows(loop).all(), options.seconds)
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


if __name__ == "__main__":
    main()
