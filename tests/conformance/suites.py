"""CPython's asyncio tests by module, and the installation of the loop under test.

A group is a module of `test.test_asyncio`, found in the running interpreter: a new module of a
newer CPython runs without a change here. The tests make their loops by two names,
`asyncio.SelectorEventLoop` and `asyncio.new_event_loop()` (the runners and
`unittest.IsolatedAsyncioTestCase` use the second), so both are replaced for the whole process.
`LEFT_OUT` lists tests that cannot run on a foreign loop.
"""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import re
import sys
import unittest
from collections.abc import Iterator
from typing import Any

PACKAGE = "test.test_asyncio"

LOOPS = ("asyncio", "uring", "epoll")

CI = (
    "buffered_proto",
    "events",
    "sendfile",
    "server",
    "server_context",
    "sock_lowlevel",
    "ssl",
    "sslproto",
    "streams",
    "subprocess",
    "unix_events",
)
"""Groups that depend on the loop more than on asyncio's tasks, futures and locks. pytest runs them."""

LEFT_OUT = {
    "proactor_events": "Windows' proactor loop, driven with mocks.",
    "windows_events": "Only for Windows.",
    "windows_utils": "Only for Windows.",
    "selector_events": "Drives asyncio's own BaseSelectorEventLoop and its transports with a mocked "
    "selector; makes no loop by a name that could be ours.",
}
"""Modules that are not run, with the reason."""

REPEATED = re.compile(r"(Select|Poll|DevPoll|Kqueue)EventLoopTests")
"""Classes that run equal mixins over another selector: uringcore has no selector, so once is enough."""


def groups() -> tuple[str, ...]:
    """Return the modules of this interpreter's `test.test_asyncio` that are run, without `test_`.

    Raises `ModuleNotFoundError` if the interpreter lacks its own tests.
    """
    package = importlib.import_module(PACKAGE)
    modules = (one.name for one in pkgutil.iter_modules(package.__path__))
    names = (name.removeprefix("test_") for name in modules if name.startswith("test_"))
    return tuple(sorted(name for name in names if name not in LEFT_OUT))


def loop_class(name: str) -> type[asyncio.AbstractEventLoop]:
    """Return the class of the loop called `name`, one of `LOOPS`; it accepts and ignores a
    selector.
    """
    if name == "asyncio":
        return asyncio.SelectorEventLoop
    if name not in LOOPS:
        raise ValueError(f"name: no loop is called {name!r}")
    import uringcore

    class UringEventLoop(uringcore.UringEventLoop):
        def __new__(cls, selector: object = None) -> UringEventLoop:
            return super().__new__(cls, name)

        def __init__(self, selector: object = None) -> None:
            super().__init__(name)

    return UringEventLoop


def install(loop: type[asyncio.AbstractEventLoop]) -> None:
    """Make `loop` the class of every loop that this process creates through asyncio's names."""
    if loop is asyncio.SelectorEventLoop:
        return
    for name in ("SelectorEventLoop", "EventLoop"):
        if hasattr(asyncio, name):
            setattr(asyncio, name, loop)
    # 3.14 renamed the class and deprecated its accessor; the attribute is unchanged.
    policy: Any = getattr(
        asyncio.unix_events,
        "_UnixDefaultEventLoopPolicy",
        getattr(asyncio.unix_events, "_DefaultEventLoopPolicy", None),
    )
    policy._loop_factory = loop


def load(group: str, loop: type[asyncio.AbstractEventLoop]) -> list[unittest.TestCase]:
    """Load the group's tests, in CPython's order, with `loop` installed."""
    install(loop)
    module = importlib.import_module(f"{PACKAGE}.test_{group}")
    tests = list(_flatten(unittest.defaultTestLoader.loadTestsFromModule(module)))
    once = any(type(test).__name__ == "EPollEventLoopTests" for test in tests)
    return [test for test in tests if not (once and REPEATED.fullmatch(type(test).__name__))]


def _flatten(suite: unittest.TestSuite | unittest.TestCase) -> Iterator[unittest.TestCase]:
    if isinstance(suite, unittest.TestSuite):
        for one in suite:
            yield from _flatten(one)
    else:
        yield suite


def test_id(test: unittest.TestCase) -> str:
    """Return a test's name without the package, equal for every loop."""
    return test.id().removeprefix(f"{PACKAGE}.")


def python() -> str:
    """Return the interpreter's version as `3.12`."""
    return f"{sys.version_info[0]}.{sys.version_info[1]}"
