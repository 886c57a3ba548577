"""HTTP/1.1 without TLS: requests and large bodies, and their cost for the server.

The load is an `asyncio.Protocol` on this project's loop, on the other core; it compares every byte of small
answers. The server's processor time is the important figure, because a client in Python is the slower side.
"""

from __future__ import annotations

import asyncio
import json
import re
import time

import uringcore
from benchmarks.applications.bare import BLOCK, HELLO, LARGE
from benchmarks.programs.deployed import SERVERS, Deployed, beside_the_server, spent
from benchmarks.programs.rows import arguments

LENGTH = re.compile(rb"content-length: *(\d+)", re.I)
BIG = 100 << 20
CONNECTIONS = 32


class Client(asyncio.Protocol):
    """One connection, which sends one request after the other until `is_over`."""

    def __init__(self, path: str, *, upload: int = 0, expected: bytes | None = None) -> None:
        verb = "POST" if upload else "GET"
        self._head = f"{verb} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {upload}\r\n\r\n".encode()
        self._upload = upload
        self._expected = expected
        self._left = -1
        self._received: list[bytes] = []
        self._begun = b""
        self._writable = asyncio.Event()
        self._writable.set()
        self.answered = 0
        self.is_over = False
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(error or ConnectionError("the server has closed"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _ask(self) -> None:
        self._transport.write(self._head)
        if self._upload:
            self._task = asyncio.ensure_future(self._send())

    async def _send(self) -> None:
        left = self._upload
        while left:
            size = min(left, len(BLOCK))
            self._transport.write(BLOCK[:size])
            left -= size
            await self._writable.wait()

    def data_received(self, data: bytes) -> None:
        if self._left < 0:
            head, end, data = (self._begun + data).partition(b"\r\n\r\n")
            if not end:
                self._begun = head
                return
            self._begun = b""
            found = LENGTH.search(head)
            if not head.startswith(b"HTTP/1.1 200 ") or found is None:
                raise RuntimeError(f"a wrong answer: {head[:200]!r}")
            self._left = int(found[1])
        self._left -= len(data)
        if self._expected is not None:
            self._received.append(data)
        if self._left == 0:
            self._answer_ended()

    def _answer_ended(self) -> None:
        if self._expected is not None and b"".join(self._received) != self._expected:
            raise RuntimeError("a wrong answer")
        self._received.clear()
        self._left = -1
        self.answered += 1
        if self.is_over:
            self.ended.set_result(None)
            self._transport.close()
        else:
            self._ask()


async def load(server: Deployed, clients: list[Client], seconds: float) -> list[float]:
    """Requests, seconds and the server's processor seconds while all clients send requests."""
    loop = asyncio.get_running_loop()
    for client in clients:
        await loop.create_connection(lambda one=client: one, "127.0.0.1", server.port)
    while not all(client.answered for client in clients):
        await asyncio.sleep(0.01)
    began, before, count = (
        time.perf_counter(),
        server.cpu_ns(),
        sum(one.answered for one in clients),
    )
    while time.perf_counter() - began < seconds:
        await asyncio.sleep(seconds / 20)
        for client in clients:
            if client.ended.done():
                await client.ended
    count = sum(one.answered for one in clients) - count
    wall, cpu = time.perf_counter() - began, sum(spent(before, server.cpu_ns()))
    for client in clients:
        client.is_over = True
    await asyncio.gather(*(client.ended for client in clients))
    return [count, wall, cpu]


async def transfer(server: Deployed, client: Client) -> list[float]:
    """Seconds and the server's processor seconds of one large body."""
    began, before = time.perf_counter(), server.cpu_ns()
    client.is_over = True
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: client, "127.0.0.1", server.port)
    await client.ended
    return [BIG / 2**20, time.perf_counter() - began, sum(spent(before, server.cpu_ns()))]


async def measure(server: Deployed, seconds: float) -> dict[str, list[float]]:
    """All rows."""
    rows = {}
    requests = {
        "hello": lambda: Client("/", expected=HELLO),
        "100 KiB": lambda: Client("/100k", expected=LARGE),
        "POST of 100 KiB": lambda: Client("/upload", upload=len(LARGE)),
    }
    for name, make in requests.items():
        count, wall, cpu = await load(server, [make() for _ in range(CONNECTIONS)], seconds)
        rows[f"{name}, requests/s"] = [count, wall, cpu]
        rows[f"{name}, requests a second of the server's processor time"] = [count, cpu, cpu]
    bodies = {
        "100 MiB down": lambda: Client(f"/download/{BIG}"),
        "100 MiB up": lambda: Client("/upload", upload=BIG),
    }
    for name, make in bodies.items():
        await transfer(server, make())
        count, wall, cpu = await transfer(server, make())
        rows[f"{name}, MiB/s"] = [count, wall, cpu]
        rows[f"{name}, MiB a second of the server's processor time"] = [count, cpu, cpu]
    return rows


def main() -> None:
    """Measure the server of the column."""
    given = arguments(__doc__, SERVERS)
    beside_the_server()
    with Deployed(given.peer) as server:
        rows = uringcore.run(measure(server, given.seconds))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
