"""Waits with a time limit, and cancellations during them."""

from __future__ import annotations

import asyncio
import gc

from uringcore._time_limit import within


def test_the_exception_of_a_wait_that_is_cancelled_twice_is_not_reported():
    """The wait for the task's end has ended."""
    reports = []

    async def main():
        loop, before = asyncio.get_running_loop(), asyncio.all_tasks()
        loop.set_exception_handler(lambda _, context: reports.append(context))
        begun, cancelled, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def stubborn():
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
                await may_end.wait()
                raise LookupError("of nobody's interest")

        waiting = asyncio.create_task(within(stubborn(), 60))
        await begun.wait()
        waiting.cancel()
        await cancelled.wait()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()
        may_end.set()
        others = asyncio.all_tasks() - before
        if others:
            await asyncio.wait(others)
        del others
        gc.collect()

    asyncio.run(asyncio.wait_for(main(), 60))
    gc.collect()
    assert reports == []
