"""State after a cancelled call: no data lost, no data twice, no call blocked."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.aio.harness import assert_closed, soon
from tests.loop.harness import Runner
from uringcore import aio


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A FIFO, and a descriptor that keeps both its ends open."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    number = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    yield path, number
    os.close(number)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_cancelled_read_of_an_empty_pipe_ends_and_takes_nothing(
    run: Runner, fifo: tuple[Path, int]
) -> None:
    path, number = fifo

    async def main() -> None:
        for buffering in (-1, 0):
            async with aio.open(path, "rb", buffering) as file:
                for name, *arguments in (
                    ("read", 5),
                    ("readline",),
                    ("read",),
                    ("readinto", bytearray(3)),
                ):
                    task = asyncio.ensure_future(getattr(file, name)(*arguments))
                    await asyncio.sleep(0.01)
                    assert not task.done()
                    await cancelled(task)
                os.write(number, b"hello\n")
                assert await soon(asyncio.ensure_future(file.readline())) == b"hello\n"

    run(main())


def test_data_of_a_cancelled_read_comes_first(run: Runner, fifo: tuple[Path, int]) -> None:
    path, number = fifo

    async def main() -> None:
        async with aio.open(path, "rb") as file:
            for call in (lambda: file.read(100), file.readline, file.read):
                task = asyncio.ensure_future(call())
                os.write(number, b"abc")
                await asyncio.sleep(0.02)
                os.write(number, b"def")
                await asyncio.sleep(0.02)
                await cancelled(task)
                os.write(number, b"ghi\n")
                assert await soon(asyncio.ensure_future(file.read(10))) == b"abcdefghi\n"
        async with aio.open(path, encoding="utf-8") as text:
            for call in (lambda: text.read(100), text.readline):
                task = asyncio.ensure_future(call())
                os.write(number, b"ab\xc3")
                await asyncio.sleep(0.02)
                os.write(number, b"\xa9d")
                await asyncio.sleep(0.02)
                await cancelled(task)
                os.write(number, b"e\n")
                assert await soon(asyncio.ensure_future(text.readline())) == "ab\xe9de\n"

    run(main())


def test_a_line_of_a_pipe_without_a_buffer_after_a_cancelled_read(
    run: Runner, fifo: tuple[Path, int]
) -> None:
    path, number = fifo

    async def main() -> None:
        async with aio.open(path, "rb", 0) as file:
            task = asyncio.ensure_future(file.read(100))
            await turns(5)
            # On the ring the kernel has already read the bytes when the cancel arrives.
            os.write(number, b"one\ntwo\nthree")
            await cancelled(task)
            assert await soon(asyncio.ensure_future(file.readline())) == b"one\n"
            assert await soon(asyncio.ensure_future(file.readline())) == b"two\n"
            assert await soon(asyncio.ensure_future(file.read(5))) == b"three"

    run(main())


@pytest.mark.parametrize("seed", range(4))
def test_reads_cancelled_at_random_lose_no_byte(
    run: Runner, fifo: tuple[Path, int], seed: int
) -> None:
    path, number = fifo
    rng = random.Random(seed)
    sent = bytes(rng.randrange(256) for _ in range(20_000))

    async def send() -> None:
        at = 0
        while at < len(sent):
            size = rng.randrange(1, 400)
            os.write(number, sent[at : at + size])
            at += size
            await turns(rng.randrange(4))
            if at > 10_000:
                # At most the capacity of the pipe.
                await asyncio.sleep(0.001)

    async def main() -> None:
        buffering = rng.choice((-1, 0, 100))
        got = b""
        async with aio.open(path, "rb", buffering) as file:
            sender = asyncio.ensure_future(send())
            while len(got) < len(sent):
                size = min(rng.choice((1, 50, 3000)), len(sent) - len(got))
                task = asyncio.ensure_future(file.read(size))
                await turns(rng.randrange(6))
                if rng.random() < 0.5:
                    task.cancel()
                try:
                    got += await soon(task)  # type: ignore[operator]
                except asyncio.CancelledError:
                    continue
            await sender
        assert got == sent

    run(main())


@pytest.mark.parametrize("seed", range(4))
def test_cancelling_leaves_position_and_buffer_of_a_regular_file(
    run: Runner, tmp_path: Path, seed: int
) -> None:
    path = tmp_path / "file"
    rng = random.Random(seed)
    content = rng.randbytes(3_000_000)
    path.write_bytes(content)

    async def main() -> None:
        for buffering in (-1, 0):
            at = 0
            async with aio.open(path, "rb", buffering) as file:
                # Large enough to run on the kernel's threads, or on the executor's.
                for _ in range(60):
                    size = rng.choice((10, 5000, 400_000, 1_000_000))
                    if rng.random() < 0.3:
                        at = rng.randrange(len(content))
                        await file.seek(at)
                    task = asyncio.ensure_future(file.read(size))
                    await turns(rng.randrange(4))
                    task.cancel()
                    try:
                        data = await task
                    except asyncio.CancelledError:
                        pass
                    else:
                        assert data == content[at : at + len(data)]
                        assert len(data) == min(size, len(content) - at) or buffering == 0
                        at += len(data)
                    assert await file.tell() == at

    run(main())


@pytest.mark.parametrize("seed", range(4))
def test_a_cancelled_write_is_whole_or_nothing(run: Runner, tmp_path: Path, seed: int) -> None:
    path = tmp_path / "file"
    rng = random.Random(seed)

    async def main() -> None:
        sure: list[bytes] = []
        async with aio.open(path, "wb", rng.choice((-1, 64))) as file:
            for index in range(150):
                piece = b"%05d" % index * rng.choice((1, 10, 5000, 40_000))
                task = asyncio.ensure_future(file.write(piece))
                await turns(rng.randrange(3))
                if rng.random() < 0.4:
                    task.cancel()
                try:
                    assert await task == len(piece)
                    sure.append(piece)
                except asyncio.CancelledError:
                    continue
        written = path.read_bytes()
        # All acknowledged writes are present, in order; each other write is whole or missing.
        at = 0
        for index in range(150):
            mark = b"%05d" % index
            end = at
            while written[end : end + 5] == mark:
                end += 5
            assert (end - at) // 5 in (0, 1, 10, 5000, 40_000)
            if any(piece.startswith(mark) for piece in sure):
                assert end > at
            at = end
        assert at == len(written)

    run(main())


def test_a_cancelled_open_leaves_no_descriptor(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")

    async def open_it() -> None:
        file = await aio.open(path)
        await file.close()

    async def main() -> None:
        for count in range(200):
            task = asyncio.ensure_future(open_it())
            await turns(count % 5)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await assert_closed(path)

    run(main())


def test_a_cancelled_close_goes_on(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "file"

    async def main() -> None:
        for count in range(50):
            file = await aio.open(path, "wb")
            await file.write(b"x" * 60_000)
            task = asyncio.ensure_future(file.close())
            await turns(1 + count % 3)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await file.close()
            assert path.read_bytes() == b"x" * 60_000
        await assert_closed(path)

    run(main())


def test_waiting_for_a_turn_can_be_cancelled(run: Runner, fifo: tuple[Path, int]) -> None:
    path, number = fifo

    async def main() -> None:
        async with aio.open(path, "rb") as file:
            first = asyncio.ensure_future(file.read(3))
            await turns(3)
            second, third = (asyncio.ensure_future(file.read(3)) for _ in range(2))
            await turns(3)
            await cancelled(second)
            os.write(number, b"abcdef")
            assert await soon(first) == b"abc"
            assert await soon(third) == b"def"

    run(main())


def test_a_cancelled_write_does_not_use_up_the_byte_order_mark(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "file"

    async def main() -> None:
        async with aio.open(path, "w", encoding="utf-16") as file:
            below: Any = file.buffer
            # Another task holds the lock of the binary file.
            await below._begin()
            first, second = (asyncio.ensure_future(file.write(text)) for text in ("one", "two"))
            await turns(3)
            await cancelled(first)
            below._end()
            assert await second == 3
        assert path.read_bytes() == "two".encode("utf-16")

    run(main())
