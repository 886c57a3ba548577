"""What tests of child processes share: a protocol that keeps what it is told, a watch over what is left."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from typing import Any

import pytest

PYTHON = sys.executable
"""What the children run."""


@pytest.fixture(autouse=True)
def no_watcher_left() -> Iterator[None]:
    """asyncio's own loops leave a child watcher in the policy, which ours would then honour."""
    if sys.version_info < (3, 14):
        asyncio.set_event_loop_policy(None)
    global _from_before
    _from_before = children()
    yield
    assert_no_children()


def assert_no_children() -> None:
    """Every child that the test has made has ended and was waited for. Others may be there:
    multiprocessing keeps a process of its own from its first use to the end of the run."""
    left = children() - _from_before
    if left:
        pytest.fail(f"children are left: {sorted(left)}")


def children() -> frozenset[int]:
    """The children of this process that run or were not waited for."""
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
    """Whether there is such a process, a zombie included."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Events(asyncio.SubprocessProtocol):
    """Keeps what it is told, in order."""

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
    """What a child writes to its standard output; its status must be 0."""
    child = await asyncio.create_subprocess_exec(*args, stdout=PIPE, **options)
    out, _ = await child.communicate()
    assert child.returncode == 0
    return out


_from_before: frozenset[int] = frozenset()
