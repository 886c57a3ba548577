"""Groups of CPython's asyncio tests and how each group gets the loop under test.

Two ways: the mixins of `test.test_asyncio` take a loop through a method (`create_event_loop`,
`new_loop`), so a class is built from each; every other module asks `asyncio.new_event_loop()`, so the
default policy's factory is replaced for the whole process.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import unittest
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

LoopFactory = Callable[[], asyncio.AbstractEventLoop]

LOOPS = ("asyncio", "uring", "epoll")


@dataclass(frozen=True)
class Group:
    """Tests that share one process."""

    name: str
    mixins: tuple[str, ...] = ()
    """Mixins, as "module.Class", that together make one test class with our loop."""
    method: str = ""
    """The method through which the mixins get their loop."""
    modules: tuple[str, ...] = ()
    """Whole modules, run under our default policy."""
    essential: bool = False
    """Run by pytest; the others only by `--all`."""


EVENTS = ("test_events.UnixEventLoopTestsMixin", "test_events.SubprocessTestsMixin")

GROUPS: tuple[Group, ...] = (
    Group("events", mixins=EVENTS, method="create_event_loop", essential=True),
    Group(
        "sock_lowlevel",
        mixins=("test_sock_lowlevel.BaseSockTestsMixin",),
        method="create_event_loop",
        essential=True,
    ),
    Group(
        "buffered_proto",
        mixins=("test_buffered_proto.BaseTestBufferedProtocol",),
        method="new_loop",
        essential=True,
    ),
    Group("server", mixins=("test_server.BaseStartServer",), method="new_loop", essential=True),
    Group("sendfile", mixins=("test_sendfile.SendfileTestsBase",), method="create_event_loop"),
    Group("start_tls", mixins=("test_sslproto.BaseStartTLS",), method="new_loop"),
    Group("subprocess", modules=("test_subprocess",)),
    Group("streams", modules=("test_streams",)),
    Group("server_module", modules=("test_server",)),
    Group("ssl", modules=("test_ssl", "test_sslproto")),
    Group("tasks", modules=("test_tasks", "test_eager_task_factory", "test_taskgroups")),
    Group("futures", modules=("test_futures", "test_futures2")),
    Group("locks", modules=("test_locks", "test_queues", "test_timeouts", "test_waitfor")),
    Group("runners", modules=("test_runners", "test_threads", "test_context", "test_pep492")),
    Group("unix_events", modules=("test_unix_events",)),
)


def group(name: str) -> Group:
    """The group called `name`; raises `KeyError` where there is none."""
    return {one.name: one for one in GROUPS}[name]


def loop_factory(name: str) -> LoopFactory:
    """A factory for the loop called `name`, one of `LOOPS` (or `uvloop`, to try the runner)."""
    if name == "asyncio":
        return asyncio.SelectorEventLoop
    if name == "uvloop":
        import uvloop

        return uvloop.new_event_loop
    if name in LOOPS:
        import uringcore

        return lambda: uringcore.new_event_loop(backend=name)
    raise ValueError(f"name: no loop is called {name!r}")


def load(group: Group, factory: LoopFactory) -> list[unittest.TestCase]:
    """The group's tests, in CPython's order, bound to `factory`.

    A module that this CPython does not have yields nothing.
    """
    install_default(factory)
    if group.mixins:
        loader = unittest.defaultTestLoader
        return list(_flatten(loader.loadTestsFromTestCase(_build(group, factory))))
    tests: list[unittest.TestCase] = []
    for name in group.modules:
        try:
            module = importlib.import_module(f"test.test_asyncio.{name}")
        except ModuleNotFoundError as missing:
            if missing.name != f"test.test_asyncio.{name}":
                raise
            continue
        tests.extend(_flatten(unittest.defaultTestLoader.loadTestsFromModule(module)))
    return tests


def install_default(factory: LoopFactory) -> None:
    """Make `asyncio.new_event_loop()` and the runners use `factory` in this process."""
    # 3.14 renamed the class and deprecated the way to it; the attribute is the same.
    policy: Any = getattr(
        asyncio.unix_events,
        "_UnixDefaultEventLoopPolicy",
        getattr(asyncio.unix_events, "_DefaultEventLoopPolicy", None),
    )
    policy._loop_factory = staticmethod(factory)


def _build(group: Group, factory: LoopFactory) -> type[unittest.TestCase]:
    from test.test_asyncio import utils

    bases = []
    for name in group.mixins:
        module, _, attribute = name.partition(".")
        bases.append(getattr(importlib.import_module(f"test.test_asyncio.{module}"), attribute))
    body = {group.method: lambda self: factory(), "__module__": __name__}
    # functional.FunctionalTestCaseMixin brings its own set-up; the others count on TestCase's.
    base = unittest.TestCase if group.method == "new_loop" else utils.TestCase
    return type(group.name, (*bases, base), body)


def _flatten(suite: unittest.TestSuite | unittest.TestCase) -> Iterator[unittest.TestCase]:
    if isinstance(suite, unittest.TestSuite):
        for one in suite:
            yield from _flatten(one)
    else:
        yield suite


def test_id(test: unittest.TestCase) -> str:
    """A test's name without the package, the same for every loop."""
    return test.id().removeprefix("test.test_asyncio.").removeprefix(f"{__name__}.")


def python() -> str:
    """The interpreter's version as `3.12`."""
    return f"{sys.version_info[0]}.{sys.version_info[1]}"
