"""Stack frames for coroutines that are written in Rust, which have no frames of their own.

``inspect.getcoroutinestate`` and ``Task.get_stack`` need a frame.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["NEW", "WAITING"]


def native_code() -> Iterator[None]:
    """A generator whose frame represents the extension's code in a stack of frames."""
    yield


# The frames are those of generators, because Python does not warn if a generator is never run.
NEW = native_code()
WAITING = native_code()
next(WAITING)
