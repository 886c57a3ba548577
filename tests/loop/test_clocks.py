"""Clocks with which a program replaces `loop.time()`, as time-travel tests do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, cast
from unittest import mock

import pytest

from tests.loop.harness import Runner, rounds

FAR = 100_000.0
# No time-out may depend on these clocks.
NEVER = 1000 * FAR


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_timers_follow_a_patched_clock(run: Runner) -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        seen: list[str] = []
        real = loop.time()
        with mock.patch.object(loop, "time") as clock:
            clock.return_value = real + FAR
            loop.call_later(10, seen.append, "later")
            handle = loop.call_at(real + FAR + 5, seen.append, "at")
            assert isinstance(handle, asyncio.TimerHandle)
            clock.return_value = real + FAR + 4
            await _turns(3)
            assert seen == []
            clock.return_value = real + FAR + 6
            await _turns(3)
            assert seen == ["at"]
            clock.return_value = real + FAR + 11
            await _turns(3)
            assert seen == ["at", "later"]
        assert loop.time() - real < FAR
        return seen

    run(main(), timeout=NEVER)


def test_the_clock_is_the_loops_own_again_after_a_patch(run: Runner) -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        seen: list[str] = []
        with mock.patch.object(loop, "time", return_value=loop.time() + FAR):
            loop.call_later(0, seen.append, "in the future")
        await rounds()
        await _turns(3)
        return seen

    assert run(main(), timeout=NEVER) == []


def test_an_assigned_clock_serves_timeouts(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        loop.time = lambda: now  # type: ignore[method-assign]
        try:
            waiting = asyncio.ensure_future(asyncio.wait_for(loop.create_future(), FAR))
            await _turns(3)
            assert not waiting.done()
            now += FAR + 1
            with pytest.raises(asyncio.TimeoutError):
                await waiting
        finally:
            del loop.time

    run(main(), timeout=NEVER)


def test_a_class_may_be_patched_while_its_loops_run(run: Runner) -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        seen: list[str] = []
        loop.call_later(FAR, seen.append, "patched")
        loop.call_later(3 * FAR, seen.append, "far")
        await _turns(2)
        now = loop.time() + 2 * FAR
        with mock.patch.object(type(loop), "time", return_value=now):
            await _turns(2)
        loop.call_later(FAR, seen.append, "unpatched")
        await _turns(3)
        return seen

    assert run(main(), timeout=NEVER) == ["patched"]


def _loop_by(run: Runner, time: Callable[[Any], float]) -> asyncio.AbstractEventLoop:
    """A loop of a subclass with this `time()`."""
    if run.ours:
        import uringcore

        ours: Any = type("Driven", (uringcore.UringEventLoop,), {"time": time})
        return cast(asyncio.AbstractEventLoop, ours(backend=run.name))
    stock: Any = type("Driven", (asyncio.SelectorEventLoop,), {"time": time})
    return cast(asyncio.AbstractEventLoop, stock())


def test_timers_follow_a_subclass(run: Runner) -> None:
    now = 5.0
    loop = _loop_by(run, lambda _: now)
    seen: list[str] = []

    async def main() -> None:
        nonlocal now
        loop.call_later(10, seen.append, "later")
        loop.call_at(7, seen.append, "at")
        await _turns(3)
        assert seen == []
        now = 8.0
        await _turns(3)
        assert seen == ["at"]
        now = 15.0
        await _turns(3)

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    assert seen == ["at", "later"]


def test_a_subclass_may_ask_its_base(run: Runner) -> None:
    loop: Any = _loop_by(run, lambda self: super(type(self), self).time() + self.ahead)
    loop.ahead = 0.0

    async def main() -> None:
        sleeping = asyncio.ensure_future(asyncio.sleep(FAR))
        await _turns(3)
        loop.ahead = FAR + 1
        await sleeping

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def test_the_length_of_a_wait_follows_the_clock(run: Runner) -> None:
    asked = 0

    def half_speed(_: object) -> float:
        nonlocal asked
        asked += 1
        return (time.monotonic() - began) / 2

    began = time.monotonic()
    loop = _loop_by(run, half_speed)
    try:
        # Each wait is half as long as it takes, so that a few of them reach the timer.
        loop.run_until_complete(asyncio.sleep(0.2))
    finally:
        loop.close()
    assert time.monotonic() - began >= 0.4
    assert asked < 500


def test_an_error_of_the_clock_leaves_the_loop(run: Runner) -> None:
    broken = False

    def clock(_: object) -> float:
        if broken:
            raise ZeroDivisionError
        return 1.0

    loop = _loop_by(run, clock)

    def end() -> None:
        nonlocal broken
        broken = True
        loop.call_soon(seen.append, "not lost")

    seen: list[str] = []
    try:
        loop.call_soon(end)
        with pytest.raises(ZeroDivisionError):
            loop.run_forever()
        broken = False
        loop.run_until_complete(_turns(2))
    finally:
        loop.close()
    assert seen == ["not lost"]
