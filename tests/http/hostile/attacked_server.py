"""A server under attack, an ordinary client beside it, and the bounds on the attack's effect.

The test supplies the attack. During the attack the client requests one response after the other; at
the end the checks cover the server's memory, its log and the client's results.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import uringcore
from tests.http.raw_client import WAIT_SECONDS
from tests.server.harness import Server

VICTIM = "tests.http.hostile.attacked_application:app"
MIB = 1 << 20
# The command's options for its limits.
HEADER_BYTES = "--http3-max-header-bytes"
HEADER_TIMEOUT = "--http3-header-timeout"
BODY_TIMEOUT = "--http3-body-timeout"
SEND_TIMEOUT = "--http3-send-timeout"
IDLE_TIMEOUT = "--http3-idle-timeout"
KEEP_ALIVE = "--http3-keep-alive"
REQUESTS = "--http3-max-requests-per-connection"
# The maximum of log lines that one client may cause: the limit for a client, and a few of the server itself.
LOG_LINES = 20


class AttackedServer:
    """Checks of a server under attack."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.bystander = Bystander(server)
        self.before = 0

    @property
    def grown_bytes(self) -> int:
        """Returns the growth of the server's memory since the start."""
        return own_bytes(self.server) - self.before

    async def others_served(self) -> None:
        """Checks that the ordinary client gets responses, on its existing connection and on a new
        one.
        """
        await self.bystander.wait_served(3)
        response = await asyncio.to_thread(self.server.get, "/")
        assert response.content == b"hello"

    async def state(self, path: str) -> dict[str, int]:
        """Returns the application's counts of its calls with this path."""
        response = await asyncio.to_thread(self.server.get, "/state")
        return json.loads(response.content).get(path, {})

    async def wait_state(self, path: str, **wanted: int) -> dict[str, int]:
        """Waits until the calls with this path have these counts."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            found = await self.state(path)
            if all(found.get(name, 0) == count for name, count in wanted.items()):
                return found
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.1)

    async def wait_small(self, limit_mib: float) -> None:
        """Waits until the server's memory is nearly back at its initial size."""
        deadline = time.monotonic() + WAIT_SECONDS
        while self.grown_bytes > limit_mib * MIB:
            assert time.monotonic() < deadline, f"still {self.grown_bytes / MIB:.1f} MiB more"
            await asyncio.sleep(0.2)


class Bystander(threading.Thread):
    """An ordinary client, in a thread and on a loop of its own."""

    def __init__(self, server: Server) -> None:
        super().__init__(name="bystander", daemon=True)
        self._server = server
        self._stopping = False
        self.seconds: list[float] = []
        """The duration of each request."""
        self.peak_bytes = 0
        self.error: BaseException | None = None

    @property
    def served(self) -> int:
        """The number of responses received."""
        return len(self.seconds)

    def run(self) -> None:
        """Sends requests until it is stopped."""
        try:
            uringcore.run(self._ask())
        except BaseException as exc:
            self.error = exc

    async def _ask(self) -> None:
        async with self._server.connect() as client:
            while not self._stopping:
                begin = time.perf_counter()
                response = await asyncio.wait_for(client.get("/"), WAIT_SECONDS)
                self.seconds.append(time.perf_counter() - begin)
                assert (response.status, response.content) == (200, b"hello")
                self.peak_bytes = max(self.peak_bytes, own_bytes(self._server))
                await asyncio.sleep(0.02)

    async def wait_served(self, count: int) -> None:
        """Waits until it has received `count` more responses."""
        wanted = self.served + count
        while self.served < wanted:
            assert self.error is None, self.error
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """Stops it; raises its error, if any."""
        self._stopping = True
        await asyncio.to_thread(self.join, WAIT_SECONDS)
        assert not self.is_alive(), "no response for an ordinary client"
        assert self.error is None, self.error


@contextlib.asynccontextmanager
async def attacked_server(
    server: Server, *, memory_mib: float, log_lines: int | Callable[[], int] = LOG_LINES
) -> AsyncIterator[AttackedServer]:
    """The block is the attack. It may cost at most this much memory and this many lines of the log.

    A function as ``log_lines`` is called after the attack, for a bound that grows with time.
    """
    # Memory allocated by the first requests does not count.
    for _ in range(5):
        await asyncio.to_thread(server.get, "/")
    attacked = AttackedServer(server)
    lines = server.log().count("\n")
    attacked.before = own_bytes(server)
    attacked.bystander.start()
    await attacked.bystander.wait_served(1)
    try:
        yield attacked
        await attacked.others_served()
    finally:
        attacked.bystander._stopping = True
    await attacked.bystander.stop()
    grown = max(attacked.bystander.peak_bytes - attacked.before, attacked.grown_bytes)
    assert grown < memory_mib * MIB, f"{grown / MIB:.1f} MiB"
    log = server.log()
    assert "Traceback" not in log, log[-3000:]
    most = log_lines() if callable(log_lines) else log_lines
    assert log.count("\n") - lines <= most, log[-3000:]
    assert server.process.poll() is None


def own_bytes(server: Server) -> int:
    """Returns the process's memory, less the part that it shares with files."""
    statm = Path(f"/proc/{server.process.pid}/statm").read_text().split()
    return (int(statm[1]) - int(statm[2])) * os.sysconf("SC_PAGE_SIZE")


def run(attack: Any) -> None:
    """Runs an attack on stock asyncio."""
    asyncio.run(asyncio.wait_for(attack, 100))
