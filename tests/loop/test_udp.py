"""Datagram endpoints."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from tests.loop.harness import Runner, rounds
from tests.support.free_ports import free_port


class Datagrams(asyncio.DatagramProtocol):
    """Records received datagrams; echoes them if enabled."""

    def __init__(self, echo: bool = False) -> None:
        self.echo = echo
        self.received: asyncio.Queue[tuple[bytes, Any]] = asyncio.Queue()
        self.errors: asyncio.Queue[Exception] = asyncio.Queue()
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.DatagramTransport = transport  # type: ignore[assignment]

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.received.put_nowait((data, addr))
        if self.echo:
            self.transport.sendto(data, addr)

    def error_received(self, exc: Exception) -> None:
        self.errors.put_nowait(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


async def _server() -> tuple[asyncio.DatagramTransport, Any]:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: Datagrams(echo=True), local_addr=("127.0.0.1", 0)
    )
    return transport, transport.get_extra_info("sockname")


def test_connected_echo(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server, address = await _server()
        transport, client = await loop.create_datagram_endpoint(Datagrams, remote_addr=address)
        for size in (1, 100, 1400, 9000, 60_000):
            transport.sendto(b"d" * size)
            data, source = await client.received.get()
            assert (len(data), source) == (size, address)
        assert transport.get_extra_info("peername") == address
        transport.close()
        assert transport.is_closing()
        await client.lost.wait()
        server.close()
        await rounds()

    run(main())


def test_unconnected_echo_keeps_boundaries_and_sources(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server, address = await _server()
        ends = [
            await loop.create_datagram_endpoint(Datagrams, local_addr=("127.0.0.1", 0))
            for _ in range(10)
        ]
        for index, (transport, _) in enumerate(ends):
            for number in range(20):
                transport.sendto(f"{index} {number}".encode(), address)
        for index, (transport, protocol) in enumerate(ends):
            got = [await protocol.received.get() for _ in range(20)]
            assert got == [(f"{index} {number}".encode(), address) for number in range(20)]
            transport.close()
            await protocol.lost.wait()
        server.close()
        await rounds()

    run(main())


def test_a_dead_port_is_reported(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport, client = await loop.create_datagram_endpoint(
            Datagrams, remote_addr=("127.0.0.1", free_port())
        )
        transport.sendto(b"anyone?")
        assert isinstance(await client.errors.get(), ConnectionRefusedError)
        assert not transport.is_closing()
        transport.abort()
        await client.lost.wait()

    run(main())


def test_close_flushes_and_abort_does_not_wait(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        receiver, protocol = await loop.create_datagram_endpoint(
            Datagrams, local_addr=("127.0.0.1", 0)
        )
        address = receiver.get_extra_info("sockname")
        sender, lost = await loop.create_datagram_endpoint(Datagrams, remote_addr=address)
        for number in range(50):
            sender.sendto(str(number).encode())
        sender.close()
        assert [int((await protocol.received.get())[0]) for _ in range(50)] == list(range(50))
        await lost.lost.wait()
        receiver.abort()
        await protocol.lost.wait()

    run(main())


def test_an_error_before_the_end_is_reported(run: Runner) -> None:
    class Protocol(asyncio.DatagramProtocol):
        def __init__(self) -> None:
            self.told: list[str] = []
            self.over = asyncio.get_running_loop().create_future()

        def error_received(self, exc: Exception) -> None:
            self.told.append("error")

        def connection_lost(self, exc: BaseException | None) -> None:
            self.told.append("lost")
            self.over.set_result(None)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_datagram_endpoint(
            Protocol, local_addr=("127.0.0.1", 0)
        )
        address = transport.get_extra_info("sockname")
        transport.sendto(b"fits", address)
        transport.sendto(bytes(70_000), address)
        transport.close()
        await protocol.over
        assert protocol.told == ["error", "lost"]

    run(main())


def test_wrong_uses_are_refused(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server, address = await _server()
        transport, client = await loop.create_datagram_endpoint(Datagrams, remote_addr=address)
        with pytest.raises(TypeError):
            transport.sendto("text")  # type: ignore[arg-type]
        with pytest.raises(ValueError):
            transport.sendto(b"elsewhere", ("127.0.0.1", 1))
        with pytest.raises(ValueError):
            await loop.create_datagram_endpoint(Datagrams)
        transport.close()
        await client.lost.wait()
        server.close()
        await rounds()

    run(main())


def test_the_methods_of_a_stream_are_there_to_refuse(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport: Any
        transport, client = await loop.create_datagram_endpoint(
            Datagrams, local_addr=("127.0.0.1", 0)
        )
        assert isinstance(transport, asyncio.Transport)
        refused = (
            lambda: transport.write(b"x"),
            lambda: transport.write("no bytes"),
            lambda: transport.writelines([b"x", bytearray(b"y")]),
            lambda: transport.writelines([]),
            lambda: transport.write_eof(),
            lambda: transport.can_write_eof(),
        )
        for call in refused:
            with pytest.raises(NotImplementedError):
                call()
        with pytest.raises(TypeError):
            transport.writelines(["no bytes"])
        assert not transport.is_closing()
        written: list[bytes] = []
        transport.write = written.append
        transport.writelines([b"x", b"y"])
        assert written == [b"xy"]
        transport.close()
        await client.lost.wait()

    run(main())


def test_an_existing_socket_and_broadcast(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
        transport, _ = await loop.create_datagram_endpoint(Datagrams, sock=sock)
        assert transport.get_extra_info("sockname") == sock.getsockname()
        wide, _ = await loop.create_datagram_endpoint(
            Datagrams, local_addr=("127.0.0.1", 0), allow_broadcast=True, reuse_port=True
        )
        option = wide.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST)
        assert option != 0
        transport.close()
        wide.close()
        await rounds()

    run(main())


def test_a_raising_receiver_does_not_stop_the_endpoint(run: Runner) -> None:
    class Fails(Datagrams):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            if data == b"bad":
                raise ZeroDivisionError

    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_datagram_endpoint(
            Fails, local_addr=("127.0.0.1", 0)
        )
        address = transport.get_extra_info("sockname")
        sender, _ = await loop.create_datagram_endpoint(Datagrams, remote_addr=address)
        sender.sendto(b"bad")
        await protocol.received.get()
        await rounds()
        sender.sendto(b"good")
        assert (await protocol.received.get())[0] == b"good"
        sender.close()
        transport.close()
        await protocol.lost.wait()

    run(main())
    run.expect(ZeroDivisionError)


def test_a_socket_closed_under_its_transport_is_not_read_for_ever(run: Runner) -> None:
    class Client(asyncio.DatagramProtocol):
        def __init__(self) -> None:
            self.errors: list[Exception] = []

        def error_received(self, exc: Exception) -> None:
            self.errors.append(exc)

    loop = run.factory()
    try:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
        # The loop rests in between: what it took back from the kernel is armed again afterwards.
        transport, client = loop.run_until_complete(
            loop.create_datagram_endpoint(Client, sock=sock)
        )
        sock.close()
        for _ in range(20):
            loop.run_until_complete(asyncio.sleep(0.001))
        assert client.errors == []
    finally:
        loop.close()
    del transport
