"""Programs' calls on a transport: from another thread, with wrong arguments, on its attributes."""

from __future__ import annotations

import array
import asyncio
import ctypes
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.loop.harness import Complaints, Recorder, Runner, connected_pair, rounds, until_asleep


async def _connected() -> tuple[Any, Recorder, socket.socket]:
    loop = asyncio.get_running_loop()
    one, other = connected_pair()
    transport, protocol = await loop.create_connection(Recorder, sock=one)
    return transport, protocol, other


async def _in_a_thread(work: Callable[[], Any]) -> Any:
    """Run `work` in a thread while the loop has nothing to do but wait for it."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def main() -> None:
        if hasattr(loop, "stats"):
            until_asleep(loop)
        try:
            result: Any = work()
        except BaseException as exc:
            result = exc
        loop.call_soon_threadsafe(done.set_result, result)

    thread = threading.Thread(target=main)
    thread.start()
    result = await done
    thread.join()
    return result


@pytest.mark.parametrize(
    "call", ["close", "abort", "pause_reading", "write_eof", "write", "set_write_buffer_limits"]
)
def test_a_command_of_another_thread_changes_nothing(run_ours: Runner, call: str) -> None:
    """The command is refused, and has its effect when called on the loop's thread."""

    async def main() -> None:
        transport, protocol, other = await _connected()
        arguments = (b"x",) if call == "write" else ()
        refusal = await _in_a_thread(lambda: getattr(transport, call)(*arguments))
        assert isinstance(refusal, RuntimeError)
        assert "call_soon_threadsafe" in str(refusal)
        assert not transport.is_closing()
        assert transport.is_reading()
        loop = asyncio.get_running_loop()
        getattr(transport, call)(*arguments)
        if call in ("close", "abort"):
            await protocol.until_call("lost")
            assert await loop.sock_recv(other, 10) == b""
        elif call == "pause_reading":
            other.send(b"held")
            await rounds()
            assert protocol.data == b""
            assert isinstance(await _in_a_thread(transport.resume_reading), RuntimeError)
            transport.resume_reading()
            await protocol.until(lambda: protocol.data == b"held")
        elif call == "write_eof":
            assert await loop.sock_recv(other, 10) == b""
        elif call == "write":
            assert await loop.sock_recv(other, 10) == b"x"
        transport.abort()
        other.close()

    run_ours(main())


def test_questions_of_another_thread_are_answered(run: Runner) -> None:
    async def main() -> None:
        transport, _, other = await _connected()
        transport.set_write_buffer_limits(high=1000, low=10)
        questions: dict[str, Callable[[], Any]] = {
            "repr": lambda: repr(transport).startswith("<"),
            "size": transport.get_write_buffer_size,
            "limits": transport.get_write_buffer_limits,
            "closing": transport.is_closing,
            "reading": transport.is_reading,
            "peer": lambda: transport.get_extra_info("peername")[0],
            "socket": lambda: transport.get_extra_info("socket").fileno() >= 0,
            "protocol": lambda: type(transport.get_protocol()),
        }
        answers = await _in_a_thread(lambda: {name: ask() for name, ask in questions.items()})
        assert answers == {
            "repr": True,
            "size": 0,
            "limits": (10, 1000),
            "closing": False,
            "reading": True,
            "peer": "127.0.0.1",
            "socket": True,
            "protocol": Recorder,
        }
        transport.abort()
        other.close()

    run(main())


def test_attributes_that_programs_read(run: Runner) -> None:
    async def main() -> None:
        transport, protocol, other = await _connected()
        loop = asyncio.get_running_loop()
        assert transport._loop is loop
        assert transport._protocol is protocol
        assert transport._sock.fileno() == transport._sock_fd
        assert isinstance(transport._sock, socket.socket)
        assert (transport._conn_lost, transport._closing, transport._paused) == (0, False, False)
        assert (transport._eof, transport._server) == (False, None)
        assert (transport._low_water, transport._high_water) == (16384, 65536)
        assert transport.max_size == 256 * 1024
        assert set(transport._extra) == {"socket", "sockname", "peername"}
        assert transport._extra["socket"] is transport.get_extra_info("socket")
        transport._extra["note"] = 7
        assert transport.get_extra_info("note") == 7
        transport.pause_reading()
        transport.pause_reading()
        assert transport._paused
        assert not transport.is_reading()
        transport.resume_reading()
        transport.resume_reading()
        assert transport.is_reading()
        transport.abort()
        assert (transport._conn_lost, transport._closing) == (1, True)
        transport.pause_reading()
        assert not transport._paused
        other.close()

    run(main())


