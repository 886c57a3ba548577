"""The end of a stream transport: the order of connection_lost, the socket until then, writes after
it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import socket
import ssl
import struct
import weakref
from pathlib import Path
from typing import Any

import pytest

from tests.loop.harness import Recorder, Runner, connected_pair, eventually, listen, rounds
from tests.loop.test_listening import filled_descriptors

Diary = list[Any]


class Noted(asyncio.Protocol):
    """Writes what happens to it into a diary that it shares with the test."""

    def __init__(self, diary: Diary) -> None:
        self.diary = diary

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: BaseException | None) -> None:
        self.diary.append(("lost", type(exc).__name__ if exc else None))


async def _connected(diary: Diary) -> tuple[asyncio.Transport, Noted, socket.socket]:
    loop = asyncio.get_running_loop()
    one, other = connected_pair()
    transport, protocol = await loop.create_connection(lambda: Noted(diary), sock=one)
    return transport, protocol, other


@pytest.mark.parametrize("ending", ["close", "abort", "write and close", "force"])
def test_connection_lost_has_its_place_in_the_order(run: Runner, ending: str) -> None:
    diary: Diary = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport: Any
        transport, _, other = await _connected(diary)
        loop.call_soon(diary.append, "before")
        if ending == "write and close":
            transport.write(b"x" * 100)
            transport.close()
        elif ending == "force":
            transport._force_close(ConnectionAbortedError())
        else:
            getattr(transport, ending)()
        diary.append("now")
        loop.call_soon(diary.append, "after")
        loop.call_soon(loop.call_soon, diary.append, "a turn later")
        for _ in range(3):
            await asyncio.sleep(0)
        other.close()

    run(main())
    reason = "ConnectionAbortedError" if ending == "force" else None
    assert diary == ["now", "before", ("lost", reason), "after", "a turn later"]


def test_a_full_queue_is_sent_before_connection_lost(run: Runner) -> None:
    diary: Diary = []

    async def main() -> int:
        transport, _, other = await _connected(diary)
        size = 8 << 20
        transport.write(b"x" * size)
        transport.close()
        for _ in range(5):
            await asyncio.sleep(0)
        assert diary == [], "the peer has not read, so some data is unsent"
        assert transport.get_write_buffer_size() > 0
        loop = asyncio.get_running_loop()
        got = 0
        while chunk := await loop.sock_recv(other, 1 << 20):
            got += len(chunk)
        other.close()
        assert got == size
        return got

    run(main())
    assert diary == [("lost", None)]


def test_a_fatal_error_schedules_connection_lost(run: Runner) -> None:
    """A reset is read in one turn; connection_lost comes in the next, after what was ready then."""
    diary: Diary = []

    async def main() -> None:
        transport, _, other = await _connected(diary)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()
        while not transport.is_closing():
            assert diary == []
            await asyncio.sleep(0)
        # is_closing() is seen in the turn of the failure or in the next, where the call is due.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    run(main())
    assert diary == [("lost", "ConnectionResetError")]


def test_data_written_in_the_turn_of_an_abort_arrives(run: Runner) -> None:
    """asyncio's write() sends at once, so an abort after it drops only what did not fit."""

    async def main() -> bytes:
        transport, _, other = await _connected([])
        await asyncio.sleep(0)
        transport.write(b"last ")
        transport.write(b"words")
        transport.abort()
        loop = asyncio.get_running_loop()
        got = b""
        while chunk := await loop.sock_recv(other, 100):
            got += chunk
        other.close()
        return got

    assert run(main()) == b"last words"


