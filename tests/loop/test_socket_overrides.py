"""Sockets whose class has a recv(), a send() or an accept() of its own: the loop calls it, as on
asyncio.
"""

from __future__ import annotations

import asyncio
import io
import socket
import ssl
import tempfile
from typing import Any
from unittest import mock

import pytest

from tests.loop.harness import Echo, Recorder, Runner, connected_pair, listen


class Counted(socket.socket):
    """A socket that records its methods that moved bytes."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.called: list[str] = []

    def recv(self, *args: Any) -> bytes:
        self.called.append("recv")
        return super().recv(*args)

    def recv_into(self, *args: Any) -> int:
        self.called.append("recv_into")
        return super().recv_into(*args)

    def recvfrom(self, *args: Any) -> tuple[bytes, Any]:
        self.called.append("recvfrom")
        return super().recvfrom(*args)

    def send(self, *args: Any) -> int:
        self.called.append("send")
        return super().send(*args)

    def sendto(self, *args: Any) -> int:
        self.called.append("sendto")
        return super().sendto(*args)

    def shutdown(self, how: int) -> None:
        self.called.append("shutdown")
        super().shutdown(how)

    def accept(self) -> tuple[socket.socket, Any]:
        self.called.append("accept")
        return super().accept()


class Named(socket.socket):
    """A subclass that leaves the bytes alone."""

    name = "mine"


def counted_pair() -> tuple[Counted, socket.socket]:
    """Two connected sockets, of which the first counts."""
    one, other = connected_pair()
    return Counted(fileno=one.detach()), other


class Filled(asyncio.BufferedProtocol):
    """A protocol with a buffer of its own."""

    def __init__(self) -> None:
        self.room = bytearray(100)
        self.got: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.room

    def buffer_updated(self, nbytes: int) -> None:
        self.got.set_result(bytes(self.room[:nbytes]))


def test_a_stream_goes_through_the_methods(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = counted_pair()
        transport, protocol = await loop.create_connection(Recorder, sock=one)
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"question")
        assert await loop.sock_recv(other, 100) == b"question"
        await loop.sock_sendall(other, b"answer")
        await protocol.until(lambda: protocol.data == b"answer")
        transport.write_eof()
        assert await loop.sock_recv(other, 100) == b""
        other.close()
        await protocol.until_call("lost")
        assert protocol.calls == ["made", "data", "eof", "lost"]
        assert one.called[0] == "send"
        assert {"recv", "send", "shutdown"} == set(one.called)
        assert one.fileno() == -1

    run(main())


def test_a_buffered_protocol_goes_through_recv_into(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = counted_pair()
        transport, protocol = await loop.create_connection(Filled, sock=one)
        other.send(b"answer")
        assert await protocol.got == b"answer"
        assert set(one.called) == {"recv_into"}
        transport.abort()
        other.close()
        await asyncio.sleep(0)

    run(main())


def test_tls_goes_through_the_methods(
    run: Runner, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        server, address = await listen(Echo, ssl=server_tls)
        sock = Counted()
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, address)
        reader, writer = await asyncio.open_connection(
            sock=sock, ssl=client_tls, server_hostname="localhost"
        )
        sent = bytes(range(256)) * 1000
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent
        assert "send" in sock.called
        assert {"recv", "recv_into"} & set(sock.called)
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()

    run(main())


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_a_listener_goes_through_accept(
    run: Runner, secure: bool, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        listener = Counted()
        listener.bind(("127.0.0.1", 0))
        address = listener.getsockname()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Echo, sock=listener, ssl=server_tls if secure else None)
        reader, writer = await asyncio.open_connection(
            *address,
            ssl=client_tls if secure else None,
            server_hostname="localhost" if secure else None,
        )
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        assert set(listener.called) == {"accept"}
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()
        assert listener.fileno() == -1
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)

    run(main())


def test_datagrams_go_through_the_methods(run: Runner) -> None:
    class Keeper(asyncio.DatagramProtocol):
        def __init__(self) -> None:
            self.got: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def datagram_received(self, data: bytes, addr: Any) -> None:
            self.got.set_result(data)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        one = Counted(socket.AF_INET, socket.SOCK_DGRAM)
        one.setblocking(False)
        one.bind(("127.0.0.1", 0))
        transport, protocol = await loop.create_datagram_endpoint(Keeper, sock=one)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind(("127.0.0.1", 0))
            other.setblocking(False)
            transport.sendto(b"question", other.getsockname())
            assert await loop.sock_recv(other, 100) == b"question"
            other.sendto(b"answer", one.getsockname())
            assert await protocol.got == b"answer"
        assert {"sendto", "recvfrom"} <= set(one.called)
        transport.close()
        await asyncio.sleep(0)

    run(main())


def test_sendfile_over_a_transport_of_asyncios(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = counted_pair()
        transport, _ = await loop.create_connection(Recorder, sock=one)
        content = bytes(range(256)) * 4000
        with tempfile.TemporaryFile() as file:
            file.write(content)
            file.flush()
            sending = asyncio.ensure_future(loop.sendfile(transport, file))
            received = bytearray()
            while len(received) < len(content):
                received += await loop.sock_recv(other, 1 << 20)
            assert await sending == len(content)
        assert received == content
        # For a file in memory the kernel has no source, so the data passes through send().
        one.called.clear()
        assert await loop.sendfile(transport, io.BytesIO(b"short")) == 5
        assert await loop.sock_recv(other, 100) == b"short"
        assert "send" in one.called
        transport.abort()
        other.close()
        await asyncio.sleep(0)

    run(main())


def test_its_descriptor_is_the_transports(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = counted_pair()
        transport, _ = await loop.create_connection(Recorder, sock=one)
        with pytest.raises(RuntimeError, match="is used by transport"):
            loop.add_reader(one.fileno(), print)
        # The representation shows the operation that it waits for.
        assert "read=polling" in repr(transport)
        assert "write=<idle, bufsize=0>" in repr(transport)
        transport.abort()
        other.close()
        await asyncio.sleep(0)

    run(main())


def test_an_imitation_of_a_socket(run: Runner) -> None:
    async def main() -> None:
        one, other = connected_pair()
        imitation = mock.Mock(wraps=one, type=socket.SOCK_STREAM, family=socket.AF_INET)
        imitation.send.side_effect = BrokenPipeError
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_connection(Recorder, sock=imitation)
        transport.write(b"lost")
        await protocol.until_call("lost")
        assert isinstance(protocol.lost_with, BrokenPipeError)
        one.close()
        other.close()

    run(main())


def test_methods_of_one_socket_alone(run: Runner) -> None:
    """A program that puts a method on the instance means it no less than a class that has one."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        sock: Any = Named(fileno=one.detach())
        sent: list[bytes] = []
        original = sock.send

        def send(data: Any) -> int:
            sent.append(bytes(data))
            return int(original(data))

        sock.send = send
        transport, _ = await loop.create_connection(Recorder, sock=sock)
        transport.write(b"question")
        assert await loop.sock_recv(other, 100) == b"question"
        assert sent == [b"question"]
        transport.abort()
        other.close()
        await asyncio.sleep(0)

    run(main())


def test_a_subclass_that_leaves_the_bytes_alone_stays_on_the_ring(run_ours: Runner) -> None:
    async def main() -> None:
        from uringcore import _uringcore

        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        sock = Named(fileno=one.detach())
        transport, _ = await loop.create_connection(Recorder, sock=sock)
        assert isinstance(transport, _uringcore.StreamTransport)
        transport.write(b"x")
        assert await loop.sock_recv(other, 100) == b"x"
        transport.abort()
        other.close()
        await asyncio.sleep(0)

    run_ours(main())
