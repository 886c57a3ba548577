"""Ends connections, streams and listeners that the program no longer references, in their loop's thread, and
warns with the line that made them.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["end_forgotten", "made_at", "on_loop"]


def made_at(loop: asyncio.AbstractEventLoop) -> str | None:
    """Returns the innermost line outside of this package as ``file:line``; ``None`` unless in debug mode."""
    if not loop.get_debug():
        return None
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("uringcore."):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def end_forgotten(
    kind: str,
    thing: object,
    origin: str | None,
    loop: asyncio.AbstractEventLoop,
    close: Callable[..., object],
    *args: Any,
) -> None:
    """Called by ``__del__`` of ``thing``: warns if there is an origin, and lets :func:`on_loop` call
    ``close(*args)``, even if warnings are errors.
    """
    try:
        if origin is not None:
            message = f"unclosed {kind} {thing!r}, made at {origin}"
            warnings.warn(message, ResourceWarning, stacklevel=3, source=thing)
    finally:
        on_loop(loop, close, *args)


def on_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: Any) -> None:
    """Calls ``callback(*args)`` in the thread that runs ``loop``: now if it is this one, otherwise in a later
    loop iteration, and not at all if the loop is closed.

    An object is collected in any thread, but only its loop's thread may end its connection. ``callback`` must
    not be a method of the object, which would resurrect it.
    """
    if asyncio._get_running_loop() is loop:
        callback(*args)
        return
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise
