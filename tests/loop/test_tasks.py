"""Tasks, async generators and debug mode: asyncio's own, with equal behaviour on our loop."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import re
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from tests.loop.harness import LOOPS, Runner, collect, factory, rounds


def test_a_task_factory_makes_the_tasks(run: Runner) -> None:
    made: list[str] = []

    def make(
        loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        made.append(coro.__name__)
        return asyncio.Task(coro, loop=loop, **options)

    async def child() -> int:
        return 7

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(make)  # type: ignore[arg-type]
        task = loop.create_task(child(), name="named")
        assert task.get_name() == "named"
        assert await task == 7
        assert made == ["child"]
        loop.set_task_factory(None)
        await loop.create_task(child())
        assert made == ["child"]

    run(main())


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
def test_eager_tasks_start_at_once(run: Runner) -> None:
    order: list[str] = []

    async def quick() -> str:
        order.append("quick")
        return "done"

    async def slow() -> None:
        order.append("slow starts")
        await asyncio.sleep(0)
        order.append("slow ends")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(asyncio.eager_task_factory)
        task = asyncio.create_task(quick())
        order.append("created")
        assert task.done()
        assert task.result() == "done"
        later = asyncio.create_task(slow())
        order.append("created")
        await later
        assert order == ["quick", "created", "slow starts", "created", "slow ends"]

    run(main())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.Runner came with Python 3.11")
@pytest.mark.parametrize("name", LOOPS)
def test_a_runner_keeps_its_loop_and_context(name: str) -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
    cleaned: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            cleaned.append("generator")

    async def first() -> None:
        variable.set(5)
        kept.append(numbers())
        assert await anext(kept[0]) == 1
        forgotten.append(asyncio.create_task(forever()))

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("task")

    async def second() -> int:
        return variable.get()

    kept: list[AsyncIterator[int]] = []
    forgotten: list[asyncio.Task[None]] = []
    with asyncio.Runner(loop_factory=factory(name)) as runner:
        runner.run(first())
        loop = runner.get_loop()
        assert runner.run(second()) == 5
        assert runner.get_loop() is loop
        with pytest.raises(ZeroDivisionError):
            runner.run(fail())
    assert loop.is_closed()
    assert sorted(cleaned) == ["generator", "task"]


async def fail() -> None:
    """Raises."""
    raise ZeroDivisionError


def test_a_generator_left_alone_is_closed_by_its_loop(run: Runner) -> None:
    cleaned = asyncio.Event()

    async def numbers() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    async def main() -> None:
        async for _ in numbers():
            break
        collect()
        await cleaned.wait()

    run(main())


def test_the_order_of_a_turn_is_asyncios(run: Runner) -> None:
    """A callback scheduled by a callback waits for the next iteration; due timers run after ready
    callbacks.
    """
    order: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def outer(name: str) -> None:
            order.append(name)
            loop.call_soon(order.append, name + " inner")

        loop.call_soon(outer, "a")
        loop.call_later(0, order.append, "timer")
        loop.call_soon(outer, "b")
        loop.call_at(loop.time() - 1, order.append, "overdue")
        await asyncio.sleep(0.001)  # later than the timers
        assert order == ["a", "b", "overdue", "timer", "a inner", "b inner"]

    run(main())


def test_debug_mode_logs_slow_callbacks(run: Runner, caplog: pytest.LogCaptureFixture) -> None:
    def dawdle() -> None:
        time.sleep(0.03)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_debug(True)
        loop.slow_callback_duration = 0.02
        loop.call_soon(dawdle)
        loop.call_later(0.001, dawdle)
        await asyncio.sleep(0.002)  # later than the timer
        loop.slow_callback_duration = 1000
        loop.call_soon(dawdle)
        await asyncio.sleep(0)

    with caplog.at_level(logging.WARNING, logger="asyncio"):
        run(main())
    slow = [record.getMessage() for record in caplog.records if "dawdle" in record.getMessage()]
    assert len(slow) == 2
    # However long a busy machine made it.
    took = re.compile(r" took \d+\.\d{3} seconds")
    assert all(text.startswith("Executing <") and took.search(text) for text in slow)
    # Where it was scheduled, which only debug mode records.
    assert all("created at" in text and "test_tasks.py" in text for text in slow)


def test_debug_mode_records_where_coroutines_and_failures_come_from(run: Runner) -> None:
    async def child() -> None:
        """Never awaited."""

    def blow() -> None:
        raise ZeroDivisionError

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert sys.get_coroutine_origin_tracking_depth() == 0
        loop.set_debug(True)
        await rounds()
        assert sys.get_coroutine_origin_tracking_depth() > 0
        coro = child()
        origin = coro.cr_origin  # type: ignore[attr-defined]
        assert origin is not None
        assert origin[0][0] == __file__
        coro.close()
        loop.call_soon(blow)
        await rounds()
        loop.set_debug(False)
        await rounds()
        assert sys.get_coroutine_origin_tracking_depth() == 0

    run(main())
    traceback = run.complaints.contexts[0]["source_traceback"]
    assert traceback[-1].filename == __file__
    run.expect(ZeroDivisionError)


def test_base_exceptions_leave_the_loop_and_nothing_else_is_lost(run: Runner) -> None:
    loop = run.factory()
    loop.set_exception_handler(run.complaints)
    order: list[str] = []

    def leave(error: BaseException) -> None:
        raise error

    class Odd(BaseException):
        """Neither SystemExit nor KeyboardInterrupt: the loop handles it."""

    for error in (SystemExit(3), KeyboardInterrupt()):
        loop.call_soon(leave, error)
        loop.call_soon(order.append, "after")
        with pytest.raises(type(error)):
            loop.run_forever()
        assert not loop.is_running()
    loop.call_soon(leave, Odd())
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    assert order == ["after"] * 2
    assert run.complaints.errors == [Odd]
    run.complaints.contexts.clear()
