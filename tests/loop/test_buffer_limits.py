"""The limits of a transport's buffers: the accepted numbers, the reported values, the effect of a
limit of 0.

test_flow_control and test_tls_data cover flow control between the limits.
"""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import pytest

from tests.loop.harness import Recorder, Runner, connected_pair
from tests.loop.test_tls_data import end, tls_pair
from tests.loop.tls_peer import modern

KINDS = ("stream", "datagram", "tls")


class Datagrams(Recorder, asyncio.DatagramProtocol):
    """A recorder for a datagram transport."""


@asynccontextmanager
async def opened(
    kind: str, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> AsyncIterator[tuple[Any, Any]]:
    """Opens an idle transport of this kind, connected, with its protocol."""
    loop = asyncio.get_running_loop()
    if kind == "stream":
        one, other = connected_pair()
        transport, protocol = await loop.create_connection(Recorder, sock=one)
        yield transport, protocol
        transport.abort()
        other.close()
    elif kind == "datagram":
        endpoint, protocol = await loop.create_datagram_endpoint(
            Datagrams, local_addr=("127.0.0.1", 0)
        )
        yield endpoint, protocol
        endpoint.abort()
    else:
        client, _, server = await tls_pair(server_tls, client_tls)
        yield client.transport, client
        await end(client, server)
    await asyncio.sleep(0)


# The values that asyncio computes: it accepts any number, and the result has its type.
TAKEN: tuple[tuple[dict[str, Any], tuple[Any, Any]], ...] = (
    ({"high": 1000}, (250, 1000)),
    ({"low": 1000}, (1000, 4000)),
    ({"high": 0}, (0, 0)),
    ({"low": 0}, (0, 0)),
    ({"high": 1000.5}, (250.0, 1000.5)),
    ({"low": 1.5}, (1.5, 6.0)),
    ({"high": 10, "low": 10.0}, (10.0, 10)),
    ({"high": 10.5, "low": 10.4}, (10.4, 10.5)),
    ({"high": 1e300}, (1e300 // 4, 1e300)),
    ({"high": math.inf, "low": 0}, (0, math.inf)),
    ({"high": 1 << 100}, (1 << 98, 1 << 100)),
    ({"high": 1 << 2000}, (1 << 1998, 1 << 2000)),
    ({"low": 1 << 63}, (1 << 63, 1 << 65)),
    ({"high": True}, (0, True)),
    ({"high": Decimal("10.5")}, (Decimal(2), Decimal("10.5"))),
    ({"high": Fraction(21, 2)}, (2, Fraction(21, 2))),
)
REFUSED: tuple[tuple[dict[str, Any], type[Exception], str], ...] = (
    ({"high": 1, "low": 2}, ValueError, r"high \(1\) must be >= low \(2\) must be >= 0"),
    ({"high": -1}, ValueError, r"high \(-1\) must be >= low \(-1\) must be >= 0"),
    ({"low": -0.5}, ValueError, r"high \(-2.0\) must be >= low \(-0.5\)"),
    ({"high": 10.4, "low": 10.5}, ValueError, r"high \(10.4\) must be >= low \(10.5\)"),
    ({"high": math.nan}, ValueError, r"high \(nan\)"),
    ({"high": math.inf}, ValueError, r"high \(inf\) must be >= low \(nan\)"),
    ({"high": -(1 << 70)}, ValueError, r"high \(-1180591620717411303424\)"),
    ({"high": "1"}, TypeError, "unsupported operand"),
    ({"high": [1]}, TypeError, "unsupported operand"),
    ({"high": 1j}, TypeError, "complex"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_limits_are_any_numbers(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, kind: str
) -> None:
    if kind == "tls":
        modern(run)

    async def main() -> None:
        async with opened(kind, server_tls, client_tls) as (transport, _):
            setters: list[tuple[Callable[..., None], Callable[[], Any]]] = [
                (transport.set_write_buffer_limits, transport.get_write_buffer_limits)
            ]
            if kind == "tls" and hasattr(transport, "set_read_buffer_limits"):
                setters.append((transport.set_read_buffer_limits, transport.get_read_buffer_limits))
            for put, get in setters:
                put()
                default = get()
                for given, limits in TAKEN:
                    put(**given)
                    assert [(type(mark), mark) for mark in get()] == [
                        (type(mark), mark) for mark in limits
                    ]
                put()
                for given, error, text in REFUSED:
                    with pytest.raises(error, match=text):
                        put(**given)
                    assert get() == default

    run(main())


@pytest.mark.parametrize("kind", ["stream", "tls"])
def test_a_fraction_of_a_byte_makes_a_difference(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, kind: str
) -> None:
    """A stream pauses above its limit, TLS at its limit."""
    modern(run)

    async def main() -> None:
        async with opened(kind, server_tls, client_tls) as (transport, protocol):
            transport.set_write_buffer_limits(high=1 << 80)
            transport.write(bytes(32 << 20))
            transport.write(bytes(100_000))  # asyncio's TLS sends the first one at once
            size = transport.get_write_buffer_size()
            assert size > 0
            patient = (1 << 90, math.inf, 1e30, size + 1, size + 0.5)
            for high in patient if kind == "tls" else (*patient, size, float(size)):
                transport.set_write_buffer_limits(high=high, low=0)
                assert "pause" not in protocol.calls
            high = size if kind == "tls" else size - 0.5
            transport.set_write_buffer_limits(high=high, low=0)
            assert protocol.calls[-1] == "pause"
            transport.abort()
            await protocol.until_call("lost")

    run(main())


def test_a_tls_mark_of_nothing_is_reached_at_once(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    modern(run)

    async def main() -> None:
        client, _, server = await tls_pair(server_tls, client_tls)
        client.calls.clear()
        client.transport.set_write_buffer_limits(high=0)
        assert client.calls == ["pause"]
        for call in ("resume", "pause", "resume"):
            client.transport.write(b"x")
            assert client.calls[-1] == call
        await end(client, server)

    run(main())


def test_a_tls_pause_with_nothing_to_wait_for_ends_with_the_turn(
    run_ours: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    """drain() with a limit of 0 waits for the kernel. On asyncio it waits until the peer sends
    data, possibly for ever (CPython's gh-102792).
    """

    async def main() -> None:
        loop = asyncio.get_running_loop()
        client, served, server = await tls_pair(server_tls, client_tls)
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        protocol.connection_made(client.transport)
        client.transport.set_protocol(protocol)
        writer = asyncio.StreamWriter(client.transport, protocol, reader, loop)
        writer.transport.set_write_buffer_limits(high=0)
        await writer.drain()
        total = 0
        for size in (1, 1, 2000, 200_000, 1, 1):
            writer.write(bytes(size))
            await writer.drain()
            assert writer.transport.get_write_buffer_size() == 0
            total += size
        await served.until(lambda: len(served.data) == total)
        client.transport.set_protocol(client)
        await end(client, server)

    run_ours(main())


# Datagrams ----------------------------------------------------------------------------------------


def test_a_pause_means_that_the_socket_has_no_room(run: Runner) -> None:
    """A pause does not mean that a loop iteration is unfinished: bursts that the kernel accepts
    cause none, nor does a datagram that can never be sent.
    """

    async def main() -> None:
        loop = asyncio.get_running_loop()
        sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sink.bind(("127.0.0.1", 0))
        sink.setblocking(False)
        failed: list[int | None] = []

        class Sender(Datagrams):
            def error_received(self, exc: Exception) -> None:
                assert isinstance(exc, OSError)
                failed.append(exc.errno)

        for high in (65_536, 1000, 0):
            for connected in (False, True):
                address = sink.getsockname()
                transport, protocol = await loop.create_datagram_endpoint(
                    Sender,
                    local_addr=None if connected else ("127.0.0.1", 0),
                    remote_addr=address if connected else None,
                )
                transport.set_write_buffer_limits(high=high)
                to = None if connected else address
                for _ in range(10):
                    transport.sendto(bytes(700), to)
                transport.sendto(bytes(70_000), to)  # no UDP datagram is that long
                transport.sendto(b"behind", to)
                got: list[bytes] = []
                while not got or got[-1] != b"behind":
                    got.append(await loop.sock_recv(sink, 65_536))
                while not failed:
                    await asyncio.sleep(0)
                assert got == [bytes(700)] * 10 + [b"behind"]
                assert protocol.calls == ["made"]
                assert transport.get_write_buffer_size() == 0
                assert len(failed) == 1
                failed.clear()
                transport.close()
                await protocol.until_call("lost")
        sink.close()

    run(main())


def test_a_unix_socket_without_room_pauses_and_resumes(run: Runner, tmp_path: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        path = str(tmp_path / "full")
        other = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        other.bind(path)
        other.setblocking(False)
        transport, protocol = await loop.create_datagram_endpoint(
            Datagrams, remote_addr=cast(Any, path), family=socket.AF_UNIX
        )
        transport.set_write_buffer_limits(high=100_000, low=50_000)
        sent = 0
        while "pause" not in protocol.calls:
            transport.sendto(sent.to_bytes(4, "big") + bytes(9_996))
            sent += 1
            assert sent < 1000
        assert transport.get_write_buffer_size() > 100_000
        for number in range(sent):
            data = await loop.sock_recv(other, 65_536)
            assert int.from_bytes(data[:4], "big") == number
        await protocol.until_call("resume")
        assert protocol.calls == ["made", "pause", "resume"]
        transport.close()
        await protocol.until_call("lost")
        other.close()

    run(main())
