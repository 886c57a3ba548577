"""Scenarios of stream connections: TCP, Unix and TLS; complete, cut short and cancelled."""

from __future__ import annotations

import asyncio
import functools
import os
import random
import socket
import ssl
from typing import Any

from tests.loop.harness import connected_pair
from tests.stress.byte_pattern import Pattern, Violation
from tests.stress.stream_peers import BufferedEnd, End, Peer, Watching
from tests.stress.stress_round import StressRound, tls_contexts

SIZES = (0, 1, 100, 5000, 70_000, 300_000)

contexts = functools.cache(tls_contexts)


def _end(stress_round: StressRound, name: str, expect: str, rng: random.Random) -> Watching:
    return rng.choice((End, BufferedEnd))(stress_round, name, expect, rng)


async def _connect(
    stress_round: StressRound, rng: random.Random, key: str, kind: str, tls: bool
) -> tuple[Watching, Watching]:
    """Connects two ends on the loop; `kind` is tcp, unix, abstract or pair."""
    loop = asyncio.get_running_loop()
    accepted: asyncio.Future[Watching] = loop.create_future()
    server_tls, client_tls = contexts()
    options: dict[str, Any] = {"ssl": client_tls, "server_hostname": "localhost"} if tls else {}

    def accept() -> asyncio.BaseProtocol:
        end = _end(stress_round, f"{key} server", f"{key} up", rng)
        accepted.set_result(end)
        return end

    def client() -> asyncio.BaseProtocol:
        return _end(stress_round, f"{key} client", f"{key} down", rng)

    accept_tls = server_tls if tls else None
    end: Any
    if kind == "pair":
        near, far = connected_pair() if rng.random() < 0.5 else socket.socketpair()
        (_, end), (_, _) = await asyncio.gather(
            loop.create_connection(client, sock=near, **options),
            loop.connect_accepted_socket(accept, far, ssl=accept_tls),
        )
        return end, await accepted
    server: Any
    if kind == "tcp":
        server = await loop.create_server(accept, "127.0.0.1", 0, ssl=accept_tls)
        _, end = await loop.create_connection(client, *server.sockets[0].getsockname(), **options)
    else:
        # The process id keeps a second run of this seed from using the name at the same time.
        abstract = f"\0stress-{os.getpid()}-{rng.getrandbits(64):x}"
        path = stress_round.path(rng) if kind == "unix" else abstract
        server = await loop.create_unix_server(accept, path, ssl=accept_tls)
        _, end = await loop.create_unix_connection(client, path, **options)
    other = await accepted
    await other.until("made")
    server.close()
    return end, other


async def _send(end: Watching, rng: random.Random, send: Pattern, size: int) -> None:
    """Writes `size` bytes in pieces as a program would, and pauses when asked to."""
    if rng.random() < 0.3:
        end.transport.set_write_buffer_limits(high=rng.choice((0, 1, 1000, 1 << 20)))
    while size:
        piece = min(size, rng.choice((1, 100, 10_000, 100_000)))
        size -= piece
        if rng.random() < 0.2:
            cut = rng.randrange(piece + 1)
            pieces = [send.take(cut), b"", send.take(piece - cut)]
            # CPython 3.12 and later never remove an empty piece at the end.
            end.transport.writelines(
                pieces if end.stress_round.ours else [one for one in pieces if one]
            )
        elif rng.random() < 0.3 and end.stress_round.ours:
            # CPython 3.12 and later keep a reference to the caller's buffer and send its later content.
            reused = bytearray(send.take(piece))
            end.transport.write(reused)
            reused[:] = bytes(piece)
        else:
            end.transport.write(send.take(piece))
        if rng.random() < 0.9:
            await end.writable()
        if rng.random() < 0.1:
            await asyncio.sleep(rng.choice((0, 0.001, 0.005)))


def _kind(rng: random.Random) -> tuple[str, bool]:
    return rng.choice(("tcp", "tcp", "unix", "abstract", "pair")), rng.random() < 0.3


