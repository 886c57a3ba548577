"""``bound``: a command whose process ends with whoever has started it. ``naming``: who is there still.

A test run may be killed, as its own time limit does with it: then no fixture ends what it has started.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["bound", "naming", "wait_gone"]

END_SECONDS = 60


def bound(command: Sequence[str | os.PathLike[str]]) -> list[str]:
    """The command, killed by the kernel when the thread that has started it is gone.

    What it starts in its turn is not: whoever starts somebody binds them.
    """
    return ["setpriv", "--pdeathsig", "KILL", *map(os.fspath, command)]


def naming(path: Path) -> Iterator[list[str]]:
    """The command lines in which the path stands, as a folder that belongs to one test."""
    for found in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = found.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            # It has ended meanwhile.
            continue
        if any(str(path) in word for word in words):
            yield words


def wait_gone(path: Path) -> None:
    """Until nobody's command names the path: a process that was killed is there for a moment."""
    deadline = time.monotonic() + END_SECONDS
    while left := list(naming(path)):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
