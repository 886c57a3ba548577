"""Event loops by the names that the benchmarks use for them."""

from __future__ import annotations

import asyncio

LOOPS = ("asyncio", "uvloop", "rloop", "uringcore-uring", "uringcore-epoll")


def new_loop(name: str) -> asyncio.AbstractEventLoop:
    """Make the loop called `name`, one of `LOOPS`.

    Raises `ImportError` where its package is missing and `ValueError` for an unknown name.
    """
    if name == "asyncio":
        return asyncio.SelectorEventLoop()
    if name == "uvloop":
        import uvloop

        return uvloop.new_event_loop()
    if name == "rloop":
        import rloop

        return rloop.new_event_loop()
    if name.startswith("uringcore-"):
        import uringcore

        # Naming the backend is strict: a fallback must not pass for the real thing in a table.
        return uringcore.new_event_loop(backend=name.removeprefix("uringcore-"))
    raise ValueError(f"name: no loop is called {name!r}; there are {', '.join(LOOPS)}")