async def duplex(stress_round: StressRound, rng: random.Random) -> None:
    """Both ends send, end and receive everything."""
    key = f"{stress_round.key} duplex {rng.getrandbits(32):x}"
    kind, tls = _kind(rng)
    client, server = await _connect(stress_round, rng, key, kind, tls)
    up, down = rng.choice(SIZES), rng.choice(SIZES)
    await asyncio.gather(
        _send(client, rng, Pattern(f"{key} up"), up),
        _send(server, rng, Pattern(f"{key} down"), down),
    )
    if tls:
        # Without half-close each end waits for all expected data, then one of them closes.
        await asyncio.gather(client.until_received(down), server.until_received(up))
        rng.choice((client, server)).transport.close()
    else:
        for end in rng.sample((client, server), 2):
            end.transport.write_eof()
        await asyncio.gather(client.until("eof"), server.until("eof"))
        client.transport.close()
        server.transport.close()
    await asyncio.gather(client.until("lost"), server.until("lost"))
    _expect(client, down, quiet=not tls)
    _expect(server, up, quiet=not tls)


async def flush_and_close(stress_round: StressRound, rng: random.Random) -> None:
    """One end writes and closes at once: all accepted data arrives."""
    key = f"{stress_round.key} flush {rng.getrandbits(32):x}"
    client, server = await _connect(stress_round, rng, key, *_kind(rng))
    size = rng.choice(SIZES)
    client.transport.write(Pattern(f"{key} up").take(size))
    client.transport.close()
    await server.until("eof")
    server.transport.close()
    await asyncio.gather(client.until("lost"), server.until("lost"))
    _expect(server, size, quiet=True)


async def cut_short(stress_round: StressRound, rng: random.Random) -> None:
    """An end aborts, closes or raises while both send: received data is correct, and both ends see the
    end.
    """
    key = f"{stress_round.key} cut {rng.getrandbits(32):x}"
    kind, tls = _kind(rng)
    client, server = await _connect(stress_round, rng, key, kind, tls)
    ends = [client, server]
    rng.shuffle(ends)
    # An exception in a TLS protocol ends the connection in a way that differs between versions.
    how = rng.choice(("abort", "abort", "close", "abort both", *(() if tls else ("raise",))))
    if how == "raise":
        ends[0].raise_at = 1
    sending = [
        asyncio.ensure_future(_send(client, rng, Pattern(f"{key} up"), rng.choice(SIZES) + 1)),
        asyncio.ensure_future(_send(server, rng, Pattern(f"{key} down"), rng.choice(SIZES) + 1)),
    ]
    for _ in range(rng.choice((0, 1, 2, 10))):
        await asyncio.sleep(rng.choice((0, 0, 0.001)))
    if how == "close":
        ends[0].transport.close()
    elif how != "raise":
        ends[0].transport.abort()
        if how == "abort both":
            ends[1].transport.abort()
    else:
        await ends[0].until("lost")
    for task in sending:
        task.cancel()
    await asyncio.gather(*sending, return_exceptions=True)
    # The other end either sees the end by itself, or has data that it cannot deliver and must abort.
    done, _ = await asyncio.wait([asyncio.ensure_future(ends[1].until("lost"))], timeout=0.05)
    if not done:
        ends[1].transport.abort()
    await asyncio.gather(client.until("lost"), server.until("lost"))


async def with_blocking_peer(stress_round: StressRound, rng: random.Random) -> None:
    """The other end is a thread with a plain socket."""
    key = f"{stress_round.key} peer {rng.getrandbits(32):x}"
    near, far = connected_pair() if rng.random() < 0.5 else socket.socketpair()
    end = _end(stress_round, f"{key} near", f"{key} down", rng)
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: end, sock=near)
    up, down = rng.choice(SIZES), rng.choice(SIZES)
    thread = Peer(f"{key} far", f"{key} down", f"{key} up", random.Random(rng.random())).start(
        far, down, up
    )
    await _send(end, rng, Pattern(f"{key} up"), up)
    end.transport.write_eof()
    await end.until("eof")
    end.transport.close()
    await end.until("lost")
    await thread
    _expect(end, down, quiet=True)


