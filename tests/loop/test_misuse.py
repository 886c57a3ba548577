"""Wrong arguments, wrong moments, wrong threads: our loops raise or return as asyncio's own does."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.loop.harness import BACKENDS, PATIENCE, factory

Misuse = Callable[[Any], Any]


async def nothing() -> None:
    """A coroutine function, which is no callback in debug mode."""


def running(act: Misuse) -> Misuse:
    """`act` in a coroutine of the loop."""

    def run(loop: Any) -> Any:
        async def main() -> Any:
            return act(loop)

        return loop.run_until_complete(main())

    return run


def elsewhere(act: Misuse) -> Misuse:
    """`act` in another thread while the loop runs."""

    def run(loop: Any) -> Any:
        outcome: list[tuple[Any, BaseException | None]] = []

        def call() -> None:
            try:
                outcome.append((act(loop), None))
            except Exception as error:
                outcome.append((None, error))

        async def main() -> None:
            thread = threading.Thread(target=call)
            thread.start()
            while not outcome:
                await asyncio.sleep(0.001)
            thread.join(PATIENCE)

        loop.run_until_complete(main())
        value, error = outcome[0]
        if error is not None:
            raise error
        return value

    return run


def closed(act: Misuse) -> Misuse:
    """`act` on the closed loop."""

    def run(loop: Any) -> Any:
        loop.close()
        return act(loop)

    return run


def debug(act: Misuse) -> Misuse:
    """`act` in debug mode."""

    def run(loop: Any) -> Any:
        loop.set_debug(True)
        return act(loop)

    return run


def stopped_early(loop: Any) -> Any:
    """The loop stops before its future is done."""
    loop.call_soon(loop.stop)
    return loop.run_until_complete(loop.create_future())


def future_of_another_loop(loop: Any) -> Any:
    """Waits for a future of another loop."""
    other = asyncio.SelectorEventLoop()
    future = other.create_future()
    other.close()
    return loop.run_until_complete(future)


CASES: dict[str, Misuse] = {
    "call_later without a time": lambda loop: loop.call_later(None, print),
    "call_later with a word": lambda loop: loop.call_later("soon", print),
    "call_soon without a callback": lambda loop: loop.call_soon(),
    "a number as callback, debug": debug(lambda loop: loop.call_soon(3)),
    "a number as later callback, debug": debug(lambda loop: loop.call_later(1, 3)),
    "a coroutine function as callback, debug": debug(lambda loop: loop.call_soon(nothing)),
    "a number as threadsafe callback, debug": debug(lambda loop: loop.call_soon_threadsafe(3)),
    "run nothing": lambda loop: loop.run_until_complete(None),
    "run another loop's future": future_of_another_loop,
    "stopped early": stopped_early,
    "run the running loop": running(lambda loop: loop.run_forever()),
    "close the running loop": running(lambda loop: loop.close()),
    "run elsewhere while running": elsewhere(lambda loop: loop.run_forever()),
    "close elsewhere while running": elsewhere(lambda loop: loop.close()),
    "call_soon elsewhere": elsewhere(lambda loop: loop.call_soon(int).cancel()),
    "call_soon elsewhere, debug": debug(elsewhere(lambda loop: loop.call_soon(int))),
    "call_later elsewhere, debug": debug(elsewhere(lambda loop: loop.call_later(1, int))),
    "call_at elsewhere, debug": debug(elsewhere(lambda loop: loop.call_at(1, int))),
    "call_soon_threadsafe elsewhere, debug": debug(
        elsewhere(lambda loop: loop.call_soon_threadsafe(int).cancel())
    ),
    "closed: call_soon": closed(lambda loop: loop.call_soon(print)),
    "closed: call_later": closed(lambda loop: loop.call_later(1, print)),
    "closed: call_at": closed(lambda loop: loop.call_at(1, print)),
    "closed: call_soon_threadsafe": closed(lambda loop: loop.call_soon_threadsafe(print)),
    "closed: run_forever": closed(lambda loop: loop.run_forever()),
    "closed: run_until_complete": closed(lambda loop: loop.run_until_complete(nothing)),
    "closed: run_in_executor": closed(lambda loop: loop.run_in_executor(None, print)),
    "closed: add_reader": closed(lambda loop: loop.add_reader(0, print)),
    "closed: remove_reader": closed(lambda loop: loop.remove_reader(0)),
    "closed: add_signal_handler": closed(lambda loop: loop.add_signal_handler(10, print)),
    "closed: close": closed(lambda loop: loop.close()),
    "closed: stop": closed(lambda loop: loop.stop()),
    "closed: is_running": closed(lambda loop: loop.is_running()),
    "a handler that is none": lambda loop: loop.set_exception_handler(3),
    "a factory that is none": lambda loop: loop.set_task_factory(3),
    "add_reader of nothing": lambda loop: loop.add_reader(None, print),
    "add_reader below zero": lambda loop: loop.add_reader(-1, print),
    "add_reader of a number nobody has": lambda loop: loop.add_reader(1 << 20, print),
    "remove_reader of a number nobody has": lambda loop: loop.remove_reader(1 << 20),
    "stop before the run": lambda loop: (loop.stop(), loop.run_forever()),
    "a time in the past": lambda loop: (loop.call_later(-5, loop.stop), loop.run_forever())[1],
    "handles are asyncio's": lambda loop: (
        isinstance(loop.call_soon(int), asyncio.Handle),
        isinstance(loop.call_soon(int), asyncio.TimerHandle),
        isinstance(loop.call_later(1, int), asyncio.TimerHandle),
    ),
    "equal timers": lambda loop: (
        loop.call_at(5, int, 1) == loop.call_at(5, int, 1),
        loop.call_at(5, int, 1) == loop.call_at(5, int, 2),
        loop.call_at(5, int) <= loop.call_at(5, int),
        loop.call_at(5, int) <= loop.call_at(5, str),
        loop.call_at(5, int) == 5,
        len({loop.call_at(5, int), loop.call_at(5, int)}),
    ),
}

if sys.version_info >= (3, 11):
    # CPython 3.10 has an assertion there instead of an error.
    CASES["call_at without a time"] = lambda loop: loop.call_at(None, print)


def answer(act: Misuse, name: str) -> Any:
    """Returns the result or the exception of `act` on a new loop of this name."""
    loop = factory(name)()
    try:
        return act(loop)
    except Exception as error:
        return type(error)
    finally:
        loop.close()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_misuse_is_answered_as_by_asyncio(case: str, backend: str) -> None:
    expected = answer(CASES[case], "stock")
    found = answer(CASES[case], backend)
    # Handles are new objects each time; only their existence is compared.
    if isinstance(expected, asyncio.Handle):
        assert isinstance(found, asyncio.Handle)
    else:
        assert found == expected
