"""create_server: its options, its life and its end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.loop.harness import (
    LOOPS,
    Echo,
    Recorder,
    Runner,
    factory,
    listen,
    python_version,
    rounds,
)


def test_serving_starts_on_request(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server, address = await listen(Echo, start_serving=False)
        assert not server.is_serving()  # type: ignore[attr-defined]
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Recorder, *address)
        await server.start_serving()
        await server.start_serving()
        assert server.is_serving()  # type: ignore[attr-defined]
        transport, client = await loop.create_connection(Recorder, *address)
        transport.write(b"now")
        await client.until(lambda: client.data == b"now")
        transport.close()
        await client.until_call("lost")
        server.close()
        assert not server.is_serving()  # type: ignore[attr-defined]
        assert server.sockets == ()
        await server.wait_closed()

    run(main())


def test_closing_the_server_keeps_its_connections(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server, address = await listen(Echo)
        transport, client = await loop.create_connection(Recorder, *address)
        transport.write(b"before")
        await client.until(lambda: client.data == b"before")
        server.close()
        server.close()
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Recorder, *address)
        transport.write(b" and after")
        await client.until(lambda: client.data == b"before and after")
        transport.close()
        await client.until_call("lost")
        await server.wait_closed()

    run(main())


def test_an_address_is_free_as_soon_as_the_server_is_closed(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server, address = await listen(Echo)
        for _ in range(20):
            transport, client = await loop.create_connection(Recorder, *address)
            transport.write(b"x")
            await client.until_call("data")
            transport.close()
            await client.until_call("lost")
            server.close()
            await server.wait_closed()
            server = await loop.create_server(Echo, *address)
        server.close()

    run(main())


def test_serve_forever_ends_by_cancellation(run: Runner) -> None:
    async def main() -> None:
        server, _ = await listen(Echo)
        task = asyncio.ensure_future(server.serve_forever())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError):
            await server.serve_forever()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not server.is_serving()  # type: ignore[attr-defined]

    run(main())


def test_the_server_is_a_context_manager(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server, address = await listen(Echo)
        async with server:
            transport, client = await loop.create_connection(Recorder, *address)
            transport.close()
            await client.until_call("lost")
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Recorder, *address)

    run(main())


def test_reuse_port_shares_and_a_taken_address_is_refused(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        first, address = await listen(Echo, reuse_port=True)
        second = await loop.create_server(Echo, *address, reuse_port=True)
        with pytest.raises(OSError, match="address already in use"):
            await loop.create_server(Echo, *address)
        first.close()
        second.close()

    run(main())


def test_several_hosts_and_an_existing_socket(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Echo, ["127.0.0.1", "127.0.0.2"], 0)
        addresses = {sock.getsockname()[0] for sock in server.sockets}
        assert addresses == {"127.0.0.1", "127.0.0.2"}
        for sock in server.sockets:
            transport, client = await loop.create_connection(Recorder, *sock.getsockname())
            transport.write(b"both")
            await client.until(lambda: client.data == b"both")  # noqa: B023
            transport.close()
            await client.until_call("lost")
        server.close()

        own = socket.socket()
        own.bind(("127.0.0.1", 0))
        server = await loop.create_server(Echo, sock=own)
        transport, client = await loop.create_connection(Recorder, *own.getsockname())
        transport.close()
        await client.until_call("lost")
        server.close()
        with pytest.raises(ValueError):
            await loop.create_server(Echo, "127.0.0.1", 0, sock=own)
        with pytest.raises(ValueError):
            await loop.create_server(Echo)

    run(main())


def test_a_backlog_of_waiting_clients_is_accepted(run: Runner) -> None:
    async def main() -> None:
        accepted: list[Any] = []

        class Count(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                accepted.append(transport)

        server, address = await listen(Count, backlog=128, start_serving=False)
        # Clients that connect while the loop is busy wait in the kernel's queue.
        await server.start_serving()
        clients = [socket.create_connection(address) for _ in range(100)]
        while len(accepted) < 100:
            await asyncio.sleep(0.001)
        for client in clients:
            client.close()
        for transport in accepted:
            transport.close()
        await rounds()
        server.close()

    run(main())


def test_a_failing_protocol_factory_does_not_stop_the_server(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        made = 0

        def make() -> Echo:
            nonlocal made
            made += 1
            if made == 1:
                raise ZeroDivisionError
            return Echo()

        # asyncio reports this in debug mode only; otherwise the connection is closed without a
        # report.
        loop.set_debug(True)
        server, address = await listen(make)
        _, first = await loop.create_connection(Recorder, *address)
        if run.ours:
            # asyncio leaves the accepted socket to the garbage collector.
            await asyncio.wait_for(first.until_call("lost"), 5)
        transport, second = await loop.create_connection(Recorder, *address)
        transport.write(b"works")
        await second.until(lambda: second.data == b"works")
        transport.close()
        await second.until_call("lost")
        server.close()

    run(main())
    run.expect(ZeroDivisionError)


@pytest.mark.skipif(python_version() < (3, 13), reason="close_clients() came with Python 3.13")
def test_close_clients_and_abort_clients(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for method in ("close_clients", "abort_clients"):
            server, address = await listen(Echo)
            clients = []
            for _ in range(5):
                transport, client = await loop.create_connection(Recorder, *address)
                transport.write(b"here")
                await client.until(lambda: client.data == b"here")  # noqa: B023
                clients.append(client)
            server.close()
            getattr(server, method)()
            for client in clients:
                await client.until_call("lost")
            await server.wait_closed()

    run(main())


def test_a_listening_socket_that_the_program_closes_itself(run_ours: Runner) -> None:
    """As on asyncio, the server cannot be closed any more; but after the attempt it serves no client.

    asyncio's selector keeps the number, and its next owner is not served.
    """

    async def main() -> None:
        loop = asyncio.get_running_loop()
        closed = socket.create_server(("127.0.0.1", 0))
        address = closed.getsockname()
        server = await loop.create_server(Echo, sock=closed)
        number = closed.fileno()
        closed.close()
        with pytest.raises(ValueError, match="Invalid file descriptor"):
            server.close()
        await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=5)
        # The number is another server's now, which is served.
        successor, where = await listen(Echo)
        assert successor.sockets[0].fileno() == number
        reader, writer = await asyncio.open_connection(*where)
        writer.write(b"served")
        assert await reader.readexactly(6) == b"served"
        writer.close()
        await writer.wait_closed()
        successor.close()

    run_ours(main())


@pytest.mark.parametrize("name", LOOPS)
def test_a_listener_closed_while_the_loop_does_not_run_is_not_reported(name: str) -> None:
    loop = factory(name)()
    complaints: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    server = loop.run_until_complete(loop.create_server(Echo, sock=listener))
    spare = socket.socketpair()
    listener.close()
    loop.run_until_complete(rounds(through=spare))
    for sock in spare:
        sock.close()
    with pytest.raises(ValueError, match="Invalid file descriptor"):
        server.close()
    loop.close()
    assert complaints == []


@pytest.mark.parametrize("given", [False, True])
def test_a_failing_accept_shows_the_listening_socket(run: Runner, given: bool) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        # First: the kernel uses the limit at the time when the accept was armed.
        with few_descriptors():
            if given:
                listener = socket.create_server(("127.0.0.1", 0))
                server = await loop.create_server(Echo, sock=listener)
            else:
                server, _ = await listen(Echo)
            address = server.sockets[0].getsockname()
            with socket.socket() as client, filled_descriptors():
                client.setblocking(False)
                await loop.sock_connect(client, address)
                while not run.complaints.contexts:
                    await asyncio.sleep(0.01)
        for context in run.complaints.contexts:
            assert context["message"] == "socket.accept() out of system resource"
            assert context["exception"].errno == errno.EMFILE
            assert type(context["socket"]) is type(server.sockets[0])
            assert context["socket"].getsockname() == address
        run.complaints.contexts.clear()
        # The server accepts again after a while.
        transport, protocol = await loop.create_connection(Recorder, *address)
        transport.write(b"served")
        await protocol.until(lambda: protocol.data == b"served")
        transport.close()
        await protocol.until_call("lost")
        server.close()
        await server.wait_closed()

    run(main())


@contextlib.contextmanager
def few_descriptors() -> Iterator[None]:
    """This process can open a few files more, and no others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, highest + 24), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def filled_descriptors() -> Iterator[None]:
    """This process can open no file."""
    opened = []
    with few_descriptors():
        try:
            with contextlib.suppress(OSError):
                while True:
                    opened.append(os.open(os.devnull, os.O_RDONLY))
            yield
        finally:
            for fd in opened:
                os.close(fd)
