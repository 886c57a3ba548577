"""Helpers for tests of child processes: a protocol that records its calls, and a check for
processes left behind.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from typing import Any

import pytest

PYTHON = sys.executable
"""The interpreter of the children."""


@pytest.fixture(autouse=True)
def no_watcher_left() -> Iterator[None]:
    """asyncio's own loops leave a child watcher in the policy, which ours would then use."""
    if sys.version_info < (3, 14):
        asyncio.set_event_loop_policy(None)
    global _from_before
    _from_before = children()
    yield
    assert_no_children()


def assert_no_children() -> None:
    """Asserts that every child of the test has ended and was waited for. Others may exist:
    multiprocessing keeps a process of its own from its first use to the end of the run.
    """
    left = children() - _from_before
    if left:
        pytest.fail(f"children are left: {sorted(left)}")


def children() -> frozenset[int]:
    """Returns the children of this process that run or were not waited for."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return frozenset()
    return frozenset(
        pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_ours(pid)
    )


def _is_ours(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name, which may hold anything, is in brackets; the state and the parent follow.
            return int(file.read().rpartition(b")")[2].split()[1]) == os.getpid()
    except (FileNotFoundError, ProcessLookupError):
        return False


def exists(pid: int) -> bool:
    """Returns true if the process exists, including as a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Events(asyncio.SubprocessProtocol):
    """Records its calls, in order."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.data: dict[int, bytes] = {1: b"", 2: b""}
        self.lost = asyncio.get_running_loop().create_future()
        self.exited = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.calls.append("made")

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        assert type(data) is bytes
        self.data[fd] += data

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self.calls.append(("pipe lost", fd))

    def process_exited(self) -> None:
        self.calls.append("exited")
        self.exited.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append("lost")
        self.lost.set_result(exc)


async def output(*args: Any, **options: Any) -> bytes:
    """Returns a child's standard output; its status must be 0."""
    child = await asyncio.create_subprocess_exec(*args, stdout=PIPE, **options)
    out, _ = await child.communicate()
    assert child.returncode == 0
    return out


_from_before: frozenset[int] = frozenset()
