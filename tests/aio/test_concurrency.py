"""Many tasks and many files: order on one file, independence of others, fairness, constant memory."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import time
from pathlib import Path
from typing import Any

import pytest

from tests.aio.harness import ticks_during
from tests.loop.harness import Runner, collect, open_descriptors
from tests.support.allocated_memory import grown, memory
from uringcore import aio
from uringcore.aio._file_backends import files_of


def test_operations_of_several_tasks_run_in_order(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "file"

    async def main() -> None:
        async with aio.open(path, "wb", buffering=100) as file:
            pieces = [b"%04d " % index * 30 for index in range(300)]
            await asyncio.gather(*(file.write(piece) for piece in pieces))
        assert path.read_bytes() == b"".join(pieces)
        async with aio.open(path, "rb", buffering=100) as file:
            got = await asyncio.gather(*(file.read(150) for _ in pieces))
            assert got == pieces
        async with aio.open(path, "r+") as text:
            got_text = await asyncio.gather(*(text.read(150) for _ in pieces))
            assert [piece.encode() for piece in got_text] == pieces

    run(main())


def test_closing_waits_for_its_turn(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(3_000_000))

    async def main() -> None:
        for size in (10, 1_000_000):
            file = await aio.open(path, "rb")
            before, _, *after = await asyncio.gather(
                *(file.read(size), file.close(), file.read(size), file.seek(0)),
                return_exceptions=True,
            )
            assert before == bytes(size)
            assert [type(one) for one in after] == [ValueError, ValueError]

    run(main())


def test_lines_go_to_tasks_whole(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "file"
    lines = [f"{index:06d}é{'x' * (index % 90)}\n" for index in range(5000)]
    path.write_text("".join(lines), encoding="utf-8")

    async def main() -> None:
        async with aio.open(path, encoding="utf-8") as file:

            async def reader() -> list[str]:
                got = []
                async for line in file:
                    got.append(line)
                    await asyncio.sleep(0)
                return got

            shares = await asyncio.gather(*(reader() for _ in range(10)))
        assert sorted(line for share in shares for line in share) == lines

    run(main())


def test_a_hundred_readers_of_one_file(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "file"
    content = random.Random(1).randbytes(1_000_000)
    path.write_bytes(content)

    async def main() -> None:
        async with aio.open(path, "rb") as file:

            async def reader(seed: int) -> None:
                rng = random.Random(seed)
                for _ in range(30):
                    offset = rng.randrange(len(content))
                    size = rng.choice((1, 4096, 70_000, 400_000))
                    assert await file.pread(size, offset) == content[offset : offset + size]

            await asyncio.gather(*(reader(seed) for seed in range(100)))
            assert await file.tell() == 0

    run(main(), timeout=60)


def test_positional_writes_beside_a_reader(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100_000))

    async def main() -> None:
        async with aio.open(path, "r+b") as file:
            assert await file.read(10) == bytes(10)
            await asyncio.gather(*(file.pwrite(b"%03d" % i, 20 + 3 * i) for i in range(100)))
            assert await file.tell() == 10
            # Data that was read ahead does not hide the file's current content.
            await file.read(10)
            assert await file.read(300) == b"".join(b"%03d" % i for i in range(100))
            # Data that was written but not flushed is visible.
            await file.seek(0)
            await file.write(b"buffered")
            assert await file.pread(8, 0) == b"buffered"
        assert (await aio.os.stat(path)).st_size == 100_000

    run(main())


def test_a_read_that_ended_as_it_was_cancelled_passes_its_turn_on_once(
    run: Runner, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")

    class Uncached:
        def read(self, *asked: int) -> None:
            return None

    class Ended:
        """An operation that completes when its waiter abandons it."""

        def __init__(self) -> None:
            self.future = asyncio.get_running_loop().create_future()

        def abandon(self, late: Any) -> None:
            late(self.future.result(), None)

    async def main() -> None:
        begun: list[Ended] = []

        def read(*asked: int) -> Ended:
            begun.append(Ended())
            return begun[-1]

        async with aio.open(path, "rb", 0) as file:
            files: Any = files_of()
            files.direct, files.read = Uncached(), read
            first, *others = (asyncio.ensure_future(file.read(3)) for _ in range(3))
            await asyncio.sleep(0)
            begun[0].future.set_result(b"")
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            for count, other in enumerate(others, 2):
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                # One at a time, although both were waiting.
                assert len(begun) == count
                begun[-1].future.set_result(b"abc")
                assert await other == b"abc"

    run(main())


def test_a_thousand_files_at_once(run: Runner, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4096:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))

    async def one(index: int) -> None:
        async with aio.open(tmp_path / str(index), "w+") as file:
            await file.write(f"{index}\n" * 10)
            await file.seek(0)
            assert await file.readlines() == [f"{index}\n"] * 10

    async def main() -> None:
        before = open_descriptors()
        await asyncio.gather(*(one(index) for index in range(1000)))
        assert open_descriptors() <= before + 50  # the executor's threads have none, the loop few

    run(main(), timeout=60)
    assert len(os.listdir(tmp_path)) == 1000


def test_a_reader_of_cached_bytes_lets_others_run(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1_000_000))

    async def main() -> None:
        async with aio.open(path, "rb") as file:

            async def read_much() -> None:
                for _ in range(30_000):
                    await file.pread(4096, 8192)

            # At least one iteration for every ten times the promised slice, measured in this
            # thread's CPU time: a busy machine runs other threads meanwhile.
            began = time.thread_time()
            ticks = await ticks_during(asyncio.ensure_future(read_much()))
            assert ticks > (time.thread_time() - began) / 0.005

    run(main(), timeout=60)


def test_memory_stays_flat(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(300_000))

    async def use(count: int) -> None:
        for _ in range(count):
            async with aio.open(path, "rb") as file:
                await file.read()
                await file.seek(5)
                await file.readline()
                task = asyncio.ensure_future(file.pread(290_000, 0))
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            async with aio.open(tmp_path / "out", "w") as text:
                await text.write("x" * 100_000)

    async def main() -> None:
        await use(100)
        collect()
        before = memory()
        await use(300)
        collect()
        # A leak of one buffer in ten uses would be 9,000 KiB. Threads allocate small objects as
        # well.
        heap, blocks = grown(before)
        assert heap < 3000
        assert blocks < 3000

    run(main(), timeout=100)


def test_operations_in_flight_when_the_loop_closes(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(5_000_000))
    started = []

    async def main() -> None:
        file = await aio.open(path, "rb")
        started.append(file)
        task = asyncio.ensure_future(file.read())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        started.append(task)

    run(main())
    with pytest.warns(ResourceWarning):  # noqa: PT031
        started.clear()
        collect()
