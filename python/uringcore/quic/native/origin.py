"""Where a connection, a stream or a listener was made, for the warning that a program has forgotten it."""

from __future__ import annotations

import asyncio
import sys
import warnings

__all__ = ["made_at", "warn_of_forgotten"]


def made_at(loop: asyncio.AbstractEventLoop) -> str | None:
    """The innermost line that is not this package's, as ``file:line``; nothing but in debug mode."""
    if not loop.get_debug():
        return None
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("uringcore."):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def warn_of_forgotten(kind: str, thing: object, origin: str | None) -> None:
    """To be called where ``thing`` is collected; without an origin nobody is to be warned."""
    if origin is not None:
        message = f"unclosed {kind} {thing!r}, made at {origin}"
        warnings.warn(message, ResourceWarning, stacklevel=3, source=thing)
