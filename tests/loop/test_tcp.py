"""TCP streams through protocols, buffered protocols and asyncio's own stream classes."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

import pytest

from tests.loop.harness import Echo, Recorder, Runner, connected_pair, eventually, listen, rounds


def test_protocol_echo(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server, address = await listen(Echo)
        transport, protocol = await loop.create_connection(Recorder, *address)
        for size in (1, 1000, 70_000, 1_000_000):
            message = bytes(range(256)) * (size // 256 + 1)
            protocol.data.clear()
            transport.write(message)
            await protocol.until(lambda: len(protocol.data) >= len(message))  # noqa: B023
            assert protocol.data == message
        transport.close()
        await protocol.until_call("lost")
        assert protocol.lost_with is None
        assert protocol.calls[0] == "made"
        assert protocol.calls[-1] == "lost"
        server.close()
        await server.wait_closed()

    run(main())


def test_every_writable_kind_of_bytes_arrives_in_order(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server, address = await listen(Echo)
        transport, protocol = await loop.create_connection(Recorder, *address)
        changing = bytearray(b"three ")
        transport.write(b"one ")
        transport.write(bytearray(b"two "))
        transport.write(memoryview(changing))
        # Written data was copied or sent: the caller may reuse its buffer at once.
        changing[:] = b"XXXXXX"
        transport.writelines([b"four ", bytearray(b"five "), memoryview(b"six")])
        transport.write(b"")
        await protocol.until(lambda: len(protocol.data) == 27)
        assert protocol.data == b"one two three four five six"
        with pytest.raises(TypeError):
            transport.write("text")  # type: ignore[arg-type]
        transport.close()
        await protocol.until_call("lost")
        server.close()

    run(main())


def test_extra_info(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        accepted: list[Recorder] = []

        def accept() -> Recorder:
            accepted.append(Recorder())
            return accepted[-1]

        server, address = await listen(accept)
        transport, protocol = await loop.create_connection(Recorder, *address)
        assert transport.get_extra_info("peername") == address
        own = transport.get_extra_info("sockname")
        sock = transport.get_extra_info("socket")
        assert sock.getsockname() == own
        assert sock.family == socket.AF_INET
        assert sock.type == socket.SOCK_STREAM
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert transport.get_extra_info("nothing") is None
        assert transport.get_extra_info("nothing", "default") == "default"
        transport.write(b"x")
        while not accepted:
            await asyncio.sleep(0.001)
        await accepted[0].until_call("data")
        assert accepted[0].transport.get_extra_info("peername") == own
        assert accepted[0].transport.get_extra_info("sockname") == address
        assert transport.get_protocol() is protocol
        assert not transport.is_closing()
        transport.close()
        assert transport.is_closing()
        await protocol.until_call("lost")
        server.close()

    run(main())


def test_half_close_keeps_the_other_direction(run: Runner) -> None:
    class AnswerAtEof(Recorder):
        def eof_received(self) -> bool:
            super().eof_received()
            self.transport.write(b"all of " + bytes(self.data))
            self.transport.write_eof()
            return True

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server, address = await listen(AnswerAtEof)
        transport, protocol = await loop.create_connection(Recorder, *address)
        protocol.eof_answer = True
        assert transport.can_write_eof()
        transport.write(b"it" * 100_000)
        transport.write_eof()
        with pytest.raises(RuntimeError):
            transport.write(b"more")
        await protocol.until_call("eof")
        assert protocol.data == b"all of " + b"it" * 100_000
        assert not transport.is_closing()
        transport.close()
        await protocol.until_call("lost")
        server.close()

    run(main())


def test_eof_closes_where_the_protocol_does_not_object(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        accepted: asyncio.Queue[Recorder] = asyncio.Queue()

        def accept() -> Recorder:
            protocol = Recorder()
            accepted.put_nowait(protocol)
            return protocol

        server, address = await listen(accept)
        transport, client = await loop.create_connection(Recorder, *address)
        transport.write(b"bye")
        transport.write_eof()
        protocol = await accepted.get()
        await protocol.until_call("lost")
        assert protocol.calls == ["made", "data", "eof", "lost"]
        assert protocol.lost_with is None
        await client.until_call("lost")
        server.close()

    run(main())


def test_close_sends_what_was_written(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        accepted: asyncio.Queue[Recorder] = asyncio.Queue()

        def accept() -> Recorder:
            protocol = Recorder()
            accepted.put_nowait(protocol)
            return protocol

        server, address = await listen(accept)
        transport, client = await loop.create_connection(Recorder, *address)
        message = b"z" * 3_000_000
        transport.write(message)
        transport.close()
        protocol = await accepted.get()
        await protocol.until_call("lost")
        assert len(protocol.data) == len(message)
        await client.until_call("lost")
        assert client.lost_with is None
        server.close()

    run(main())


def test_abort_discards_and_resets(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        try:
            transport, client = await loop.create_connection(Recorder, sock=one)
            transport.write(b"q" * 20_000_000)
            assert transport.get_write_buffer_size() > 0
            transport.abort()
            assert transport.is_closing()
            await client.until_call("lost")
            assert client.lost_with is None
            assert transport.get_write_buffer_size() == 0
        finally:
            other.close()

    run(main())


def test_connection_lost_comes_later_and_once(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        transport, client = await loop.create_connection(Recorder, sock=one)
        transport.close()
        assert "lost" not in client.calls
        transport.close()
        transport.abort()
        await client.until_call("lost")
        transport.close()
        await rounds()
        assert client.calls.count("lost") == 1
        other.close()

    run(main())


def test_writes_after_close_are_ignored(run: Runner, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        transport, client = await loop.create_connection(Recorder, sock=one)
        transport.close()
        transport.write(b"too late")
        await client.until_call("lost")
        for _ in range(10):
            transport.write(b"much too late")
        other.setblocking(True)
        other.settimeout(5)
        assert other.recv(100) == b""
        other.close()

    run(main())


def test_a_reset_by_the_peer_is_reported(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        transport, client = await loop.create_connection(Recorder, sock=one)
        # Linger of zero turns close into RST.
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()
        await client.until_call("lost")
        assert isinstance(client.lost_with, ConnectionResetError)
        assert "eof" not in client.calls
        assert transport.is_closing()

    run(main())


def test_writing_to_a_dead_peer_ends_the_connection(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        transport, client = await loop.create_connection(Recorder, sock=one)
        client.eof_answer = True
        other.close()
        await client.until_call("eof")
        while "lost" not in client.calls:
            transport.write(b"anyone?" * 1000)
            await asyncio.sleep(0.001)
        assert isinstance(client.lost_with, (BrokenPipeError, ConnectionResetError))

    run(main())


def test_a_refused_connection_raises(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            address = unused.getsockname()
            with pytest.raises(ConnectionRefusedError):
                await loop.create_connection(Recorder, *address)
        with pytest.raises(ValueError):
            await loop.create_connection(Recorder)

    run(main())


def test_a_cancelled_connect_leaves_nothing_open(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        # A full backlog makes a connect that neither succeeds nor fails.
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            fillers.append(filler)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(loop.create_connection(Recorder, *listener.getsockname()), 0.05)
        for sock in (*fillers, listener):
            sock.close()
        if run.ours:
            await eventually(lambda: loop.stats()["streams"] == 0)  # type: ignore[attr-defined]

    run(main())


class Buffered(asyncio.BufferedProtocol):
    """Receives into one small buffer of its own."""

    def __init__(self, size: int = 1000) -> None:
        self.buffer = bytearray(size)
        self.data = bytearray()
        self.hints: list[int] = []
        self.eof = asyncio.Event()
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def get_buffer(self, sizehint: int) -> memoryview:
        self.hints.append(sizehint)
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        assert 0 < nbytes <= len(self.buffer)
        self.data += self.buffer[:nbytes]

    def eof_received(self) -> None:
        self.eof.set()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost.set()


def test_buffered_protocol(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        message = bytes(range(256)) * 1000
        transport, protocol = await loop.create_connection(Buffered, sock=one)
        sender, _ = await loop.create_connection(Recorder, sock=other)
        sender.write(message)
        sender.close()
        await protocol.lost.wait()
        assert protocol.eof.is_set()
        assert protocol.data == message
        assert transport.is_closing()

    run(main())


@pytest.mark.parametrize("answer", [b"", None, 5], ids=repr)
def test_a_bad_buffer_ends_the_connection(run: Runner, answer: Any) -> None:
    class Bad(Buffered):
        def get_buffer(self, sizehint: int) -> Any:
            return bytearray() if answer == b"" else answer

    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        _, protocol = await loop.create_connection(Bad, sock=one)
        other.send(b"data")
        await protocol.lost.wait()
        other.close()

    run(main())
    assert len(run.complaints.contexts) == 1
    run.complaints.contexts.clear()


def test_set_protocol_switches_the_receiver(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        transport, first = await loop.create_connection(Recorder, sock=one)
        other.send(b"for the first")
        await first.until(lambda: len(first.data) == 13)
        second = Buffered()
        transport.set_protocol(second)
        assert transport.get_protocol() is second
        other.send(b"for the second")
        while len(second.data) < 14:
            await asyncio.sleep(0.001)
        assert first.data == b"for the first"
        third = Recorder()
        transport.set_protocol(third)
        other.send(b"for the third")
        await third.until(lambda: len(third.data) == 13)
        transport.close()
        await third.until_call("lost")
        other.close()

    run(main())


def test_streams(run: Runner) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()

        async def talk(name: str) -> None:
            reader, writer = await asyncio.open_connection(host, port)
            for number in range(50):
                writer.write(f"{name} {number}\n".encode())
                await writer.drain()
                assert await reader.readline() == f"{name} {number}\n".upper().encode()
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()

        await asyncio.gather(*(talk(f"client {index}") for index in range(20)))
        server.close()
        await server.wait_closed()

    run(main())


def test_connect_accepted_socket(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        _, served = await loop.connect_accepted_socket(Echo, other)
        transport, client = await loop.create_connection(Recorder, sock=one)
        transport.write(b"hello")
        await client.until(lambda: client.data == b"hello")
        transport.close()
        await client.until_call("lost")
        assert isinstance(served, Echo)

    run(main())


def test_unix_sockets(run: Runner, tmp_path: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        path = str(tmp_path / "socket")
        server = await loop.create_unix_server(Echo, path)
        transport, client = await loop.create_unix_connection(Recorder, path)
        transport.write(b"through a file")
        await client.until(lambda: client.data == b"through a file")
        transport.close()
        await client.until_call("lost")
        server.close()
        await server.wait_closed()

    run(main())


def test_ipv6(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Echo, "::1", 0)
        address = server.sockets[0].getsockname()
        transport, client = await loop.create_connection(Recorder, *address[:2])
        assert transport.get_extra_info("peername")[:2] == address[:2]
        assert len(transport.get_extra_info("peername")) == 4
        transport.write(b"six")
        await client.until(lambda: client.data == b"six")
        transport.close()
        await client.until_call("lost")
        server.close()

    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6 loopback")
    run(main())


def test_sock_calls(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        listener = socket.socket()
        listener.setblocking(False)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client = socket.socket()
        client.setblocking(False)
        accepting = asyncio.ensure_future(loop.sock_accept(listener))
        await loop.sock_connect(client, listener.getsockname())
        served, _ = await accepting
        message = b"w" * 2_000_000
        sending = asyncio.ensure_future(loop.sock_sendall(client, message))
        received = bytearray()
        buffer = bytearray(65536)
        while len(received) < len(message):
            count = await loop.sock_recv_into(served, buffer)
            received += buffer[:count]
        await sending
        assert received == message
        client.close()
        assert await loop.sock_recv(served, 10) == b""
        served.close()
        listener.close()

    run(main())
