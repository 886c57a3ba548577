"""Exceptions that are stored and raised repeatedly.

Each ``raise`` of one exception object extends its traceback, and so keeps the frames of every caller alive:
a program that polls a closed connection once a second would use more and more memory.
"""

from __future__ import annotations

from typing import TypeVar

__all__ = ["without_traceback"]

E = TypeVar("E", bound=BaseException)


def without_traceback(error: E) -> E:
    """Returns the exception without the tracebacks of earlier raises."""
    return error.with_traceback(None)
