"""The context in which a transport calls its protocol, and the isolation of connections from one
another.
"""

from __future__ import annotations

import asyncio
import contextvars
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.loop.harness import Runner, connected_pair, listen
from tests.loop.test_patched_sockets import counting
from tests.loop.test_socket_overrides import Counted

SINCE_3_15 = sys.version_info >= (3, 15)
one_context = pytest.mark.skipif(
    not SINCE_3_15, reason="asyncio calls a protocol in one context since Python 3.15"
)

TRAIL: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("trail", default=())


def leave(mark: str) -> tuple[str, ...]:
    """Adds a mark to the trail of the current context."""
    TRAIL.set((*TRAIL.get(), mark))
    return TRAIL.get()


class Trail(asyncio.Protocol):
    """Leaves a mark in the context of each call; the last one's trail shows the calls that shared
    it.
    """

    def __init__(self) -> None:
        leave("init")
        self.ended: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        leave("made")

    def data_received(self, data: bytes) -> None:
        leave("data")
        self.transport.write(data)

    def eof_received(self) -> None:
        leave("eof")

    def connection_lost(self, exc: BaseException | None) -> None:
        self.ended.set_result(leave("lost"))


LIFE = ("init", "made", "data", "eof", "lost")


async def ask_and_leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A client that gets one answer."""
    writer.write(b"question")
    assert await reader.readexactly(8) == b"question"
    writer.close()
    await writer.wait_closed()


async def trails_of_clients(
    make_server: Callable[[Callable[[], Trail]], Awaitable[asyncio.AbstractServer]],
    connect: Callable[[Any], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]],
) -> list[tuple[str, ...]]:
    """Returns the trails of two clients' connections, one after the other, to one server."""
    made: list[Trail] = []

    def make() -> Trail:
        made.append(Trail())
        return made[-1]

    leave("server")
    server = await make_server(make)
    leave("later")
    for _ in range(2):
        await ask_and_leave(*await connect(server.sockets[0].getsockname()))  # type: ignore[attr-defined]
    trails = [await one.ended for one in made]
    server.close()
    await server.wait_closed()
    return trails


def test_a_connection_keeps_to_itself_what_its_protocol_sets(run: Runner) -> None:
    async def main() -> None:
        seen: list[tuple[str, ...]] = []

        class Protocol(asyncio.Protocol):
            def __init__(self) -> None:
                seen.append(leave("init"))

            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                seen.append(leave("made"))
                transport.close()

        server, address = await listen(Protocol)
        for _ in range(2):
            reader, writer = await asyncio.open_connection(*address)
            assert await reader.read() == b""
            writer.close()
        server.close()
        await server.wait_closed()
        assert seen == [("init",), ("init", "made")] * 2

    run(main())


