"""Kinds of hostile clients on ``uringcore.quic``, which sends as fast as it gets credit.

Their address differs from that of the honest client. ``attackers`` keeps a number of them active.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.http import http3_bytes
from tests.http.hostile.address_relay import Relay
from tests.http.hostile.attacked_server import MIB
from tests.server.harness import Server
from tests.webtransport import webtransport_bytes as webtransport
from uringcore import _uringcore, quic
from uringcore.h3.connection import ErrorCode

ADDRESS = "127.0.0.2"
PART = bytes(60_000)
# The header of the largest message that a server accepts: binary, masked with zeros, 16 MiB.
LARGE_MESSAGE = b"\x82\xff" + (16 * MIB).to_bytes(8, "big") + bytes(4)
WEBSOCKET_VERSION = (b"sec-websocket-version", b"13")
# A file of some MiB that every server can read.
LARGE_FILE: str = _uringcore.__file__
SMALL_WINDOW = 1000
"""Credit in bytes for a response of which the client reads almost nothing."""
QLOG_DIR = "--http3-qlog-dir"

Attack = Callable[[quic.Connection], Awaitable[None]]

# Counts the error codes that ended hostile clients' connections.
ENDS: Counter[int | None] = Counter()
# Counts the actions of hostile clients that the server does not count.
DONE: Counter[str] = Counter()
# Garbage collection would end these streams.
KEPT: dict[int, list[Any]] = {}


async def control(client: quic.Connection, values: dict[int, int] | None = None) -> None:
    stream = await client.open_uni_stream()
    await stream.send(http3_bytes.varint(http3_bytes.CONTROL) + http3_bytes.settings(values or {}))
    KEPT.setdefault(id(client), []).append(stream)


async def ask(client: quic.Connection, request: bytes) -> Any:
    """Opens a stream that begins with these bytes and stays open."""
    stream = await client.open_stream()
    await stream.send(request)
    KEPT[id(client)].append(stream)
    return stream


async def pour(stream: Any, part: bytes) -> None:
    """Sends data without end, as far as the server gives credit."""
    while True:
        await stream.send(part)


async def pour_all(streams: list[Any], part: bytes) -> None:
    await asyncio.gather(*(pour(stream, part) for stream in streams))


async def unread_uploads(client: quic.Connection) -> None:
    await control(client)
    head = http3_bytes.request("/hang", method="POST")
    streams = [await ask(client, head) for _ in range(16)]
    await pour_all(streams, http3_bytes.frame(http3_bytes.DATA, PART))


async def downloads(client: quic.Connection, path: str) -> list[Any]:
    """Requests a hundred responses and reads none: the client extends no window."""
    await control(client)
    streams = []
    for _ in range(100):
        stream = await ask(client, http3_bytes.request(path))
        await stream.finish()
        streams.append(stream)
    return streams


async def slow_readers(client: quic.Connection) -> None:
    await downloads(client, "/flood/1000000")


async def slow_file_readers(client: quic.Connection) -> None:
    await downloads(client, f"/file{LARGE_FILE}")


async def least_rate(client: quic.Connection) -> None:
    """The client reads little more than the 240 bytes a second that the server requires."""
    streams = await downloads(client, "/flood/1000000")
    while True:
        for stream in streams:
            DONE["bytes taken"] += len(await stream.readexactly(SMALL_WINDOW))
            await asyncio.sleep(3)


async def early_resets(client: quic.Connection) -> None:
    """Makes and cancels requests, until the server closes the connection.

    Half of them are cancelled in the packet of the request, half when their applications run; half
    by STOP_SENDING alone, half by RESET_STREAM as well.
    """
    await control(client)
    head = http3_bytes.request("/waits")
    for number in itertools.count():
        streams = [await client.open_stream() for _ in range(10)]
        for resets, stream in enumerate(streams):
            await stream.send(head, finish=not resets % 2)
        if number % 2:
            await client.ping()
        for resets, stream in enumerate(streams):
            stream.stop(ErrorCode.H3_REQUEST_CANCELLED)
            DONE["stops"] += 1
            if resets % 2:
                stream.reset(ErrorCode.H3_REQUEST_CANCELLED)
                DONE["resets"] += 1


async def download_again(client: quic.Connection) -> None:
    """Downloads one response after the other, while a relay changes the address."""
    await control(client)
    while True:
        async with await client.open_stream() as stream:
            await stream.send(http3_bytes.request("/flood/100000"), finish=True)
            while part := await stream.read():
                DONE["bytes taken"] += len(part)


async def websockets(client: quic.Connection) -> None:
    await control(client)
    head = http3_bytes.request("/socket", WEBSOCKET_VERSION, method="CONNECT", protocol="websocket")
    streams = [await ask(client, head) for _ in range(16)]
    for stream in streams:
        await stream.send(http3_bytes.frame(http3_bytes.DATA, LARGE_MESSAGE))
    await pour_all(streams, http3_bytes.frame(http3_bytes.DATA, PART))


async def sessions_of(client: quic.Connection, count: int) -> list[int]:
    await control(client, webtransport.DRAFTS["02"])
    streams = [await ask(client, webtransport.asked("/session")) for _ in range(count)]
    return [stream.id for stream in streams]


async def webtransport_datagrams(client: quic.Connection) -> None:
    sessions = await sessions_of(client, 3)
    parts = [http3_bytes.varint(one // 4) + bytes(20) for one in sessions]
    while True:
        client.send_datagrams(parts * 50)
        await asyncio.sleep(0.001)


async def small_datagrams(client: quic.Connection) -> None:
    """Sends packets full of the smallest frames: each is many times larger in a trace."""
    (session,) = await sessions_of(client, 1)
    parts = [http3_bytes.varint(session // 4)] * 1000
    while True:
        client.send_datagrams(parts)
        DONE["datagrams"] += len(parts)
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
    section = http3_bytes.section(http3_bytes.fields("/", *((b"x-large", bytes(100)),) * 500))
    head = http3_bytes.varints(http3_bytes.HEADERS, len(section) + 1)
    for _ in range(5):
        await ask(client, head + section[:50_000])


async def handshakes(client: quic.Connection) -> None:
    """Makes only the handshake."""


@dataclass(frozen=True)
class Kind:
    """A kind of client: its actions on a connection, and its way to the server."""

    attack: Attack
    config: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the clients' ``quic.ClientConfig``."""
    relay: Callable[[int], Relay] | None = None
    """Makes the path to the server at this port; ``None`` is the direct path."""
    traced: bool = False
    """True for a server with ``--http3-qlog-dir``."""


