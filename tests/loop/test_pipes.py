"""connect_read_pipe and connect_write_pipe on everything that they take: pipes, FIFOs, sockets, ttys."""

from __future__ import annotations

import asyncio
import errno
import gc
import io
import os
import pty
import socket
import threading
import tty
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.loop.harness import Recorder, Runner, open_descriptors, python_version


class Writer(asyncio.BaseProtocol):
    """A protocol for the writing end that records its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.lost: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.calls.append("made")

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: BaseException | None) -> None:
        self.calls.append("lost")
        self.lost.set_result(exc)


def pipe_ends() -> tuple[io.FileIO, io.FileIO]:
    reader, writer = os.pipe()
    return io.FileIO(reader, "r"), io.FileIO(writer, "w")


def socket_ends() -> tuple[Any, Any]:
    return socket.socketpair()


def terminal_ends() -> tuple[io.FileIO, io.FileIO]:
    master, slave = pty.openpty()
    tty.setraw(slave)
    return io.FileIO(master, "r"), io.FileIO(slave, "w")


ENDS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "pipe": pipe_ends,
    "socket": socket_ends,
    "terminal": terminal_ends,
}


@pytest.mark.parametrize("kind", ENDS)
def test_both_ends(run: Runner, kind: str) -> None:
    payload = os.urandom(300_000)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        before = open_descriptors()
        reading_end, writing_end = ENDS[kind]()
        reading, reader = await loop.connect_read_pipe(Recorder, reading_end)
        writing, writer = await loop.connect_write_pipe(Writer, writing_end)
        assert reader.calls == ["made"]
        assert reader.transport is reading
        assert isinstance(reading, asyncio.ReadTransport)
        assert isinstance(writing, asyncio.WriteTransport)
        assert reading.get_extra_info("pipe") is reading_end
        assert writing.get_extra_info("pipe") is writing_end
        assert reading.get_extra_info("nothing", "default") == "default"
        assert os.get_blocking(reading_end.fileno()) is False
        assert reading.get_protocol() is reader
        if python_version() >= (3, 11):  # 3.10's pipes do not have it
            assert reading.is_reading()
        writing.write(payload)
        assert writing.can_write_eof()
        writing.write_eof()
        assert writing.is_closing()
        assert await writer.lost is None
        await reader.until_call("lost")
        assert reader.data == payload
        # A terminal whose other side is closed returns EIO instead of an end of file.
        if kind == "terminal":
            assert reader.calls == ["made", "data", "lost"]
            assert isinstance(reader.lost_with, OSError)
            assert reader.lost_with.errno == errno.EIO
        else:
            assert reader.calls == ["made", "data", "eof", "lost"]
            assert reader.lost_with is None
        del reading_end, writing_end, reading, writing, reader, writer
        gc.collect()
        await asyncio.sleep(0)
        assert open_descriptors() == before

    run(main())


def test_fifos(run: Runner, tmp_path: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        path = tmp_path / "fifo"
        os.mkfifo(path)
        source = io.FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "r")
        # The other end is not open yet, which is an end of file for a FIFO.
        sink = io.FileIO(path, "w")
        _, reader = await loop.connect_read_pipe(Recorder, source)
        writing, writer = await loop.connect_write_pipe(Writer, sink)
        writing.writelines([b"one ", b"two ", b"three"])
        await reader.until(lambda: reader.data == b"one two three")
        writing.close()
        await reader.until_call("lost")
        assert reader.calls == ["made", "data", "eof", "lost"]
        assert await writer.lost is None

    run(main())


def test_character_devices(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        master, slave = terminal_ends()
        transport, protocol = await loop.connect_write_pipe(Writer, slave)
        transport.write(b"x")
        transport.close()
        assert await protocol.lost is None
        assert master.read(10) == b"x"
        master.close()
        # A file that cannot be polled: epoll rejects it, and so does our loop, with an equal error.
        with io.FileIO("/dev/null") as null, pytest.raises(PermissionError):
            loop.add_reader(null, print)

    run(main())


def test_an_object_other_than_a_pipe_is_refused(run: Runner, tmp_path: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        before = open_descriptors()
        with (tmp_path / "file").open("wb+") as plain:
            with pytest.raises(ValueError, match="Pipe transport is for pipes/sockets only"):
                await loop.connect_read_pipe(Recorder, plain)
            with pytest.raises(ValueError, match="pipes, sockets and character devices"):
                await loop.connect_write_pipe(Writer, plain)
            assert not plain.closed
        assert open_descriptors() == before

    run(main())


def test_a_reader_that_pauses_takes_no_byte(run: Runner) -> None:
    """Data that arrives during the pause stays in the pipe, for other readers."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        reading_end, writing_end = pipe_ends()
        reading, reader = await loop.connect_read_pipe(Recorder, reading_end)
        writing_end.write(b"first")
        await reader.until(lambda: reader.data == b"first")
        reading.pause_reading()
        reading.pause_reading()
        if python_version() >= (3, 11):
            assert not reading.is_reading()
        writing_end.write(b"second")
        for _ in range(5):
            await asyncio.sleep(0)
        assert reader.data == b"first"
        assert os.read(reading_end.fileno(), 3) == b"sec"
        reading.resume_reading()
        reading.resume_reading()
        await reader.until(lambda: reader.data == b"firstond")
        reading.close()
        await reader.until_call("lost")
        assert reader.calls == ["made", "data", "lost"]
        assert reading_end.closed
        writing_end.close()

    run(main())