@one_context
@pytest.mark.parametrize("kind", ["tcp", "tls", "own accept", "own recv", "own recv, tls"])
def test_each_connection_of_a_server_has_a_context(
    run: Runner,
    kind: str,
    server_tls: ssl.SSLContext,
    client_tls: ssl.SSLContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tls = "tls" in kind

    async def make_server(make: Callable[[], Trail]) -> asyncio.AbstractServer:
        listener = Counted() if kind == "own accept" else socket.socket()
        listener.bind(("127.0.0.1", 0))
        loop = asyncio.get_running_loop()
        server = await loop.create_server(make, sock=listener, ssl=server_tls if tls else None)
        if "own recv" in kind:
            counting(monkeypatch, "recv", "send")
        return server

    def connect(address: Any) -> Any:
        name = "localhost" if tls else None
        return asyncio.open_connection(
            *address, ssl=client_tls if tls else None, server_hostname=name
        )

    trails = run(trails_of_clients(make_server, connect))
    assert trails == [("server", *LIFE)] * 2


@one_context
def test_each_connection_of_a_unix_server_has_a_context(run: Runner, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")

    async def make_server(make: Callable[[], Trail]) -> asyncio.AbstractServer:
        return await asyncio.get_running_loop().create_unix_server(make, path)

    trails = run(trails_of_clients(make_server, asyncio.open_unix_connection))
    assert trails == [("server", *LIFE)] * 2


@one_context
def test_a_server_that_starts_later_has_the_context_of_its_making(run: Runner) -> None:
    async def make_server(make: Callable[[], Trail]) -> asyncio.AbstractServer:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(make, "127.0.0.1", 0, start_serving=False)
        leave("not serving yet")
        await server.start_serving()
        return server

    trails = run(trails_of_clients(make_server, lambda address: asyncio.open_connection(*address)))
    assert trails == [("server", *LIFE)] * 2


@one_context
@pytest.mark.parametrize("kind", ["tcp", "accepted", "own recv"])
def test_the_calls_of_a_connection_share_a_context(run: Runner, kind: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        if kind == "own recv":
            one = Counted(fileno=one.detach())
        leave("maker")
        if kind == "accepted":
            _, protocol = await loop.connect_accepted_socket(Trail, one)
        else:
            _, protocol = await loop.create_connection(Trail, sock=one)
        leave("later")
        await ask_and_leave(*await asyncio.open_connection(sock=other))
        assert await protocol.ended == ("maker", *LIFE[1:])
        # The task that made the connection calls the factory, after the context was copied.
        assert TRAIL.get() == ("maker", "init", "later")

    run(main())


@one_context
def test_the_calls_after_start_tls_share_the_connections_context(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        leave("maker")
        plain, _ = await loop.create_connection(asyncio.Protocol, sock=one)
        leave("upgrade")
        protocol = Trail()
        accepting = asyncio.create_task(
            asyncio.open_connection(sock=other, ssl=client_tls, server_hostname="localhost")
        )
        transport = await loop.start_tls(plain, protocol, server_tls, server_side=True)
        assert transport is not None
        protocol.transport = transport
        await ask_and_leave(*await accepting)
        assert await protocol.ended == ("maker", "data", "eof", "lost")

    run(main())


@one_context
@pytest.mark.parametrize("own", [False, True], ids=["ours", "own send"])
def test_writing_resumes_in_the_connections_context(run: Runner, own: bool) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        resumed: asyncio.Future[tuple[str, ...]] = loop.create_future()

        class Protocol(asyncio.Protocol):
            def resume_writing(self) -> None:
                resumed.set_result(leave("resume"))

        one, other = connected_pair()
        if own:
            one = Counted(fileno=one.detach())
        leave("maker")
        transport, _ = await loop.create_connection(Protocol, sock=one)
        leave("writer")
        transport.write(bytes(8 << 20))
        left = 8 << 20
        while left:
            left -= len(await loop.sock_recv(other, 1 << 20))
        assert await resumed == ("maker", "resume")
        transport.abort()
        other.close()

    run(main())


@pytest.mark.parametrize("how", ["close", "abort"])
@pytest.mark.parametrize("own", [False, True], ids=["ours", "own recv"])
def test_connection_lost_runs_in_the_connections_context_or_the_closers(
    run: Runner, how: str, own: bool
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[tuple[str, ...]] = loop.create_future()

        class Protocol(asyncio.Protocol):
            def connection_lost(self, exc: BaseException | None) -> None:
                ended.set_result(TRAIL.get())

        one, other = connected_pair()
        if own:
            one = Counted(fileno=one.detach())
        leave("maker")
        transport, _ = await loop.create_connection(Protocol, sock=one)
        leave("closer")
        getattr(transport, how)()
        leave("later")
        # Until 3.14 asyncio scheduled the call in the current context.
        assert await ended == (("maker",) if SINCE_3_15 else ("maker", "closer"))
        other.close()

    run(main())


def test_datagrams_are_received_in_a_context_like_their_makers(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        received: asyncio.Future[tuple[str, ...]] = loop.create_future()

        class Protocol(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, addr: Any) -> None:
                received.set_result(TRAIL.get())

        leave("maker")
        transport, _ = await loop.create_datagram_endpoint(Protocol, local_addr=("127.0.0.1", 0))
        leave("sender")
        with socket.socket(type=socket.SOCK_DGRAM) as sender:
            sender.sendto(b"data", transport.get_extra_info("sockname"))
            assert await received == ("maker",)
        transport.close()

    run(main())


def test_an_invalid_context_is_refused(run_ours: Runner) -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        one, other = connected_pair()
        with one, other, pytest.raises(TypeError, match="context: must be a contextvars.Context"):
            loop._make_socket_transport(one, asyncio.Protocol(), context="none")

    run_ours(main())