def moving(port: int) -> Relay:
    """Each eighth datagram comes from a new address, at which the client responds."""
    return Relay(port, every=8, forged=False)


def forging(port: int) -> Relay:
    """Each second datagram comes from a new address, at which no host responds."""
    return Relay(port, every=2, forged=True)


SMALL_WINDOWS = {"receive_window": SMALL_WINDOW}

KINDS: dict[str, Kind] = {
    "unread uploads": Kind(unread_uploads),
    "slow readers": Kind(slow_readers),
    "slow readers of files": Kind(slow_file_readers, SMALL_WINDOWS),
    "downloads at the least rate": Kind(least_rate, SMALL_WINDOWS),
    "early resets": Kind(early_resets),
    "moves": Kind(download_again, relay=moving),
    "forged addresses": Kind(download_again, relay=forging),
    "WebSockets, large messages": Kind(websockets),
    "WebTransport datagrams": Kind(webtransport_datagrams),
    "WebTransport streams": Kind(webtransport_streams),
    "header sections without end": Kind(header_trickle),
    "handshakes and silence": Kind(handshakes),
    "small frames, traced": Kind(small_datagrams, traced=True),
}


async def once(server: Server, kind: Kind, config: quic.ClientConfig) -> None:
    """Runs one connection of a kind, to its end."""
    relay = None if kind.relay is None else kind.relay(server.port)
    host, port = ("127.0.0.1", server.port) if relay is None else relay.address
    try:
        async with quic.connect(host, port, config, local_address=(ADDRESS, 0)) as client:
            DONE["connections"] += 1
            try:
                await kind.attack(client)
                await client.wait_closed()
            finally:
                KEPT.pop(id(client), None)
    finally:
        if relay is not None:
            DONE["addresses"] += relay.addresses
            relay.close()


@contextlib.asynccontextmanager
async def attackers(server: Server, name: str, count: int) -> AsyncIterator[None]:
    """Runs `count` clients of a kind; each connects again when it is closed."""
    kind = KINDS[name]
    values = {"keep_alive": 5.0, "close_timeout": 0.0, **kind.config}
    config = quic.ClientConfig(alpn=["h3"], verify=False, **values)

    async def attack() -> None:
        while True:
            try:
                await once(server, kind, config)
            except OSError as error:
                ENDS[getattr(error, "code", None)] += 1
            await asyncio.sleep(0.2)

    tasks = [asyncio.ensure_future(attack()) for _ in range(count)]
    try:
        yield
    finally:
        ended = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A client that failed by its own error was no attack.
        for task in ended:
            task.result()
