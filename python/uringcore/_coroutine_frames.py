"""Frames for the extension's coroutines, which have none.

``inspect.getcoroutinestate`` and a task's stack need one.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["NEW", "WAITING"]


def native_code() -> Iterator[None]:
    """The frame in a stack where the extension is running."""
    yield


# Generators, because Python does not warn of a generator that is never run.
NEW = native_code()
WAITING = native_code()
next(WAITING)
