"""Workers that are replaced under load: the share of the requests that are answered, and the slowest answer.

Each attempt is a new connection with one request, over HTTP/1.1 with TLS and, if the server supports it,
over HTTP/3. All processes share the cores.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time

import uringcore
from benchmarks.applications.bare import HELLO
from benchmarks.programs.deployed import SERVERS, Deployed, authority, use_every_core
from benchmarks.programs.rows import arguments
from uringcore.http3._unpooled_connection import connect

WORKERS = 2
AT_ONCE = 4
ROUNDS = 2
AFTER_SECONDS = 1.0
"""The load continues for this time after the new workers serve: the old ones end in it."""


class Attempts:
    """The attempts over one protocol, until `is_over`."""

    def __init__(self) -> None:
        self.answered = 0
        self.refused: list[str] = []
        self.slowest = 0.0
        self.is_over = False

    async def keep_asking(self, ask: object) -> None:
        """Make one attempt after the other."""
        while not self.is_over:
            began = time.perf_counter()
            try:
                await ask()  # type: ignore[operator]
            except (OSError, EOFError, uringcore.http3.HTTP3Error) as error:
                self.refused.append(repr(error))
            else:
                self.answered += 1
            self.slowest = max(self.slowest, time.perf_counter() - began)

    def rows(self, name: str) -> dict[str, list[float]]:
        """The share of answered attempts and the slowest one."""
        count = self.answered + len(self.refused)
        return {
            f"{name}, answered of 1,000 attempts": [self.answered * 1000 / count],
            f"{name}, slowest ms": [self.slowest * 1000],
        }


async def over_tcp(port: int, context: ssl.SSLContext) -> None:
    """One request over HTTP/1.1 on a new connection."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname="localhost"
    )
    try:
        writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        answer = await reader.read()
        if not answer.startswith(b"HTTP/1.1 200 ") or not answer.endswith(HELLO):
            raise ConnectionError(f"a wrong answer: {answer[:100]!r}")
    finally:
        writer.close()


async def over_quic(port: int, cafile: str) -> None:
    """Does this over HTTP/3."""
    async with connect(f"https://localhost:{port}", cafile=cafile) as client:
        response = await client.get("/")
        if (response.status, response.content) != (200, HELLO):
            raise ConnectionError(f"a wrong answer: {response}")


async def measure(server: Deployed, *, http3: bool) -> dict[str, list[float]]:
    """All rows."""
    cafile = authority()
    context = ssl.create_default_context(cafile=cafile)
    tcp, quic = Attempts(), Attempts()
    kinds = [(tcp, lambda: over_tcp(server.port, context))]
    if http3:
        kinds.append((quic, lambda: over_quic(server.port, cafile)))
    tasks = [
        asyncio.ensure_future(attempts.keep_asking(ask))
        for attempts, ask in kinds
        for _ in range(AT_ONCE)
    ]
    seconds = []
    for number in range(ROUNDS):
        began = time.perf_counter()
        server.hang_up()
        await asyncio.to_thread(server.wait_started, WORKERS * (number + 2))
        seconds.append(time.perf_counter() - began)
        await asyncio.sleep(AFTER_SECONDS)
    for attempts, _ in kinds:
        attempts.is_over = True
    await asyncio.gather(*tasks)
    rows = {"seconds until all workers are new": seconds, **tcp.rows("HTTP/1.1")}
    return rows | quic.rows("HTTP/3") if http3 else rows


def main() -> None:
    """Measure the server of the column."""
    given = arguments(__doc__, SERVERS)
    use_every_core()
    ours = given.peer.startswith("uringcore")
    with Deployed(given.peer, workers=WORKERS, tls=True, core=None) as server:
        rows = uringcore.run(measure(server, http3=ours))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
