"""``bound``: a command whose process ends with the thread that started it. ``naming``: processes that remain.

A test run may be killed, for example by its time limit: then no fixture ends the processes it has started.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["bound", "naming", "wait_gone"]

END_SECONDS = 60


def bound(command: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Returns the command such that the kernel kills its process when the starting thread ends.

    Its own child processes are not killed: each process that starts others has to bind them.
    """
    return ["setpriv", "--pdeathsig", "KILL", *map(os.fspath, command)]


def naming(path: Path) -> Iterator[list[str]]:
    """Yields the command lines that contain the path, which is a folder of one test."""
    for found in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = found.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            # The process has ended meanwhile.
            continue
        if any(str(path) in word for word in words):
            yield words


def wait_gone(path: Path) -> None:
    """Waits until no command line contains the path: a killed process exists for another moment."""
    deadline = time.monotonic() + END_SECONDS
    while left := list(naming(path)):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