def test_limits_that_make_no_sense(run: Runner) -> None:
    async def main() -> None:
        transport, _, other = await _connected()
        for wrong in ({"high": 1, "low": 2}, {"low": -1}, {"high": -1}):
            with pytest.raises(ValueError, match=r"high \(.*\) must be >= low \(.*\) must be >= 0"):
                transport.set_write_buffer_limits(**wrong)
        with pytest.raises(TypeError):
            transport.set_write_buffer_limits(high="1")
        assert transport.get_write_buffer_limits() == (16384, 65536)
        for given, limits in (
            ({"high": 0}, (0, 0)),
            ({"low": 100}, (100, 400)),
            ({"high": 101}, (25, 101)),
            ({}, (16384, 65536)),
        ):
            transport.set_write_buffer_limits(**given)
            assert transport.get_write_buffer_limits() == limits
        transport.abort()
        other.close()

    run(main())


def test_sockets_that_cannot_carry_a_stream(run: Runner, tmp_path: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagram.setblocking(False)
        with pytest.raises(ValueError, match="A Stream Socket was expected"):
            await loop.create_connection(Recorder, sock=datagram)
        datagram.close()
        closed = socket.socket()
        closed.setblocking(False)
        closed.close()
        with pytest.raises(Exception) as caught:
            await loop.create_connection(Recorder, sock=closed)
        assert isinstance(caught.value, (ValueError, OSError))
        stream = socket.socket()
        with pytest.raises(ValueError, match="[Ss]ocket was expected"):
            await loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=stream)
        stream.close()

    run(main())


