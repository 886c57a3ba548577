"""What hostile clients of each kind make a server hold, and what an honest client sees meanwhile.

``python -m tests.http.hostile.memory`` prints the table of docs/limits.md. Its rows are kinds of clients,
and 1, 10 and 100 of them; its columns the server's own memory at its peak and after they have gone, and
the honest client's p50 and p99. ``--kinds``, ``--counts``, ``--backend`` and ``--options`` narrow it;
``--options`` goes to the server's command.

The clients are this process's, made of ``uringcore.quic``, which sends as fast as it gets credit. They come
from another address than the honest client.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shlex
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import uringcore
from tests.http import wire
from tests.http.hostile.siege import MIB, VICTIM, Bystander, own_bytes
from tests.server.harness import Server
from tests.webtransport import wire as webtransport
from uringcore import quic
from uringcore.devcert import DevelopmentCertificate

ADDRESS = "127.0.0.2"
PART = bytes(60_000)
# The header of the largest message that is taken: binary, masked with zeros, 16 MiB.
LARGE_MESSAGE = b"\x82\xff" + (16 * MIB).to_bytes(8, "big") + bytes(4)
WEBSOCKET_VERSION = (b"sec-websocket-version", b"13")

Attack = Callable[[quic.Connection], Awaitable[None]]


async def control(client: quic.Connection, values: dict[int, int] | None = None) -> None:
    stream = await client.open_uni_stream()
    await stream.send(wire.varint(wire.CONTROL) + wire.settings(values or {}))
    KEPT.setdefault(id(client), []).append(stream)


# How connections of hostile clients have ended: error codes, counted.
ENDS: Counter[int | None] = Counter()
# Streams that are collected would be ended.
KEPT: dict[int, list[Any]] = {}


async def ask(client: quic.Connection, request: bytes) -> Any:
    """A stream that begins with these bytes and goes on."""
    stream = await client.open_stream()
    await stream.send(request)
    KEPT[id(client)].append(stream)
    return stream


async def pour(stream: Any, part: bytes) -> None:
    """Data without end, as far as the server gives credit."""
    while True:
        await stream.send(part)


async def pour_all(streams: list[Any], part: bytes) -> None:
    await asyncio.gather(*(pour(stream, part) for stream in streams))


async def unread_uploads(client: quic.Connection) -> None:
    await control(client)
    head = wire.request("/hang", method="POST")
    streams = [await ask(client, head) for _ in range(16)]
    await pour_all(streams, wire.frame(wire.DATA, PART))


async def slow_readers(client: quic.Connection) -> None:
    """More credit is not given than at first: nothing is read."""
    await control(client)
    for _ in range(100):
        stream = await ask(client, wire.request("/flood/1000000"))
        await stream.finish()


async def websockets(client: quic.Connection) -> None:
    await control(client)
    head = wire.request("/socket", WEBSOCKET_VERSION, method="CONNECT", protocol="websocket")
    streams = [await ask(client, head) for _ in range(16)]
    for stream in streams:
        await stream.send(wire.frame(wire.DATA, LARGE_MESSAGE))
    await pour_all(streams, wire.frame(wire.DATA, PART))


async def sessions_of(client: quic.Connection, count: int) -> list[int]:
    await control(client, webtransport.DRAFTS["02"])
    streams = [await ask(client, webtransport.asked("/session")) for _ in range(count)]
    return [stream.id for stream in streams]


async def webtransport_datagrams(client: quic.Connection) -> None:
    sessions = await sessions_of(client, 3)
    parts = [wire.varint(one // 4) + bytes(20) for one in sessions]
    while True:
        client.send_datagrams(parts * 50)
        await asyncio.sleep(0.001)


async def webtransport_streams(client: quic.Connection) -> None:
    (session,) = await sessions_of(client, 1)
    streams = [await client.open_uni_stream() for _ in range(7)]
    streams += [await client.open_stream() for _ in range(16)]
    for stream in streams:
        begin = webtransport.uni if stream.id & 2 else webtransport.bidi
        await stream.send(begin(session))
    await pour_all(streams, PART)


async def header_trickle(client: quic.Connection) -> None:
    await control(client)
    section = wire.section(wire.fields("/", *((b"x-large", bytes(100)),) * 500))
    head = wire.varints(wire.HEADERS, len(section) + 1)
    for _ in range(5):
        await ask(client, head + section[:50_000])


async def handshakes(client: quic.Connection) -> None:
    """Nothing more."""


KINDS: dict[str, Attack] = {
    "unread uploads": unread_uploads,
    "slow readers": slow_readers,
    "WebSockets, large messages": websockets,
    "WebTransport datagrams": webtransport_datagrams,
    "WebTransport streams": webtransport_streams,
    "header sections without end": header_trickle,
    "handshakes and silence": handshakes,
}


@contextlib.asynccontextmanager
async def attackers(server: Server, kind: str, count: int) -> AsyncIterator[None]:
    """So many clients of a kind, each of which comes again when it is closed."""
    config = quic.ClientConfig(alpn=["h3"], verify=False, keep_alive=5.0, close_timeout=0.0)

    async def attack() -> None:
        while True:
            try:
                connecting = quic.connect(
                    "127.0.0.1", server.port, config, local_address=(ADDRESS, 0)
                )
                async with connecting as client:
                    try:
                        await KINDS[kind](client)
                        await client.wait_closed()
                    finally:
                        KEPT.pop(id(client), None)
            except OSError as error:
                ENDS[getattr(error, "code", None)] += 1
            await asyncio.sleep(0.2)

    tasks = [asyncio.ensure_future(attack()) for _ in range(count)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def measure(server: Server, kind: str, count: int, seconds: float) -> list[str]:
    """One row of the table."""
    for _ in range(5):
        await asyncio.to_thread(server.get, "/")
    before = own_bytes(server)
    honest = Bystander(server)
    honest.start()
    async with attackers(server, kind, count):
        await asyncio.sleep(seconds)
        held = own_bytes(server)
    try:
        await honest.stop()
    except AssertionError as error:
        print(f"{kind}, {count}: {error}", file=sys.stderr)
    await asyncio.sleep(8)
    after = own_bytes(server)
    quantiles = statistics.quantiles(honest.seconds, n=100)
    sizes = [f"{(value - before) / MIB:.0f}" for value in (max(honest.peak_bytes, held), after)]
    return [kind, str(count), *sizes, *(f"{quantiles[n] * 1000:.0f}" for n in (49, 98))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--counts", nargs="*", type=int, default=[1, 10, 100])
    parser.add_argument("--backend", default="uring")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--options", default="")
    given = parser.parse_args()
    print("| clients | number | peak MiB | MiB afterwards | honest p50 ms | p99 ms |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        certificate = DevelopmentCertificate.make().write(folder)
        for kind in given.kinds:
            for count in given.counts:
                options = ["--no-access-log", *shlex.split(given.options)]
                server = Server(folder, certificate, *options, backend=given.backend, app=VICTIM)
                try:
                    row = uringcore.run(measure(server, kind, count, given.seconds))
                finally:
                    # What hangs is not waited for.
                    server.kill()
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
