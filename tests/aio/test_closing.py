"""The end of a file: at the program's exit, with others below and above it, without its executor."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.aio.harness import open_descriptors_of
from tests.loop.harness import LOOPS, Runner, factory
from uringcore import aio


def run_to_its_end(name: str, coroutine: Any) -> None:
    """Like `asyncio.run`, which cancels every task that is left."""
    with warnings.catch_warnings():
        # A close that never began leaves the file to its last reference.
        warnings.simplefilter("ignore", ResourceWarning)
        loop = factory(name)()
        try:
            loop.run_until_complete(coroutine)
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.wait_for(gathered(left), 20))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()
        gc.collect()


async def gathered(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("size", [1000, 300_000])
@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("name", LOOPS)
def test_a_program_that_ends_during_a_close_loses_nothing(
    tmp_path: Path, name: str, turns: int, size: int
) -> None:
    path = tmp_path / "file"
    tasks = []

    async def main() -> None:
        file = await aio.open(path, "wb", size + 1)
        await file.write(b"x" * size)
        tasks.append(asyncio.ensure_future(file.close()))
        for _ in range(turns):
            await asyncio.sleep(0)

    run_to_its_end(name, main())
    tasks.clear()
    gc.collect()
    assert path.read_bytes() == b"x" * size
    assert open_descriptors_of(path) == 0


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("name", LOOPS)
def test_a_program_that_ends_during_a_write_and_a_close_loses_nothing_that_was_accepted(
    tmp_path: Path, name: str, turns: int
) -> None:
    path = tmp_path / "file"

    async def main() -> None:
        file = await aio.open(path, "wb")
        await file.write(b"x" * 1000)
        tasks = [file.write(b"y" * 200_000), file.pread(1, 0), file.close()]
        left = [asyncio.ensure_future(task) for task in tasks]
        for _ in range(turns):
            await asyncio.sleep(0)
        del left

    run_to_its_end(name, main())
    written = path.read_bytes()
    assert written[:1000] == b"x" * 1000
    assert written[1000:] in (b"", b"y" * 200_000)
    assert open_descriptors_of(path) == 0


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("name", LOOPS)
def test_a_program_that_ends_while_a_pipe_is_full_ends(name: str, turns: int) -> None:
    ends = os.pipe()

    async def main() -> None:
        file = await aio.open(ends[1], "wb")
        await file.write(b"x" * 65_000)
        await file.flush()
        await file.write(b"y" * 20_000)
        asyncio.ensure_future(file.close())  # noqa: RUF006
        for _ in range(turns):
            await asyncio.sleep(0)

    try:
        if turns:
            run_to_its_end(name, main())
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(ends[1])
    finally:
        os.close(ends[0])
        if not turns:
            os.close(ends[1])


def test_a_late_result_that_fails_ends_the_turn(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "file"

    async def main() -> None:
        file: Any = await aio.open(path, "wb", 0)

        def fail(count: int) -> None:
            raise OSError("late")

        file._abandoned_write_ended = fail
        task = asyncio.ensure_future(file.write(b"x" * 1000))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.wait_for(file.close(), 20)
        run.complaints.contexts.clear()

    run(main())


@pytest.mark.parametrize("how", ["detach", "buffer.close", "buffer.detach", "close"])
def test_nothing_is_read_from_text_whose_bytes_are_gone(
    run: Runner, tmp_path: Path, how: str
) -> None:
    path = tmp_path / "file"
    path.write_text("one\ntwo\nthree\nfour\n")

    async def main() -> None:
        file: Any = await aio.open(path, encoding="utf-8")
        assert await file.readline() == "one\n"
        below = file.buffer
        target = below if how.startswith("buffer") else file
        outcome = getattr(target, how.rpartition(".")[2])()
        above = await outcome if asyncio.iscoroutine(outcome) else outcome
        for call in (lambda: file.read(2), file.readline, file.__anext__, file.readlines):
            with pytest.raises(ValueError, match="closed file|detached"):
                await call()
        await below.close()
        if above is not None:
            await above.close()
        assert open_descriptors_of(path) == 0

    run(main())


def test_a_detached_file_may_be_read_as_text_again(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("one\ntwo\n")

    async def main() -> None:
        first = await aio.open(path, encoding="utf-8")
        binary = first.detach()
        async with aio.AsyncTextIOWrapper(binary, "utf-8") as second:
            del first
            gc.collect()
            assert await second.read(2) == "on"
            await binary.close()
            with pytest.raises(ValueError, match="closed file"):
                await second.read(2)

    run(main())


@pytest.mark.parametrize("how", ["close", "detach"])
def test_the_raw_file_ends_with_the_buffered_one(run: Runner, tmp_path: Path, how: str) -> None:
    async def main() -> None:
        file = await aio.open(tmp_path / "a", "wb")
        raw = file.raw
        if how == "close":
            await file.close()
        else:
            await file.detach().close()
        async with aio.open(tmp_path / "b", "wb"):
            assert raw.closed
            with pytest.raises(ValueError, match="closed file"):
                await raw.write(b"stray")
        assert (tmp_path / "b").read_bytes() == b""

    run(main())


def test_without_its_executor_a_file_is_closed_nevertheless(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "file"

    async def main() -> None:
        executor = ThreadPoolExecutor(1)
        file = await aio.open(path, "wb", executor=executor)
        named = await aio.tempfile.NamedTemporaryFile(dir=str(tmp_path), executor=executor)
        executor.shutdown()
        await file.close()
        await named.close()
        assert open_descriptors_of(path) == open_descriptors_of(named.name) == 0
        assert not Path(named.name).exists()

    run(main())


@pytest.mark.parametrize("mode", ["r", "rb"])
def test_a_file_cannot_be_copied(run: Runner, tmp_path: Path, mode: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")

    async def main() -> None:
        async with aio.open(path, mode) as file:
            for call in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match="cannot pickle"):
                    call(file)

    run(main())
