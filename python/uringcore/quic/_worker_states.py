"""The states of the workers that share a UDP port, in memory that all of their processes can read.

The states are bytes of a file in memory. The process that observes a worker writes its byte. If a packet for
a worker's connection arrives at another worker, that one reads the byte before it answers with a stateless
reset (``src/py/quic/endpoint_settings.rs``). A reset ends the connection, so none may be sent while the
connection's worker lives (RFC 9000 section 21.11). Such packets arrive although the kernel selects the worker
by the connection ID: the selection does not apply to broadcast addresses, nor after another program has
replaced it.

Not here: the choice of the worker that gets a place's packets (:mod:`uringcore.quic.workers`).
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable
from multiprocessing import reduction
from typing import Any

__all__ = ["ABSENT", "ACCEPTING", "ENDING", "WorkerStates"]

ABSENT, ACCEPTING, ENDING = range(3)
"""The three states of a worker: it has no process; it accepts new clients; it only serves its connections
until they end."""


class WorkerStates:
    """One byte for each of ``count`` places, ``ACCEPTING`` at first.

    A child process gets it by fork, or as an argument of ``multiprocessing.Process``.
    """

    def __init__(self, count: int) -> None:
        self._hold(_unnamed_file(), count)
        for index in range(count):
            self[index] = ACCEPTING

    def _hold(self, fd: int, count: int) -> None:
        self._fd, self._count = fd, count
        self._close = weakref.finalize(self, os.close, fd)

    def fileno(self) -> int:
        """The file's descriptor."""
        return self._fd

    def __getitem__(self, index: int) -> int:
        return os.pread(self._fd, 1, index)[0]

    def __setitem__(self, index: int, state: int) -> None:
        os.pwrite(self._fd, bytes([state]), index)

    def all(self) -> bytes:
        """Returns all present states."""
        return os.pread(self._fd, self._count, 0)

    def close(self) -> None:
        """Closes this process's descriptor."""
        self._close()

    def __reduce__(self) -> tuple[Callable[..., WorkerStates], tuple[Any, ...]]:
        return _received, (reduction.DupFd(self._fd), self._count)


def _unnamed_file() -> int:
    """Returns the descriptor of an unnamed file, in memory if Python supports it."""
    # A CPython that was built with a glibc older than 2.27 lacks this function.
    if hasattr(os, "memfd_create"):
        return os.memfd_create("uringcore-places")
    with tempfile.TemporaryFile() as file:
        # The duplicate is not inheritable (PEP 446).
        return os.dup(file.fileno())


def _received(handle: Any, count: int) -> WorkerStates:
    """Called in a process that received the states as an argument at its start."""
    states = WorkerStates.__new__(WorkerStates)
    fd = handle.detach()
    # In a started process the descriptor is inheritable. Its own children must not keep the file open.
    os.set_inheritable(fd, False)
    states._hold(fd, count)
    return states
