"""The time to the first byte of a client without a connection, over a link of 50 ms: full, resumed, 0-RTT.

The link is the loopback interface of a network namespace with netem's delay. On a kernel without netem a
proxy of the tests delays datagrams, and there is no row for TCP.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator

import uringcore
from benchmarks.programs.deployed import SERVERS, Deployed, authority, beside_the_server
from benchmarks.programs.rows import arguments
from tests.support.simulated_link import Conditions
from tests.support.udp_proxy import ImpairmentProxy
from uringcore.http3 import Client, Limits

ONE_WAY_SECONDS = 0.025
SAMPLES = 5
IDLE_SECONDS = 0.3
"""After which a client closes a connection, so that the next request begins anew."""
INSIDE = "BENCHMARK_LINK"
"""Environment variable, set in the namespace's process."""
LINK = f"ip link set lo up && tc qdisc add dev lo root netem delay {ONE_WAY_SECONDS * 1000:g}ms limit 100000"
COLUMNS = [name for name in SERVERS if name.startswith("uringcore")]


def has_link() -> bool:
    """Return True if this machine can make such a namespace."""
    done = subprocess.run(["unshare", "--net", "sh", "-c", LINK], capture_output=True, check=False)
    return done.returncode == 0


async def over_tcp(port: int, context: ssl.SSLContext) -> float:
    """Milliseconds with TCP and TLS 1.3, without resumption."""
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname="localhost"
    )
    writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    await reader.readexactly(1)
    took = (time.perf_counter() - began) * 1000
    writer.close()
    return took


async def ask(client: Client, port: int, *, early: bool) -> float:
    """Milliseconds to the head of a response, whose first byte comes with it."""
    began = time.perf_counter()
    async with client.stream("GET", f"https://localhost:{port}/") as response:
        took = (time.perf_counter() - began) * 1000
        await response.read()
        if response.status != 200 or response.was_early != early:
            raise RuntimeError(f"status {response.status}, early {response.was_early}")
    return took


async def anew(cafile: str, port: int) -> float:
    """Measures with a client without any state."""
    async with Client(cafile=cafile) as client:
        return await ask(client, port, early=False)


async def again(cafile: str, port: int, *, early: bool) -> float:
    """Measures with a client that has connected before and whose connection has ended."""
    limits = Limits(idle_timeout=IDLE_SECONDS)
    async with Client(cafile=cafile, limits=limits, early_data=early) as client:
        await ask(client, port, early=False)
        # The ticket arrives a round trip later; then the connection is closed.
        await asyncio.sleep(IDLE_SECONDS + 10 * ONE_WAY_SECONDS)
        return await ask(client, port, early=early)


@contextlib.asynccontextmanager
async def far(port: int, *, linked: bool) -> AsyncIterator[int]:
    """The UDP port at which the server is reached with the link's delay."""
    if linked:
        yield port
        return
    delayed = Conditions(delay=ONE_WAY_SECONDS)
    async with ImpairmentProxy(("127.0.0.1", port), up=delayed, down=delayed, seed=1) as proxy:
        yield proxy.address[1]


async def measure(server: Deployed, *, linked: bool) -> dict[str, list[float]]:
    """All rows."""
    cafile = authority()
    context = ssl.create_default_context(cafile=cafile)
    rows: dict[str, list[float]] = {}
    async with far(server.port, linked=linked) as port:
        for _ in range(SAMPLES):
            if linked:
                rows.setdefault("TCP and TLS 1.3", []).append(await over_tcp(port, context))
            rows.setdefault("HTTP/3", []).append(await anew(cafile, port))
            rows.setdefault("HTTP/3, resumed", []).append(await again(cafile, port, early=False))
            rows.setdefault("HTTP/3, 0-RTT", []).append(await again(cafile, port, early=True))
    return rows


def main() -> None:
    """Measure on the backend of the column."""
    given = arguments(__doc__, COLUMNS)
    if INSIDE not in os.environ and has_link():
        os.environ[INSIDE] = "netem"
        again_inside = [sys.executable, "-m", "benchmarks.programs.first_byte", *sys.argv[1:]]
        os.execvp(
            "unshare", ["unshare", "--net", "sh", "-c", f'{LINK} && exec "$@"', "sh", *again_inside]
        )
    beside_the_server()
    with Deployed(given.peer, tls=True) as server:
        rows = uringcore.run(measure(server, linked=INSIDE in os.environ))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
