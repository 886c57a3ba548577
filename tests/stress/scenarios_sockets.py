"""Scenarios of `sock_*` calls, datagrams and pipes."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct
from typing import Any

from tests.loop.harness import connected_pair
from tests.stress.byte_pattern import Pattern, Violation
from tests.stress.stream_peers import End, Peer
from tests.stress.stress_round import StressRound

SIZES = (1, 100, 5000, 70_000, 300_000)


async def sock_calls(stress_round: StressRound, rng: random.Random) -> None:
    """`sock_sendall` against `sock_recv`, some of them cancelled: no byte is lost or duplicated."""
    key = f"{stress_round.key} sock {rng.getrandbits(32):x}"
    loop = asyncio.get_running_loop()
    near, far = connected_pair() if rng.random() < 0.5 else socket.socketpair()
    size = rng.choice(SIZES)
    with near:
        near.setblocking(False)
        thread = Peer(f"{key} far", f"{key} down", f"{key} up", random.Random(rng.random())).start(
            far, size, size
        )
        await asyncio.gather(
            _send_all(loop, near, Pattern(f"{key} up"), size, rng),
            _receive_all(stress_round, loop, near, Pattern(f"{key} down"), size, rng),
        )
        await thread


async def _send_all(
    loop: Any, sock: socket.socket, pattern: Pattern, size: int, rng: random.Random
) -> None:
    while pattern.position < size:
        piece = pattern.take(min(size - pattern.position, rng.choice((1, 1000, 100_000))))
        await loop.sock_sendall(sock, rng.choice((bytes, bytearray, memoryview))(piece))
    sock.shutdown(socket.SHUT_WR)


async def _receive_all(
    stress_round: StressRound,
    loop: Any,
    sock: socket.socket,
    pattern: Pattern,
    size: int,
    rng: random.Random,
) -> None:
    while True:
        wanted = rng.choice((1, 1000, 65536))
        buffer = bytearray(wanted)
        into = rng.random() < 0.5
        call = loop.sock_recv_into(sock, buffer) if into else loop.sock_recv(sock, wanted)
        receiving = asyncio.ensure_future(call)
        # asyncio's call loses data that arrives in the turn of the cancellation; uringcore's call keeps it.
        if stress_round.ours and rng.random() < 0.3:
            await asyncio.wait([receiving], timeout=rng.choice((0, 0, 0.0005)))
            receiving.cancel()
        try:
            answer = await receiving
        except asyncio.CancelledError:
            if not receiving.cancelled():
                raise
            continue
        data = bytes(buffer[:answer]) if into else answer
        if not data:
            break
        pattern.check(data)
    if pattern.position != size:
        raise Violation(f"sock_recv: {pattern.position} of {size} bytes")


async def sock_connections(stress_round: StressRound, rng: random.Random) -> None:
    """`sock_accept` and `sock_connect`, some cancelled: every accepted socket reaches the caller."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        for _ in range(rng.randint(1, 5)):
            if rng.random() < 0.4:
                # No client connects here: the cancelled accept must not take the next connection.
                waiting = asyncio.ensure_future(loop.sock_accept(listener))
                await asyncio.sleep(rng.choice((0, 0.001)))
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
            with socket.socket() as client:
                client.setblocking(False)
                (accepted, _), _ = await asyncio.gather(
                    loop.sock_accept(listener), loop.sock_connect(client, listener.getsockname())
                )
                with accepted:
                    accepted.setblocking(False)
                    await loop.sock_sendall(client, b"here")
                    if await loop.sock_recv(accepted, 10) != b"here":
                        raise Violation("an accepted socket is not the connected one's peer")


class Datagrams(asyncio.DatagramProtocol):
    """Checks that each datagram arrives once, whole and in order."""

    def __init__(self, stress_round: StressRound, name: str) -> None:
        self.stress_round = stress_round
        self.name = name
        self.transport: Any = None
        self.expected = 0
        self.made = self.lost = 0
        self.changed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made += 1
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if self.made != 1 or self.lost:
            self.stress_round.violate(
                f"{self.name}: a datagram while made {self.made}, lost {self.lost}"
            )
        if data != datagram(self.name, self.expected):
            number = struct.unpack_from("!I", data)[0] if len(data) >= 4 else None
            self.stress_round.violate(f"{self.name}: {number} of {len(data)}, not {self.expected}")
        self.expected += 1
        self.changed.set()

    def error_received(self, exc: Exception) -> None:
        self.stress_round.violate(f"{self.name}: {exc!r}")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost += 1
        if self.lost != 1 or exc is not None:
            self.stress_round.violate(f"{self.name}: lost {self.lost} times, {exc!r}")
        self.changed.set()


def datagram(name: str, number: int) -> bytes:
    """Returns datagram `number` of the flow `name`: both determine its size and bytes."""
    rng = random.Random(f"{name}/{number}")
    size = rng.choice((0, 1, 100, 1200, 1200, 1200, 9000))
    return struct.pack("!I", number) + rng.randbytes(size)


async def datagrams(stress_round: StressRound, rng: random.Random) -> None:
    """Sends datagrams in windows that fit the receive buffer: all arrive, once and in order."""
    loop = asyncio.get_running_loop()
    name = f"{stress_round.key} udp {rng.getrandbits(32):x}"
    make = lambda: Datagrams(stress_round, name)  # noqa: E731
    _, receiver = await loop.create_datagram_endpoint(make, local_addr=("127.0.0.1", 0))
    address = receiver.transport.get_extra_info("sockname")
    connected = rng.random() < 0.5
    _, sender = await loop.create_datagram_endpoint(
        make,
        local_addr=None if connected else ("127.0.0.1", 0),
        remote_addr=address if connected else None,
    )
    sent, total = 0, rng.choice((1, 30, 300))
    while sent < total:
        # Twelve datagrams of 9 KB are about half of the smallest default receive buffer.
        for _ in range(min(total - sent, rng.randint(1, 12))):
            sender.transport.sendto(datagram(name, sent), None if connected else address)
            sent += 1
        while receiver.expected < sent:
            receiver.changed.clear()
            await receiver.changed.wait()
    for end in (sender, receiver):
        rng.choice((end.transport.close, end.transport.abort))()
        while not end.lost:
            end.changed.clear()
            await end.changed.wait()


async def pipes(stress_round: StressRound, rng: random.Random) -> None:
    """A pipe from one protocol to another, to its end."""
    loop = asyncio.get_running_loop()
    key = f"{stress_round.key} pipe {rng.getrandbits(32):x}"
    size = rng.choice(SIZES)
    reader, writer = os.pipe()
    end = PipeEnd(stress_round, key, key, random.Random(0))
    out = PipeEnd(stress_round, f"{key} writer", key, random.Random(0))
    with os.fdopen(reader, "rb", 0) as source, os.fdopen(writer, "wb", 0) as sink:
        reading, _ = await loop.connect_read_pipe(lambda: end, source)
        writing, _ = await loop.connect_write_pipe(lambda: out, sink)
        pattern = Pattern(key)
        while pattern.position < size:
            writing.write(pattern.take(min(size - pattern.position, rng.choice((1, 1000, 90_000)))))
            await out.writable()
        writing.close()
        await asyncio.gather(end.until("lost"), out.until("lost"))
        reading.close()
    if end.received != size:
        raise Violation(f"{key}: {end.received} of {size} bytes")


class PipeEnd(End):
    """The end of a pipe, which has nothing to keep open after the end of the data."""

    def eof_received(self) -> bool:
        super().eof_received()
        return False


SCENARIOS = [sock_calls, sock_calls, sock_connections, datagrams, pipes]