def test_a_blocking_socket_becomes_a_transport(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        one.setblocking(True)
        transport, protocol = await loop.create_connection(Recorder, sock=one)
        assert one.gettimeout() == 0
        other.send(b"hello")
        await protocol.until(lambda: protocol.data == b"hello")
        transport.abort()
        other.close()

    run(main())


@pytest.mark.parametrize("act", ["pause", "switch", "close"])
def test_the_rest_of_a_chunk_follows_the_protocols_wish(run: Runner, act: str) -> None:
    """A BufferedProtocol with a small buffer gets a large chunk in pieces, and may stop in between."""

    class Small(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.buffer = bytearray(4)
            self.got = b""
            self.later = Recorder()

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport: asyncio.Transport = transport  # type: ignore[assignment]

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.got += bytes(self.buffer[:nbytes])
            if act == "pause":
                self.transport.pause_reading()
            elif act == "switch":
                self.transport.set_protocol(self.later)
            else:
                self.transport.close()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        protocol = Small()
        transport, _ = await loop.create_connection(lambda: protocol, sock=one)
        other.send(b"0123456789abcdef")
        while not protocol.got:
            await asyncio.sleep(0.001)
        await rounds()
        assert protocol.got == b"0123"
        if act == "pause":
            for length in (8, 12, 16):
                transport.resume_reading()
                while len(protocol.got) < length:
                    await asyncio.sleep(0.001)
            assert protocol.got == b"0123456789abcdef"
        elif act == "switch":
            await protocol.later.until(lambda: len(protocol.later.data) == 12)
            assert protocol.later.data == b"456789abcdef"
        transport.abort()
        other.close()

    run(main())


@pytest.mark.parametrize(
    "buffer",
    [
        ctypes.create_string_buffer(8),
        (ctypes.c_ubyte * 8)(),
        array.array("b", bytes(8)),
        array.array("I", [0] * 4),
        memoryview(bytearray(8)).cast("H"),
    ],
    ids=["char", "ubyte", "array-b", "array-I", "memoryview-H"],
)
def test_any_writable_buffer_receives(run: Runner, buffer: Any) -> None:
    class Protocol(asyncio.BufferedProtocol):
        count = 0

        def get_buffer(self, sizehint: int) -> Any:
            return buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.count += nbytes

    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        transport, protocol = await loop.create_connection(Protocol, sock=one)
        other.send(b"abcd")
        while protocol.count < 4:
            await asyncio.sleep(0.001)
        assert bytes(buffer).startswith(b"abcd")
        transport.abort()
        other.close()

    run(main())


@pytest.mark.parametrize("junk", [None, 7, b"read only", bytearray()], ids=repr)
def test_get_buffer_that_returns_junk_ends_the_connection(run: Runner, junk: Any) -> None:
    class Protocol(asyncio.BufferedProtocol):
        lost: BaseException | None = None

        def get_buffer(self, sizehint: int) -> Any:
            return junk

        def buffer_updated(self, nbytes: int) -> None:
            raise AssertionError("there is no buffer")

        def connection_lost(self, exc: BaseException | None) -> None:
            self.lost = exc

    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        _, protocol = await loop.create_connection(Protocol, sock=one)
        other.send(b"abcd")
        while protocol.lost is None:
            await asyncio.sleep(0.001)
        expected = RuntimeError if junk == bytearray() else TypeError
        # asyncio finds no length, or no room; we find no buffer: a TypeError or its relative.
        assert isinstance(protocol.lost, (expected, BufferError))
        other.close()

    run(main())
    assert len(run.complaints.contexts) == 1
    run.complaints.contexts.clear()


def test_bytes_with_a_finaliser_may_reach_back(run: Runner) -> None:
    sizes: list[int] = []

    async def main() -> None:
        transport, _, other = await _connected()

        class Odd(bytes):
            def __del__(self) -> None:
                sizes.append(transport.get_write_buffer_size())

        transport.write(Odd(b"x" * 10_000))
        transport.abort()
        await rounds()
        other.close()

    run(main())
    assert len(sizes) == 1


def test_writelines_takes_what_its_python_takes(run: Runner) -> None:
    async def main() -> None:
        transport, _, other = await _connected()
        transport.writelines([b"a", bytearray(b"b"), memoryview(b"c"), array.array("B", b"d")])
        transport.writelines([])
        transport.writelines([b"", b"e"])
        loop = asyncio.get_running_loop()
        got = b""
        while len(got) < 5:
            got += await loop.sock_recv(other, 10)
        assert got == b"abcde"
        with pytest.raises(TypeError):
            transport.writelines([b"x", "text"])
        with pytest.raises(TypeError):
            transport.write(array.array("B", b"d"))
        transport.abort()
        other.close()

    run(main())


def test_mutable_buffers_may_change_after_the_write(run: Runner) -> None:
    async def main() -> None:
        transport, _, other = await _connected()
        for mutable in (bytearray(b"abcd" * 4000), memoryview(bytearray(b"efgh" * 4000))):
            expected = bytes(mutable)
            transport.write(mutable)
            mutable[:] = b"----" * 4000
            loop = asyncio.get_running_loop()
            got = b""
            while len(got) < len(expected):
                got += await loop.sock_recv(other, 1 << 16)
            assert got == expected
        transport.abort()
        other.close()

    run(main())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="datagram transports pause since 3.11")
def test_a_datagram_transport_pauses(run: Runner) -> None:
    class Protocol(asyncio.DatagramProtocol):
        def __init__(self) -> None:
            self.got: list[bytes] = []

        def datagram_received(self, data: bytes, addr: Any) -> None:
            self.got.append(data)
            if data == b"pause":
                self.transport.pause_reading()

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport: Any = transport

    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_datagram_endpoint(
            Protocol, local_addr=("127.0.0.1", 0)
        )
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            to = transport.get_extra_info("sockname")
            for data in (b"1", b"pause", b"2", b"3"):
                sender.sendto(data, to)
            while b"pause" not in protocol.got:
                await asyncio.sleep(0.001)
            await rounds()
            sender.sendto(b"4", to)
            await rounds()
            assert protocol.got == [b"1", b"pause"]
            assert not protocol.transport.is_reading()
            protocol.transport.resume_reading()
            while len(protocol.got) < 5:
                await asyncio.sleep(0.001)
        assert protocol.got == [b"1", b"pause", b"2", b"3", b"4"]
        transport.close()

    run(main())


def test_a_callback_of_every_kind_that_raises(run: Runner) -> None:
    """The exception handler gets each error, and no error ends another connection."""

    class Raising(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            raise LookupError("made")

        def pause_writing(self) -> None:
            raise LookupError("pause")

        def resume_writing(self) -> None:
            super().resume_writing()
            raise LookupError("resume")

        def connection_lost(self, exc: BaseException | None) -> None:
            super().connection_lost(exc)
            raise LookupError("lost")

    complaints = Complaints()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(complaints)
        one, other = connected_pair()
        protocol: Any
        transport, protocol = await loop.create_connection(Raising, sock=one)
        transport.set_write_buffer_limits(high=0)
        size = 16 << 20
        transport.write(b"x" * size)
        got = 0
        while got < size:
            got += len(await loop.sock_recv(other, 1 << 20))
        await protocol.until_call("resume")
        transport.close()
        await protocol.until_call("lost")
        await asyncio.sleep(0)
        other.close()

    run(main())
    assert [str(one["exception"]) for one in complaints.contexts] == [
        "made",
        "pause",
        "resume",
        "lost",
    ]
