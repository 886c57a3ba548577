"""Fifty clients send a request at once, and each answer blocks the server's loop: the arrival times.

The clients are one process on the load's core. Over TCP, TLS and UDP they use plain sockets; over QUIC
they use this project's client.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import selectors
import socket
import ssl
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import syscalls
from benchmarks.harness.process import Server
from benchmarks.harness.syscalls import SyscallCounter
from benchmarks.programs.deployed import authority, beside_the_server, certificate
from benchmarks.programs.rows import arguments
from benchmarks.servers.bulk import ALPN
from benchmarks.servers.computing import ANSWER, OURS_ALONE, REQUEST, WIRES
from benchmarks.servers.loops import LOOPS, OURS

CLIENTS = 50
COMPUTE_MS = (0, 0.1, 1, 4)
BURSTS = {0: 40, 0.1: 20, 1: 6, 4: 3}
"""The number of requests of each client, by the milliseconds of an answer."""
PAUSE_SECONDS = 0.02
LONGEST = len(ANSWER) + 1024
"""The most bytes of an answer, including the head of HTTP/1.1."""
TITLES = {
    "tcp": "TCP, `Protocol`",
    "streams": "TCP, streams",
    "tls": "TLS",
    "udp": "UDP",
    "quic": "QUIC streams",
    "http1": "ASGI, HTTP/1.1",
    "http3": "ASGI, HTTP/3",
}
Burst = list[float]
"""The arrival time of each answer, in seconds since the first request, in order."""
Counting = contextlib.AbstractContextManager[Any]
"""Counts the server's work during the block."""


class ProcessorTime:
    """Seconds of processor time that a process uses while the block runs."""

    def __init__(self, pid: int) -> None:
        self.seconds = 0.0
        self._path = Path(f"/proc/{pid}/schedstat")

    def __enter__(self) -> ProcessorTime:
        self.seconds -= self._used()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += self._used()

    def _used(self) -> float:
        return int(self._path.read_text().split()[0]) / 1e9


def sockets(wire: str, port: int) -> Iterator[Any]:
    """Connect the clients' sockets."""
    for _ in range(CLIENTS):
        if wire == "udp":
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.connect(("127.0.0.1", port))
        else:
            sock = socket.create_connection(("127.0.0.1", port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if wire == "tls":
            context = ssl.create_default_context(cafile=authority())
            sock = context.wrap_socket(sock, server_hostname="localhost")
        yield sock


def ask_by_sockets(wire: str, port: int, bursts: int, counting: Counting) -> list[Burst]:
    """Send one request on each socket, `bursts` times."""
    clients = list(sockets(wire, port))
    with contextlib.ExitStack() as open_sockets, selectors.DefaultSelector() as selector:
        for sock in clients:
            open_sockets.enter_context(sock)
            selector.register(sock, selectors.EVENT_READ)
        # Connecting and code that runs for the first time are not part of an answer's cost.
        _burst(clients, selector)
        with counting:
            return [_burst(clients, selector) for _ in range(bursts)]


def _burst(clients: Sequence[Any], selector: selectors.BaseSelector) -> Burst:
    time.sleep(PAUSE_SECONDS)
    began = time.perf_counter()
    for sock in clients:
        sock.sendall(REQUEST)
    arrived = []
    left = dict.fromkeys(clients, b"")
    while left:
        ready = selector.select(30)
        if not ready:
            raise RuntimeError(f"{len(left)} clients have no answer")
        for key, _ in ready:
            sock: Any = key.fileobj
            piece = sock.recv(65536)
            # A head may come before its body.
            left[sock] += piece
            if not piece or len(left[sock]) > LONGEST:
                raise RuntimeError(f"a wrong answer: {left[sock][:200]!r}")
            if left[sock].endswith(ANSWER):
                del left[sock]
                arrived.append(time.perf_counter() - began)
    return arrived


async def ask_by_tasks(
    askers: Sequence[Callable[[], Awaitable[bytes]]], bursts: int, counting: Counting
) -> list[Burst]:
    """Send the requests by a task for each client."""

    async def one(ask: Callable[[], Awaitable[bytes]], began: float) -> float:
        if await ask() != ANSWER:
            raise RuntimeError("a wrong answer")
        return time.perf_counter() - began

    async def burst() -> Burst:
        await asyncio.sleep(PAUSE_SECONDS)
        began = time.perf_counter()
        return sorted(await asyncio.gather(*(one(ask, began) for ask in askers)))

    await burst()
    with counting:
        return [await burst() for _ in range(bursts)]


async def ask_by_quic(wire: str, port: int, bursts: int, counting: Counting) -> list[Burst]:
    """Send the requests on QUIC connections."""
    from uringcore import http3, quic

    cafile = authority()
    askers: list[Callable[[], Awaitable[bytes]]] = []
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(CLIENTS):
            if wire == "quic":
                config = quic.ClientConfig(authorities=cafile, alpn=[ALPN])
                connecting = quic.connect("127.0.0.1", port, config)
                connection = await stack.enter_async_context(connecting)
                stream = await stack.enter_async_context(connection.open_stream())

                async def ask(stream: Any = stream) -> bytes:
                    await stream.send(REQUEST)
                    return bytes(await stream.readexactly(len(ANSWER)))
            else:
                url = f"https://localhost:{port}/"
                client = await stack.enter_async_context(http3.Client(base_url=url, cafile=cafile))

                async def ask(client: Any = client) -> bytes:
                    async with client.stream("GET", "/") as response:
                        return bytes(await response.read())

            askers.append(ask)
        return await ask_by_tasks(askers, bursts, counting)


def ask(wire: str, port: int, bursts: int, counting: Counting) -> list[Burst]:
    """The bursts over this wire; `counting` is entered once the clients have connected."""
    if wire not in OURS_ALONE:
        return ask_by_sockets(wire, port, bursts, counting)
    import uringcore

    return uringcore.run(ask_by_quic(wire, port, bursts, counting))


def measure(loop: str, wire: str, compute_ms: float) -> dict[str, float]:
    """The rows of one server."""
    cert, key = certificate()
    command = [
        *(sys.executable, "-m", "benchmarks.servers.computing", "--loop", loop, "--wire", wire),
        *("--compute-ms", str(compute_ms), "--cert", cert, "--key", key),
    ]
    bursts = BURSTS[compute_ms]
    with Server(loop, command, {}) as server:
        used = ProcessorTime(server.pid)
        found = ask(wire, server.port, bursts, used)
        calls = None
        if syscalls.unavailable() is None:
            counter = SyscallCounter(server.pid)
            ask(wire, server.port, bursts, counter)
            calls = counter.count
    answers = bursts * CLIENTS
    title = f"{TITLES[wire]}, {compute_ms:g} ms"
    rows = {
        f"{title}: {which}, ms": 1000 * statistics.median(burst[at] for burst in found)
        for which, at in (("first", 0), ("median", CLIENTS // 2), ("last", -1))
    }
    rows[f"{title}: processor time an answer, µs"] = 1e6 * used.seconds / answers
    if calls is not None:
        rows[f"{title}: system calls an answer"] = calls / answers
    return rows


def main() -> None:
    """Measure all wires on the loop of the column."""
    given = arguments(__doc__, LOOPS)
    beside_the_server()
    rows: dict[str, list[float]] = {}
    for wire in WIRES:
        if wire in OURS_ALONE and given.peer not in OURS:
            continue
        for compute_ms in COMPUTE_MS:
            for row, value in measure(given.peer, wire, compute_ms).items():
                rows.setdefault(row, []).append(value)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
