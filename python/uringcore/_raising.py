"""Exceptions that are kept and raised again and again.

Each ``raise`` of one exception object adds to its traceback, and with that keeps the frames of every
caller alive: a program that asks a closed connection once a second holds more and more.
"""

from __future__ import annotations

from typing import TypeVar

__all__ = ["fresh"]

E = TypeVar("E", bound=BaseException)


def fresh(error: E) -> E:
    """The exception to be raised, without the tracebacks of earlier times."""
    return error.with_traceback(None)
