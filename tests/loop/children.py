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
    yield
    assert_no_children()


def assert_no_children() -> None:
    """Every child of this process has ended and was waited for."""
    try:
        left = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return
    pytest.fail(f"a child is left: {left or 'running'}")


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
