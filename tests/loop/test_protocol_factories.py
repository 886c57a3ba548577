"""Factories that return no protocol: the caller gets an error at once."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import ssl
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from tests.loop.harness import (
    Recorder,
    Runner,
    collect,
    connected_pair,
    listen,
    open_descriptors,
    rounds,
)


def nothing() -> Any:
    """The result of a factory without a return statement."""


class NoProtocol:
    """An object without a protocol's methods."""


FACTORIES = (nothing, NoProtocol)
MADE = "has no attribute 'connection_made'"


def _without_warnings(main: Callable[[], Any]) -> Any:
    # asyncio leaves the sockets of such transports to the collector, which warns.
    async def run() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            await main()
            gc.collect()

    return run()


@pytest.mark.parametrize("make", FACTORIES)
def test_a_faulty_factory_raises_in_create_connection(run: Runner, make: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server, address = await listen(Recorder)
        one, other = connected_pair()
        accepted, peer = connected_pair()
        datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagram.bind(("127.0.0.1", 0))
        calls: tuple[Callable[[], Any], ...] = (
            lambda: loop.create_connection(make, *address),
            lambda: loop.create_connection(make, sock=one),
            lambda: loop.connect_accepted_socket(make, accepted),
            lambda: loop.create_datagram_endpoint(make, local_addr=("127.0.0.1", 0)),
            lambda: loop.create_datagram_endpoint(make, sock=datagram),
        )
        for call in calls:
            with pytest.raises(AttributeError, match=MADE):
                await call()
            # asyncio's transport is collected before its descriptor's number is reused.
            gc.collect()
        for sock in (one, other, accepted, peer, datagram):
            sock.close()
        server.close()

    run(_without_warnings(main))


@pytest.mark.parametrize("make", FACTORIES)
def test_a_faulty_factory_raises_in_connect_pipe(run: Runner, make: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for connect, end in ((loop.connect_read_pipe, 0), (loop.connect_write_pipe, 1)):
            pipe = os.pipe()
            os.close(pipe[1 - end])
            with pytest.raises(AttributeError, match=MADE), open(pipe[end], "rb+", 0) as file:
                await connect(make, file)

    run(_without_warnings(main))


@pytest.mark.parametrize("make", FACTORIES)
def test_a_faulty_factory_raises_before_the_tls_handshake(
    run_ours: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, make: Any
) -> None:
    """On asyncio no error is raised: the call waits for ever."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server, address = await listen(Recorder, ssl=server_tls)
        with pytest.raises(AttributeError, match=MADE):
            await loop.create_connection(
                make, *address, ssl=client_tls, server_hostname="localhost"
            )
        server.close()

    run_ours(_without_warnings(main))


@pytest.mark.parametrize("make", FACTORIES)
@pytest.mark.parametrize("tls", [False, True])
def test_a_server_without_a_protocol_closes_the_connection(
    run_ours: Runner,
    server_tls: ssl.SSLContext,
    client_tls: ssl.SSLContext,
    make: Any,
    tls: bool,
) -> None:
    """The loop reports it once. asyncio reports it in debug mode only, and leaves the socket to the
    collector.
    """

    made: list[Any] = []

    def make_and_keep() -> Any:
        made.append(make())
        return made[-1]

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server, address = await listen(make_and_keep, ssl=server_tls if tls else None)
        collect()
        descriptors = open_descriptors()
        with socket.create_connection(address) as peer:
            peer.setblocking(False)
            assert await loop.sock_recv(peer, 1) == b""
        assert open_descriptors() <= descriptors
        (told,) = run_ours.complaints.contexts
        assert told["message"] == "Error on transport creation for incoming connection"
        assert told.get("protocol") is made[0]
        server.close()
        await asyncio.wait_for(server.wait_closed(), 5)

    run_ours(main())
    run_ours.expect(AttributeError)


def test_start_tls_does_not_ask_for_connection_made(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    """The protocol has received that call already."""

    class Receiver:
        def __init__(self) -> None:
            self.data = b""

        def data_received(self, data: bytes) -> None:
            self.data += data

        def eof_received(self) -> None: ...

        def connection_lost(self, exc: Exception | None) -> None: ...

    class Greeter(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.transport.write(b"hello")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server, address = await listen(Greeter, ssl=server_tls)
        transport, _ = await loop.create_connection(Recorder, *address)
        receiver: Any = Receiver()
        over = await loop.start_tls(transport, receiver, client_tls, server_hostname="localhost")
        assert over is not None
        while receiver.data != b"hello":
            await asyncio.sleep(0.001)
        over.close()
        server.close()
        await rounds()

    run(main())
