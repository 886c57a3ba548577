"""Files that are not regular: pipes, terminals, sockets, devices, /proc. None may block the loop."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import socket
import threading
import tty
from pathlib import Path
from typing import Any

import pytest

from tests.aio.harness import assert_closed, open_descriptors_of, soon
from tests.loop.harness import PATIENCE, Runner
from uringcore import aio


async def blocked(task: asyncio.Task[Any]) -> None:
    """Asserts that `task` is blocked, and that the loop is not."""
    await asyncio.sleep(0.02)
    assert not task.done()


def test_opening_a_fifo_waits_for_the_other_end(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)

    async def main() -> None:
        for first, second in (("rb", "wb"), ("wb", "rb")):
            waiting = asyncio.ensure_future(_open(path, first))
            await blocked(waiting)
            one = await soon(asyncio.ensure_future(_open(path, second)))
            other = await soon(waiting)
            reader, writer = (one, other) if second == "rb" else (other, one)
            await writer.write(b"data")  # type: ignore[attr-defined]
            await writer.close()  # type: ignore[attr-defined]
            assert await reader.read() == b"data"  # type: ignore[attr-defined]
            await reader.close()  # type: ignore[attr-defined]
        assert open_descriptors_of(path) == 0

    run(main())


async def _open(path: Any, mode: str, *arguments: Any) -> Any:
    return await aio.open(path, mode, *arguments)


def test_many_pending_fifo_opens_block_no_other_file(run_ours: Runner, tmp_path: Path) -> None:
    count = 60 if run_ours.name == "uring" else 3  # the other backend needs a thread for each
    paths = [tmp_path / str(index) for index in range(count)]
    for path in paths:
        os.mkfifo(path)

    async def main() -> None:
        for mode in ("rb", "wb"):
            waiting = [asyncio.ensure_future(_open(path, mode)) for path in paths]
            await asyncio.sleep(0.1)
            assert not any(task.done() for task in waiting)
            async with aio.open(tmp_path / "file", "w") as file:
                await file.write("written meanwhile")
            assert await aio.ospath.getsize(tmp_path / "file") == 17
            # Each open completes when its other end opens, with or without data.
            for number, (path, task) in enumerate(zip(paths, waiting, strict=True)):
                other = os.open(path, os.O_WRONLY if mode == "rb" else os.O_RDONLY | os.O_NONBLOCK)
                if mode == "rb" and number % 2:
                    os.write(other, b"said")
                    os.close(other)
                file = await soon(task)
                if mode == "rb" and not number % 2:
                    os.write(other, b"said")
                    os.close(other)
                if mode == "rb":
                    assert await file.read() == b"said"  # type: ignore[attr-defined]
                await file.close()  # type: ignore[attr-defined]
                if mode == "wb":
                    os.close(other)

    run_ours(main(), timeout=60)


def test_waiting_for_a_fifo_survives_a_stopped_loop(run_ours: Runner, tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    loop = run_ours.factory()
    try:
        waiting = loop.create_task(_open(path, "rb"))
        for _ in range(3):
            loop.run_until_complete(asyncio.sleep(0.02))
        assert not waiting.done()
        writer = threading.Thread(target=lambda: path.write_bytes(b"late"))
        writer.start()
        file = loop.run_until_complete(asyncio.wait_for(waiting, PATIENCE))
        assert loop.run_until_complete(file.read()) == b"late"
        writer.join()
        loop.run_until_complete(file.close())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


def test_reading_survives_a_stopped_loop(run_ours: Runner) -> None:
    reading, writing = os.pipe()
    loop = run_ours.factory()
    try:
        file = loop.run_until_complete(_open(reading, "rb"))
        waiting = loop.create_task(file.readline())
        for piece in (b"one ", b"two ", b"three\n"):
            loop.run_until_complete(asyncio.sleep(0.01))
            os.write(writing, piece)
        assert loop.run_until_complete(asyncio.wait_for(waiting, PATIENCE)) == b"one two three\n"
        loop.run_until_complete(file.close())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        os.close(writing)
        loop.close()


@pytest.mark.parametrize("mode", ["rb", "wb"])
def test_a_cancelled_open_of_a_fifo_ends(run_ours: Runner, tmp_path: Path, mode: str) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)

    async def main() -> None:
        waiting = asyncio.ensure_future(_open(path, mode))
        await blocked(waiting)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        if run_ours.name == "epoll":
            # A thread cannot be interrupted: it waits until the other end opens.
            other = os.open(path, os.O_RDWR)
            await asyncio.get_running_loop().shutdown_default_executor()
            os.close(other)
        # An open that is about to be interrupted counts as an end of the FIFO.
        await assert_closed(path)

    run_ours(main())


@pytest.mark.parametrize("blocking", [True, False])
def test_a_full_pipe_holds_only_its_writer_up(run: Runner, blocking: bool) -> None:
    async def main() -> None:
        reading, writing = os.pipe()
        os.set_blocking(writing, blocking)
        os.set_blocking(reading, blocking)
        data = os.urandom(1_000_000)
        async with aio.open(reading, "rb") as reader:
            writer = await aio.open(writing, "wb")
            writes = asyncio.ensure_future(writer.write(data))
            await blocked(writes)
            read = asyncio.ensure_future(reader.read())
            await soon(writes)
            await writer.close()
            assert await soon(read) == data

    run(main())


def test_a_cancelled_write_to_a_full_pipe_goes_out_later(run: Runner) -> None:
    async def main() -> None:
        reading, writing = os.pipe()
        data = os.urandom(200_000)
        async with aio.open(reading, "rb") as reader:
            writer = await aio.open(writing, "wb")
            writes = asyncio.ensure_future(writer.write(data))
            await blocked(writes)
            writes.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writes
            read = asyncio.ensure_future(reader.read())
            await writer.write(b"more")
            await writer.close()
            assert await soon(read) == data + b"more"

    run(main())


def test_a_terminal(run: Runner) -> None:
    async def main() -> None:
        ours, theirs = pty.openpty()
        tty.setraw(theirs)
        async with aio.open(theirs, "r", encoding="utf-8", closefd=False) as reader:
            assert await reader.isatty() is True
            line = asyncio.ensure_future(reader.readline())
            await blocked(line)
            os.write(ours, b"typed\n")
            assert await soon(line) == "typed\n"
        async with aio.open(theirs, "w", encoding="utf-8") as writer:
            assert writer.line_buffering is True
            await writer.write("shown\n")
            assert os.read(ours, 100) == b"shown\n"
        os.close(ours)

    run(main())


def test_a_socket(run: Runner) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        async with aio.open(ours.detach(), "rb") as file:
            line = asyncio.ensure_future(file.readline())
            await blocked(line)
            theirs.send(b"hello\nrest")
            assert await soon(line) == b"hello\n"
            theirs.close()
            assert await file.read() == b"rest"

    run(main())


def test_devices(run: Runner) -> None:
    async def main() -> None:
        async with aio.open("/dev/zero", "rb") as file:
            assert await file.read(1_000_000) == bytes(1_000_000)
        async with aio.open("/dev/null", "r+b", 0) as file:
            assert await file.read() == b""
            assert await file.write(b"gone") == 4
        async with aio.open("/dev/urandom", "rb", 0) as file:
            assert len(await file.read(64)) == 64
        async with aio.open("/dev/full", "wb") as file:
            await file.write(b"x")
            with pytest.raises(OSError, match="No space left"):
                await file.flush()
            with pytest.raises(OSError, match="No space left"):
                await file.close()

    run(main())


def test_files_without_a_size(run: Runner) -> None:
    async def main() -> None:
        for path in (
            "/proc/self/status",
            "/proc/cpuinfo",
            "/sys/kernel/mm/transparent_hugepage/enabled",
        ):
            if not os.path.exists(path):
                continue
            async with aio.open(path) as file:
                text = await file.read()
                assert text.endswith("\n")
                await file.seek(0)
                assert (await file.readline()) == text[: text.index("\n") + 1]
        async with aio.open("/proc/self/maps") as file:
            assert [line async for line in file]

    run(main())


def test_updating_needs_a_position(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)

    async def main() -> None:
        for mode in ("r+b", "r+"):
            with pytest.raises(io.UnsupportedOperation, match="not seekable"):
                open(path, mode)  # noqa: SIM115
            with pytest.raises(io.UnsupportedOperation, match="not seekable"):
                await aio.open(path, mode)
        assert open_descriptors_of(path) == 0

    run(main())


def test_a_child_goes_on_where_we_stopped(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"header\nbody\n")

    async def main() -> None:
        async with aio.open(tmp_path / "out", "wb") as out:
            await out.write(b"ours, ")
            await out.flush()
            async with aio.open(path, "rb", 0) as file:
                assert await file.readline() == b"header\n"
                child = await asyncio.create_subprocess_exec("cat", stdin=file, stdout=out)
                assert await child.wait() == 0
            await out.write(b"ours again")
        assert (tmp_path / "out").read_bytes() == b"ours, body\nours again"

    run(main())


def test_seeking_inside_of_the_buffer_lets_others_run(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"line\n" * 1000)

    async def main() -> None:
        async with aio.open(path, "rb") as file:

            async def work() -> None:
                for index in range(20_000):
                    await file.seek(5 * (index % 1000))
                    assert await file.readline() == b"line\n"

            task = asyncio.ensure_future(work())
            turns = 0
            while not task.done():
                turns += 1
                await asyncio.sleep(0)
            assert turns > 5

    run(main())
