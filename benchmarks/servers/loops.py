"""The event loops, by the benchmarks' names."""

from __future__ import annotations

import asyncio
import importlib

PEERS = ("uvloop", "rloop", "blazio", "zloop")
"""Other projects' loops: each a package of this name with a `new_event_loop()`."""
OURS = ("uringcore-uring", "uringcore-epoll")
LOOPS = ("asyncio", *PEERS, *OURS)
AIOFASTNET = "aiofastnet on uvloop"
"""Not a loop: transports that aiofastnet builds over uvloop's `add_reader`."""
STREAM_LOOPS = ("asyncio", *PEERS, AIOFASTNET, *OURS)
"""The loops of the tables about TCP and TLS."""


def package_of(name: str) -> str:
    """The module to import for the loop called `name`."""
    if name == AIOFASTNET:
        return "aiofastnet"
    return "uringcore" if name in OURS else name


def new_loop(name: str, busy_poll_us: int | None = None) -> asyncio.AbstractEventLoop:
    """Make the loop called `name`, one of `STREAM_LOOPS`; `busy_poll_us` is for uringcore's loops only.

    Raises `ImportError` if its package is missing and `ValueError` for an unknown name.
    """
    if name not in STREAM_LOOPS:
        raise ValueError(f"name: no loop is called {name!r}; there are {', '.join(STREAM_LOOPS)}")
    if name == "asyncio":
        return asyncio.SelectorEventLoop()
    module = importlib.import_module(package_of(name))
    if name == AIOFASTNET:
        loop = importlib.import_module("uvloop").new_event_loop()
        module.patch_loop(loop)
        return loop  # type: ignore[no-any-return]
    if name in OURS:
        # Naming the backend is strict: a fallback must not pass for the real thing in a table.
        backend = name.removeprefix("uringcore-")
        return module.new_event_loop(backend=backend, busy_poll_us=busy_poll_us)
    return module.new_event_loop()
