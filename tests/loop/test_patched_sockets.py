"""A program gives ``socket.socket`` itself other methods: they are called, as on asyncio.

Test suites do so to forbid the network, to count bytes or to make a connection fail.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from tests.loop.harness import Echo, Recorder, Runner, connected_pair, listen


def counting(patch: pytest.MonkeyPatch, *names: str) -> list[str]:
    """Replaces methods of ``socket.socket`` by some that record their name and then call the original."""
    called: list[str] = []

    def replaced(name: str) -> Callable[..., Any]:
        original = getattr(socket.socket, name)

        def method(self: socket.socket, *args: Any) -> Any:
            called.append(name)
            return original(self, *args)

        return method

    for name in names:
        patch.setattr(socket.socket, name, replaced(name))
    return called


def test_a_forbidden_network_is_not_reached(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    class Forbidden(RuntimeError):
        pass

    def refuse(self: socket.socket, address: Any) -> None:
        raise Forbidden(address)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        reached: list[Any] = []

        class Protocol(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                reached.append(transport)
                transport.close()

        server, address = await listen(Protocol)
        with monkeypatch.context() as patch:
            patch.setattr(socket.socket, "connect", refuse)
            with pytest.raises(Forbidden):
                await asyncio.open_connection(*address)
            with pytest.raises(Forbidden), socket.socket() as sock:
                sock.setblocking(False)
                await loop.sock_connect(sock, address)
            with pytest.raises(Forbidden):
                await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=address)
        assert reached == []
        _, writer = await asyncio.open_connection(*address)
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()
        assert len(reached) == 1

    run(main())


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("first", ["server", "patch"])
def test_both_ends_of_a_connection_go_through_the_methods(
    run: Runner,
    monkeypatch: pytest.MonkeyPatch,
    first: str,
    secure: bool,
    server_tls: ssl.SSLContext,
    client_tls: ssl.SSLContext,
) -> None:
    async def main() -> None:
        called: list[str] = []
        moving = ("recv", "recv_into", "send")
        if first == "patch":
            called = counting(monkeypatch, *moving)
        server, address = await listen(Echo, ssl=server_tls if secure else None)
        if first == "server":
            called = counting(monkeypatch, *moving)
        reader, writer = await asyncio.open_connection(
            *address,
            ssl=client_tls if secure else None,
            server_hostname="localhost" if secure else None,
        )
        writer.write(b"question")
        assert await reader.readexactly(8) == b"question"
        # Two of each: of the client's transport and of the server's.
        assert called.count("send") >= 2
        assert called.count("recv") + called.count("recv_into") >= 2
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()

    run(main())


def test_an_error_of_the_method_ends_the_connection(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: socket.socket, *args: Any) -> Any:
        raise ConnectionAbortedError("by the test")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        with monkeypatch.context() as patch:
            patch.setattr(socket.socket, "recv", fail)
            _, protocol = await loop.create_connection(Recorder, sock=one)
            other.sendall(b"data")
            await protocol.until_call("lost")
        assert isinstance(protocol.lost_with, ConnectionAbortedError)
        assert protocol.data == b""
        other.close()

    run(main())


def test_sock_calls_go_through_the_methods(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        called = counting(monkeypatch, "recv", "recv_into", "send", "accept", "connect")
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
            listener.setblocking(False)
            client.setblocking(False)
            accepting = loop.create_task(loop.sock_accept(listener))
            await loop.sock_connect(client, listener.getsockname())
            served, _ = await accepting
            receiving = loop.create_task(loop.sock_recv(served, 100))
            await asyncio.sleep(0)
            await loop.sock_sendall(client, b"question")
            assert await receiving == b"question"
            await loop.sock_sendall(served, b"answer")
            room = bytearray(100)
            assert await loop.sock_recv_into(client, room) == 6
            assert room[:6] == b"answer"
            served.close()
        assert set(called) == {"recv", "recv_into", "send", "accept", "connect"}

    run(main())


def test_datagrams_go_through_the_methods(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    class Answering(asyncio.DatagramProtocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, addr: Any) -> None:
            self.transport.sendto(data.upper(), addr)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        called = counting(monkeypatch, "recvfrom", "sendto")
        transport, _ = await loop.create_datagram_endpoint(Answering, local_addr=("127.0.0.1", 0))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.setblocking(False)
            client.connect(transport.get_extra_info("sockname"))
            client.send(b"question")
            assert await loop.sock_recv(client, 100) == b"QUESTION"
        assert set(called) == {"recvfrom", "sendto"}
        transport.close()
        await asyncio.sleep(0)

    run(main())


def test_the_ring_is_used_again_afterwards(
    run_ours: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        from uringcore import _uringcore

        loop = asyncio.get_running_loop()
        for _ in range(3):
            for patched in (True, False):
                one, other = connected_pair()
                with monkeypatch.context() as patch:
                    if patched:
                        counting(patch, "recv")
                    transport, _ = await loop.create_connection(Recorder, sock=one)
                assert isinstance(transport, _uringcore.StreamTransport) is not patched
                transport.abort()
                other.close()
        await asyncio.sleep(0)

    run_ours(main())