@pytest.mark.skipif(
    python_version() < (3, 11), reason="Python 3.10 starts reading nevertheless, on every loop"
)
def test_a_reader_paused_in_connection_made_starts_paused(run: Runner) -> None:
    class Patient(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.transport.pause_reading()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        reading_end, writing_end = pipe_ends()
        writing_end.write(b"data")
        reading, reader = await loop.connect_read_pipe(Patient, reading_end)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not reader.data
        reading.resume_reading()
        await reader.until(lambda: reader.data == b"data")
        writing_end.close()
        await reader.until_call("lost")

    run(main())


def test_flow_control(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        reading_end, writing_end = pipe_ends()
        writing, writer = await loop.connect_write_pipe(Writer, writing_end)
        writing.set_write_buffer_limits(high=100_000, low=20_000)
        payload = os.urandom(1_000_000)
        writing.write(payload)
        assert writer.calls == ["made", "pause"]
        assert writing.get_write_buffer_size() >= 900_000
        read = bytearray()
        reading, reader = await loop.connect_read_pipe(Recorder, reading_end)
        await reader.until(lambda: len(reader.data) == len(payload))
        read += reader.data
        assert read == payload
        while "resume" not in writer.calls:
            await asyncio.sleep(0)
        assert writing.get_write_buffer_size() == 0
        assert writer.calls == ["made", "pause", "resume"]
        writing.close()
        assert await writer.lost is None
        await reader.until_call("lost")
        assert reading.is_closing()

    run(main())


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_the_reader_goes_away(run: Runner, kind: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        # Idle: the poll on the writing end reports the close.
        reading_end, writing_end = ENDS[kind]()
        writing, writer = await loop.connect_write_pipe(Writer, writing_end)
        reading_end.close()
        assert await writer.lost is None
        for _ in range(6):  # lost quietly, as asyncio does
            writing.write(b"gone")
        # The pipe ends with bytes waiting: they are lost, and the loop reports it.
        reading_end, writing_end = ENDS[kind]()
        writing, writer = await loop.connect_write_pipe(Writer, writing_end)
        writing.write(bytes(2_000_000))
        assert writing.get_write_buffer_size() > 0
        reading_end.close()
        assert isinstance(await writer.lost, (BrokenPipeError, ConnectionResetError))
        assert writing.get_write_buffer_size() == 0

    run(main())


def test_a_write_into_a_broken_pipe(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        reading_end, writing_end = pipe_ends()
        writing, writer = await loop.connect_write_pipe(Writer, writing_end)
        reading_end.close()
        writing.write(b"into the void")
        assert isinstance(await writer.lost, (BrokenPipeError, type(None)))
        assert writer.calls == ["made", "lost"]

    run(main())


def test_abort_and_close_with_bytes_waiting(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        reading_end, writing_end = pipe_ends()
        writing, writer = await loop.connect_write_pipe(Writer, writing_end)
        writing.write(bytes(1_000_000))
        writing.abort()
        assert await writer.lost is None
        assert len(reading_end.readall() or b"") <= 65536

        reading_end, writing_end = pipe_ends()
        writing, writer = await loop.connect_write_pipe(Writer, writing_end)
        writing.write(bytes(1_000_000))
        writing.close()
        assert not writer.lost.done()
        os.set_blocking(reading_end.fileno(), False)
        total = 0
        while not writer.lost.done():
            await asyncio.sleep(0)
            total += len(reading_end.read(65536) or b"")
        total += len(reading_end.readall() or b"")
        assert total == 1_000_000
        assert writer.lost.result() is None

    run(main())


def test_a_protocol_that_raises(run: Runner) -> None:
    class Raises(Recorder):
        def data_received(self, data: bytes) -> None:
            raise ZeroDivisionError

    async def main() -> None:
        loop = asyncio.get_running_loop()
        reading_end, writing_end = pipe_ends()
        _, reader = await loop.connect_read_pipe(Raises, reading_end)
        writing_end.write(b"data")
        while not run.complaints.contexts:
            await asyncio.sleep(0)
        # asyncio reports it and continues to read.
        writing_end.close()
        await reader.until_call("lost")

    run(main())
    run.expect(ZeroDivisionError)


def test_streams_over_pipes(run: Runner) -> None:
    """The way programs read their standard input and write their standard output."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        reading_end, writing_end = pipe_ends()
        stream = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), reading_end)
        transport, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, writing_end
        )
        writer = asyncio.StreamWriter(transport, protocol, None, loop)  # type: ignore[arg-type]
        received = asyncio.ensure_future(stream.read())
        for number in range(1000):
            writer.write(b"%d\n" % number * 100)
            await writer.drain()
        writer.close()
        lines = (await received).splitlines()
        assert lines == [b"%d" % number for number in range(1000) for _ in range(100)]

    run(main())


def test_dropped_transports_warn_and_close(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        reading_end, writing_end = pipe_ends()
        reading, _ = await loop.connect_read_pipe(Recorder, reading_end)
        writing, _ = await loop.connect_write_pipe(Writer, writing_end)
        for transport, end in ((reading, reading_end), (writing, writing_end)):
            with pytest.warns(ResourceWarning, match="unclosed transport"):
                transport.__del__()  # type: ignore[attr-defined]
            assert end.closed
            transport._pipe = None  # type: ignore[attr-defined]
        loop.remove_reader(transport._fileno)  # type: ignore[attr-defined]
        loop.remove_reader(reading._fileno)  # type: ignore[attr-defined]

    run(main())


def test_bytes_from_another_thread(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        reading_end, writing_end = pipe_ends()
        _, reader = await loop.connect_read_pipe(Recorder, reading_end)

        def produce() -> None:
            for _ in range(1000):
                writing_end.write(b"x" * 777)
            writing_end.close()

        thread = threading.Thread(target=produce)
        thread.start()
        await reader.until_call("lost")
        thread.join()
        assert reader.data == b"x" * 777_000

    run(main())