async def cancelled_connect(stress_round: StressRound, rng: random.Random) -> None:
    """A connection attempt is cancelled or times out at a random point: nothing is left behind."""
    key = f"{stress_round.key} cancel {rng.getrandbits(32):x}"
    loop = asyncio.get_running_loop()
    ends: list[Watching] = []
    tls = rng.random() < 0.5
    server_tls, client_tls = contexts()

    def make() -> asyncio.BaseProtocol:
        ends.append(_end(stress_round, key, key, rng))
        return ends[-1]

    server = await loop.create_server(make, "127.0.0.1", 0, ssl=server_tls if tls else None)
    options: dict[str, Any] = {"ssl": client_tls, "server_hostname": "localhost"} if tls else {}
    address = server.sockets[0].getsockname()
    for _ in range(rng.randint(1, 8)):
        connecting = asyncio.ensure_future(loop.create_connection(make, *address, **options))
        if rng.random() < 0.5:
            for _ in range(rng.randint(0, 12)):
                await asyncio.sleep(0)
        else:
            await asyncio.wait([connecting], timeout=rng.choice((0, 0.0005, 0.002)))
        connecting.cancel()
        done = (await asyncio.gather(connecting, return_exceptions=True))[0]
        if isinstance(done, tuple):
            done[0].abort()
        elif not isinstance(done, (asyncio.CancelledError, OSError, ssl.SSLError)):
            raise Violation(f"{key}: {done!r}")
    server.close()
    # Connections in the backlog may still be accepted; every end that was made reaches its end.
    await asyncio.sleep(0.02)
    for end in ends:
        if end.made:
            end.transport.abort()
            await end.until("lost")


async def upgraded(stress_round: StressRound, rng: random.Random) -> None:
    """Plain bytes first, then start_tls on both ends, then encrypted bytes."""
    key = f"{stress_round.key} upgrade {rng.getrandbits(32):x}"
    loop = asyncio.get_running_loop()
    server_tls, client_tls = contexts()
    client, server = await _connect(
        stress_round, rng, key, rng.choice(("tcp", "unix", "pair")), False
    )
    up, down = Pattern(f"{key} up"), Pattern(f"{key} down")
    first = rng.choice((1, 5000))
    client.transport.write(up.take(first))
    server.transport.write(down.take(first))
    await asyncio.gather(client.until_received(first), server.until_received(first))
    # The old transport is finished: an earlier pause must not resume its reading.
    client._pauses.clear()
    server._pauses.clear()
    await asyncio.sleep(0.02)
    upgraded = await asyncio.gather(
        loop.start_tls(client.transport, client, client_tls, server_hostname="localhost"),
        loop.start_tls(server.transport, server, server_tls, server_side=True),
    )
    client.transport, server.transport = upgraded
    sizes = rng.choice(SIZES), rng.choice(SIZES)
    await asyncio.gather(_send(client, rng, up, sizes[0]), _send(server, rng, down, sizes[1]))
    await asyncio.gather(
        client.until_received(first + sizes[1]), server.until_received(first + sizes[0])
    )
    rng.choice((client, server)).transport.close()
    await asyncio.gather(client.until("lost"), server.until("lost"))


async def streams(stress_round: StressRound, rng: random.Random) -> None:
    """asyncio's streams: a read that times out loses no data."""
    key = f"{stress_round.key} streams {rng.getrandbits(32):x}"
    handled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    size = rng.choice(SIZES)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The server echoes.
        while data := await reader.read(rng.choice((1, 1000, 100_000)) if size < 10_000 else 65536):
            writer.write(data)
            await writer.drain()
        writer.close()
        await writer.wait_closed()
        handled.set_result(None)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    sent, echoed = Pattern(key), Pattern(key)

    async def send() -> None:
        while sent.position < size:
            writer.write(sent.take(min(size - sent.position, rng.choice((1, 1000, 50_000)))))
            await writer.drain()
        writer.write_eof()

    sending = asyncio.ensure_future(send())
    while echoed.position < size:
        try:
            data = await asyncio.wait_for(reader.read(70_000), rng.choice((0.0001, 0.001, 30)))
        except asyncio.TimeoutError:
            continue
        if not data:
            raise Violation(f"{key}: {echoed.position} of {size} bytes echoed")
        echoed.check(data)
    if await reader.read():
        raise Violation(f"{key}: more came than was sent")
    await sending
    writer.close()
    await writer.wait_closed()
    await handled
    server.close()


def _expect(end: Watching, size: int, *, quiet: bool) -> None:
    if end.received != size:
        raise Violation(f"{end.name}: {end.received} of {size} bytes")
    if quiet and end.error is not None:
        raise Violation(f"{end.name}: lost with {end.error!r} after a clean end")


SCENARIOS = [
    *(duplex, duplex, duplex, flush_and_close, cut_short, cut_short, with_blocking_peer),
    *(cancelled_connect, upgraded, streams),
]
