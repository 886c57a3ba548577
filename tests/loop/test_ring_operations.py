"""Operations of the ring that a future waits for: results, cancelling, the end of the loop."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import weakref
from typing import Any

import pytest

from tests.loop.harness import Runner, factory, rounds
from uringcore import _uringcore
from uringcore.aio._pending_operation import finish

BACKENDS = ("uring", "epoll")


def begin_read(loop: Any, fd: int) -> _uringcore.FileOperation:
    return _uringcore.file_read(loop, fd, 100, -1, False)


async def read(fd: int) -> Any:
    return await finish(begin_read(asyncio.get_running_loop(), fd))


class Pipe:
    """A non-blocking pipe."""

    def __enter__(self) -> tuple[int, int]:
        self.ends = os.pipe()
        for end in self.ends:
            os.set_blocking(end, False)
        return self.ends

    def __exit__(self, *_: object) -> None:
        for end in self.ends:
            os.close(end)


async def settled(loop: Any) -> None:
    """Wait until no operation is in flight but those that a loop always has."""
    while loop.stats()["ops"]:
        await asyncio.sleep(0)


def test_a_read_waits_and_answers(run_ours: Runner) -> None:
    async def main() -> None:
        with Pipe() as (reader, writer):
            task = asyncio.create_task(read(reader))
            await rounds()
            assert not task.done()
            os.write(writer, b"hello")
            assert await task == b"hello"

    run_ours(main())


def test_a_write_answers_its_count(run_ours: Runner) -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        with Pipe() as (reader, writer):
            future = _uringcore.file_write(loop, writer, b"hello", -1).future
            assert type(future) is asyncio.Future
            assert await future == 5
            assert os.read(reader, 100) == b"hello"

    run_ours(main())


def test_a_failure_is_an_os_error(run_ours: Runner) -> None:
    async def main() -> None:
        with pytest.raises(OSError, match="Bad file descriptor") as caught:
            await read(987_654)
        assert caught.value.errno == 9

    run_ours(main())


def test_a_cancelled_operation_ends_and_takes_nothing(run_ours: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with Pipe() as (reader, writer):
            for turns in (0, 1, 3):
                task = asyncio.create_task(read(reader))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await settled(loop)
            os.write(writer, b"later")
            assert os.read(reader, 100) == b"later"

    run_ours(main())


def test_a_coroutine_that_is_closed_gives_its_operation_up(run_ours: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with Pipe() as (reader, _):
            coroutine = read(reader)
            coroutine.send(None)
            coroutine.close()
            await settled(loop)

    run_ours(main())


def test_many_operations_at_once(run_ours: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        pairs = [socket.socketpair() for _ in range(200)]
        tasks = [asyncio.create_task(read(one.fileno())) for one, _ in pairs]
        for number, (_, other) in enumerate(pairs):
            other.send(str(number).encode())
        results = await asyncio.gather(*tasks)
        assert results == [str(number).encode() for number in range(200)]
        assert loop.stats()["ops"] == 0  # type: ignore[attr-defined]
        for one, other in pairs:
            one.close()
            other.close()

    run_ours(main())


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_loop_closes_with_operations_in_flight(backend: str) -> None:
    with Pipe() as (reader, writer):
        loop: Any = factory(backend)()
        future = begin_read(loop, reader).future
        task = loop.create_task(read(reader))
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        assert not future.done()
        with pytest.raises(RuntimeError, match="Event loop is closed"):
            begin_read(loop, reader)
        # The waiting coroutine is thrown away with its task: that must be harmless on a closed loop.
        task._log_destroy_pending = False
        gone = weakref.ref(loop)
        del task, future, loop
        gc.collect()
        assert gone() is None
        os.write(writer, b"x")
        assert os.read(reader, 1) == b"x"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_wrong_argument_raises_at_once(backend: str) -> None:
    loop: Any = factory(backend)()
    try:
        with pytest.raises(TypeError):
            _uringcore.file_write(loop, 1, "text", -1)
        with pytest.raises(TypeError):
            begin_read(object(), 1)
        assert loop.stats()["ops"] == 0
    finally:
        loop.close()
