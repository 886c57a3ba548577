"""Frames for coroutines that are the extension's own and have none.

``inspect.getcoroutinestate`` and a task's stack ask for one.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["NEW", "WAITING"]


def native_code() -> Iterator[None]:
    """Stands where the extension is at work."""
    yield


# Of generators, for nobody warns of one that is never run.
NEW = native_code()
WAITING = native_code()
next(WAITING)
