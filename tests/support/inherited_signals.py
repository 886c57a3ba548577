"""Signals that the caller of a test run ignored: the servers and programs of tests would inherit that.

`nohup` ignores SIGHUP, and a shell ignores SIGINT for commands that a script starts with `&`.
"""

from __future__ import annotations

import os
import signal

__all__ = ["restore"]


def restore() -> None:
    """Restores SIGHUP and SIGINT for child processes, before the first of them starts."""
    let_servers_hang_up()
    let_children_be_interrupted()


def let_servers_hang_up() -> None:
    """Restores SIGHUP if nohup started the run and left it ignored: many tests send it to servers.

    With a handler the run itself continues, and its child processes get the default action.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN or "TESTS_UNDER_NOHUP" in os.environ:
        os.environ["TESTS_UNDER_NOHUP"] = "1"
        signal.signal(signal.SIGHUP, lambda number, frame: None)


def let_children_be_interrupted() -> None:
    """Restores SIGINT, by which tests stop servers."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