def test_the_socket_is_open_in_connection_lost(run: Runner) -> None:
    diary: Diary = []

    class Server(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.transport.close()
            self.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            sock = self.transport.get_extra_info("socket")
            diary.append(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
            diary.append(sock.fileno() >= 0)
            asyncio.get_running_loop().call_soon(self.later)

        def later(self) -> None:
            sock = self.transport.get_extra_info("socket")
            diary.append(sock.fileno())
            diary.append(self.transport.get_extra_info("peername")[0])
            diary.append(self.transport.get_extra_info("nothing", "default"))

    async def main() -> None:
        server, address = await listen(Server)
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"x")
        assert await reader.read() == b""
        while len(diary) < 5:
            await asyncio.sleep(0.01)
        writer.close()
        server.close()

    run(main())
    assert diary == [0, True, -1, "127.0.0.1", "default"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_peer_of_a_borrowed_socket_gets_the_end(run: Runner, when: str) -> None:
    """A socket that was asked for is closed by the Python object, and as promptly."""
    kept: list[Any] = []

    class Server(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            if when == "before":
                kept.append(transport.get_extra_info("socket"))
                assert transport.get_extra_info("socket") is kept[-1]
            transport.close()
            if when == "after":
                kept.append(transport.get_extra_info("socket"))

    async def main() -> None:
        server, address = await listen(Server)
        for _ in range(5):
            reader, writer = await asyncio.open_connection(*address)
            assert await reader.read() == b""
            writer.close()
        server.close()
        await eventually(lambda: [one.fileno() for one in kept] == [-1] * 5)
        if run.ours:
            stats = asyncio.get_running_loop().stats  # type: ignore[attr-defined]
            await eventually(lambda: stats()["streams"] == 0)

    run(main())


def test_a_transport_lets_go_of_its_protocol(run: Runner) -> None:
    async def main() -> None:
        transport: Any
        transport, protocol, other = await _connected([])
        alive = weakref.ref(protocol)
        transport.abort()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert transport.get_protocol() is None
        assert transport._loop is None
        assert transport._sock is None
        assert "closed" in repr(transport)
        del protocol
        gc.collect()
        assert alive() is None
        transport.close()
        transport.abort()
        other.close()

    run(main())


def test_writes_after_the_end_are_counted_and_warned_about(
    run: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        transport: Any
        transport, _, other = await _connected([])
        transport.close()
        assert transport._conn_lost == 1
        transport.write(b"")
        assert transport._conn_lost == 1
        with caplog.at_level(logging.WARNING, "asyncio"):
            for _ in range(4):
                transport.write(b"x")
            assert caplog.messages == []
            transport.write(b"x")
            transport.write(b"x")
            assert caplog.messages == ["socket.send() raised exception."] * 2
        assert transport._conn_lost == 7
        other.close()

    run(main())


def test_writing_is_refused_after_write_eof_and_wrong_types_always(run: Runner) -> None:
    async def main() -> None:
        transport, _, other = await _connected([])
        for wrong in ("text", 7, None, [b"x"]):
            with pytest.raises(TypeError):
                transport.write(wrong)  # type: ignore[arg-type]
        transport.write_eof()
        transport.write_eof()
        with pytest.raises(RuntimeError, match="after write_eof"):
            transport.write(b"x")
        with pytest.raises(RuntimeError, match="after write_eof"):
            transport.write(b"")
        with pytest.raises(RuntimeError, match="after write_eof"):
            transport.writelines([b"x"])
        assert await asyncio.get_running_loop().sock_recv(other, 10) == b""
        transport.abort()
        transport.write_eof()
        other.close()

    run(main())


def test_half_closing_a_dead_connection_raises_as_the_socket_does(run: Runner) -> None:
    async def main() -> None:
        transport, _, other = await _connected([])
        transport.pause_reading()
        await rounds()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()
        with pytest.raises(OSError) as caught:
            transport.write_eof()
        assert caught.value.errno == errno.ENOTCONN
        transport.abort()

    run(main())


def test_a_failed_attach_leaves_nothing_behind(run_ours: Runner) -> None:
    """A server that refuses its connection, and a loop that is closed, cost no stream."""

    class Server:
        def _attach(self, *_: Any) -> None:
            raise LookupError("not mine")

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        one, other = connected_pair()
        with pytest.raises(LookupError):
            loop._make_socket_transport(one, Recorder(), server=Server())
        assert loop.stats()["streams"] == 0
        assert one.fileno() >= 0, "the caller still owns the socket"
        transport, _ = await loop.create_connection(Recorder, sock=one)
        transport.abort()
        await asyncio.sleep(0)
        other.close()

    run_ours(main())


def test_a_new_transport_on_a_closing_ones_descriptor(run: Runner) -> None:
    """A descriptor whose transport is closing may be watched; one in use may not."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport, _, other = await _connected([])
        number = transport.get_extra_info("socket").fileno()
        with pytest.raises(RuntimeError, match="is used by transport"):
            loop.add_reader(number, print)
        transport.close()
        loop.add_reader(number, print)
        assert loop.remove_reader(number)
        await asyncio.sleep(0)
        other.close()

    run(main())


def test_an_unclosed_transport_is_warned_about(run: Runner) -> None:
    async def main() -> socket.socket:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        await loop.create_connection(Recorder, sock=one)
        await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0))
        closed, third = connected_pair()
        transport, recorder = await loop.create_connection(Recorder, sock=closed)
        transport.close()
        await recorder.until_call("lost")
        third.close()
        return other

    def lose_track() -> socket.socket:
        loop = run.factory()
        other = loop.run_until_complete(main())
        loop.close()
        del loop
        gc.collect()
        return other

    with pytest.warns(ResourceWarning, match="unclosed transport") as caught:
        other = lose_track()
    assert sum("unclosed transport" in str(one.message) for one in caught) == 2
    other.settimeout(10)
    assert other.recv(10) == b"", "an unreferenced transport is closed nevertheless"
    other.close()


@pytest.mark.parametrize("asked", ["in connection_lost", "after it"])
@pytest.mark.parametrize("reset", [True, False])
def test_the_addresses_outlive_the_connection(run: Runner, asked: str, reset: bool) -> None:
    """The program did not read them while the peer was connected."""
    told: list[Any] = []

    class Server(Recorder):
        def connection_lost(self, exc: BaseException | None) -> None:
            if asked == "in connection_lost":
                told.append(self.transport.get_extra_info("peername"))
                told.append(self.transport.get_extra_info("sockname"))
            super().connection_lost(exc)

    async def main() -> list[Any]:
        protocol = Server()
        server, address = await listen(lambda: protocol)
        peer = socket.create_connection(address)
        expected = [peer.getsockname(), peer.getpeername()]
        await protocol.until_call("made")
        if reset:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        await protocol.until_call("lost")
        if asked == "after it":
            await rounds()
            told.append(protocol.transport.get_extra_info("peername"))
            told.append(protocol.transport.get_extra_info("sockname"))
        server.close()
        await server.wait_closed()
        return expected

    assert run(main()) == told


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6, socket.AF_UNIX])
@pytest.mark.parametrize("none_left", [False, True])
def test_the_socket_of_a_connection_that_has_ended(
    run: Runner, tmp_path: Path, family: socket.AddressFamily, none_left: bool
) -> None:
    """The socket is closed and of the connection's kind, even if the program had not requested it before."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server_side: list[Recorder] = []

        def make() -> Recorder:
            server_side.append(Recorder())
            return server_side[-1]

        if family == socket.AF_UNIX:
            path = str(tmp_path / "socket")
            server = await loop.create_unix_server(make, path)
            transport, client = await loop.create_unix_connection(Recorder, path)
        else:
            host = "127.0.0.1" if family == socket.AF_INET else "::1"
            server = await loop.create_server(make, host, 0)
            address = server.sockets[0].getsockname()
            transport, client = await loop.create_connection(Recorder, *address[:2])
        transport.close()
        await client.until_call("lost")
        await server_side[0].until_call("lost")
        with filled_descriptors() if none_left else contextlib.nullcontext():
            for side in (client, server_side[0]):
                sock = side.transport.get_extra_info("socket")
                assert (sock.family, sock.type) == (family, socket.SOCK_STREAM)
                assert sock.fileno() == -1
        server.close()
        await server.wait_closed()

    run(main())


async def _lonely_writer(
    kind: str, certificate: tuple[Path, Path]
) -> tuple[asyncio.WriteTransport, list[BaseException | None], asyncio.Event]:
    """A transport whose peer has just gone, what `connection_lost` is called with, and when."""
    loop = asyncio.get_running_loop()
    ended: list[BaseException | None] = []
    has_ended = asyncio.Event()

    class Writer(asyncio.Protocol):
        def connection_lost(self, exc: BaseException | None) -> None:
            ended.append(exc)
            has_ended.set()

    if kind == "pipe":
        theirs, ours = os.pipe()
        transport, _ = await loop.connect_write_pipe(Writer, os.fdopen(ours, "wb", 0))
        os.close(theirs)
        return transport, ended, has_ended
    if kind == "unix":
        near, far = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            far = socket.create_connection(listening.getsockname())
            near, _ = listening.accept()
    near.setblocking(False)
    if kind == "tls":
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(*certificate)
        asking = ssl.create_default_context()
        asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE
        shaking = loop.run_in_executor(None, lambda: asking.wrap_socket(far, server_hostname="x"))
        transport, _ = await loop.connect_accepted_socket(Writer, near, ssl=serving)
        far = await shaking
    else:
        transport, _ = await loop.create_connection(Writer, sock=near)
    if kind != "unix":
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    far.close()
    return transport, ended, has_ended


@pytest.mark.parametrize("kind", ["tcp", "unix", "tls", "pipe"])
def test_a_transport_is_closing_as_soon_as_a_write_has_failed(
    run: Runner, certificate: tuple[Path, Path], kind: str
) -> None:
    async def main() -> None:
        transport, ended, has_ended = await _lonely_writer(kind, certificate)
        assert not transport.is_closing()
        # Alone in its turn, so that it is tried at once.
        transport.write(b"x")
        # asyncio's transports over TLS close a turn later.
        assert transport.is_closing() or (kind == "tls" and not run.ours)
        for _ in range(3):
            transport.write(b"more")
        transport.close()
        assert ended == []
        await has_ended.wait()
        assert len(ended) == 1
        assert isinstance(ended[0], (ConnectionResetError, BrokenPipeError))

    run(main())


@pytest.mark.parametrize("size", [1, 100_000])
@pytest.mark.parametrize("kind", ["tcp", "unix", "tls", "pipe"])
def test_nothing_waits_once_a_write_has_failed(
    run: Runner, certificate: tuple[Path, Path], kind: str, size: int
) -> None:
    async def main() -> None:
        transport, ended, has_ended = await _lonely_writer(kind, certificate)
        transport.write(bytes(size))
        assert transport.get_write_buffer_size() == 0
        transport.write(b"more")
        assert transport.get_write_buffer_size() == 0
        await has_ended.wait()
        assert isinstance(ended[0], (ConnectionResetError, BrokenPipeError))

    run(main())
