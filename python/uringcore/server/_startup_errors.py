"""Errors that keep a server from starting, in one line, and the check for uvicorn.

Imports nothing of uvicorn's, so that the command can report that it is missing.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator

from uringcore._exception_pickling import PickledWithFields

__all__ = [
    "STARTUP_FAILURE",
    "StartupError",
    "ended_by_sigterm",
    "require_uvicorn",
    "without_stop_signals",
]

# The exit status of uvicorn. It is defined here because its module differs between versions of uvicorn.
STARTUP_FAILURE = 3

# The package of the extra. The name `uringcore` on the public index belongs to another author's package.
INSTALL_SERVER = "pip install 'uvicorn>=0.50'"


class StartupError(PickledWithFields, Exception):
    """The server cannot start; the text is one line that says why and what to do.

    ``status`` is the command's exit status: uvicorn's 3 if a socket is at fault. ``option`` is the
    keyword argument that the text begins with; the command replaces it with the name of its option.
    """

    def __init__(self, text: str, *, status: int = 1, option: str | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.option = option


def require_uvicorn() -> None:
    """Raises :class:`StartupError` unless a supported version of uvicorn is installed."""
    try:
        import uvicorn
    except ImportError as exc:
        if exc.name != "uvicorn":
            raise
        raise StartupError(
            f"the server needs uvicorn, which is not installed: {INSTALL_SERVER}"
        ) from None
    version = tuple(int(part) for part in uvicorn.__version__.split(".")[:2])
    if version < (0, 50):
        raise StartupError(
            f"uvicorn {uvicorn.__version__} is too old, 0.50 or later is needed: {INSTALL_SERVER}"
        )


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """A context in which SIGTERM exits the program with status 0 and runs its cleanup, until a server
    installs its own handler. Status 0 is that of a server that was asked to stop and did."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def without_stop_signals() -> Iterator[None]:
    """A context that ignores SIGINT and SIGTERM during the cleanup, which already ends the program."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            # getsignal() is None for a handler that Python has not installed, and cannot restore.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
