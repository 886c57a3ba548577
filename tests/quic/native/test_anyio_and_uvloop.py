"""The typed API under the task groups of asyncio and anyio, and on uvloop."""

from __future__ import annotations

import asyncio
import inspect
import io
import sys
import warnings

import pytest

import uringcore
from tests.quic.native.connection_pairs import (
    client_config,
    connecting,
    listening,
    settled,
    stream_pair,
)
from uringcore import quic


async def _echo(stream):
    async with stream:
        await stream.send(await stream.read())


async def _ask(connection, number):
    async with connection.open_stream() as stream:
        await stream.send(b"%d" % number)
        await stream.finish()
        return await stream.read()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.TaskGroup came with Python 3.11")
def test_task_groups(run_anywhere, pki):
    async def main():
        async with listening(pki) as listener:

            async def serve():
                async with await listener.accept() as connection, asyncio.TaskGroup() as group:
                    async for stream in connection.streams():
                        group.create_task(_echo(stream))

            async with asyncio.TaskGroup() as group:
                group.create_task(serve())
                async with connecting(pki, listener) as connection:
                    async with asyncio.TaskGroup() as requests:
                        tasks = [requests.create_task(_ask(connection, n)) for n in range(20)]
                    assert [task.result() for task in tasks] == [b"%d" % n for n in range(20)]
                    # The awaitable that a method returns can be a task by itself.
                    stream = await connection.open_stream()
                    async with asyncio.TaskGroup() as parts:
                        parts.create_task(stream.send(b"x"))
                        parts.create_task(stream.finish())
                        reading = parts.create_task(stream.read())
                    assert reading.result() == b"x"

    run_anywhere(main())


def test_awaitables_of_methods_count_as_coroutines(run_anywhere, pki):
    # anyio checks that the argument is a coroutine before it makes a task.
    anyio = pytest.importorskip("anyio", reason="anyio comes with the extra that frameworks need")

    async def main():
        async with stream_pair(pki) as (here, there):
            reading = there.readexactly(2)
            assert inspect.iscoroutine(reading)
            assert inspect.getcoroutinestate(reading) == inspect.CORO_CREATED
            task = await settled(asyncio.ensure_future(reading))
            assert inspect.getcoroutinestate(reading) == inspect.CORO_SUSPENDED
            assert "coro=<read" in repr(task)
            task.print_stack(file=io.StringIO())
            async with anyio.create_task_group() as group:
                group.start_soon(here.send, b"ab")
            assert await task == b"ab"
            assert inspect.getcoroutinestate(reading) == inspect.CORO_CLOSED

    run_anywhere(main())


def test_one_that_is_never_awaited_is_warned_of(run_anywhere, pki):
    async def main():
        async with stream_pair(pki) as (here, _):
            with pytest.warns(RuntimeWarning, match="coroutine 'finish' was never awaited"):
                here.finish()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                here.finish().close()
                await here.finish()

    run_anywhere(main())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.TaskGroup came with Python 3.11")
def test_a_failed_task_closes_what_its_group_has_open(run_anywhere, pki):
    async def main():
        async with listening(pki) as listener:

            async def fail():
                await asyncio.sleep(0.01)
                raise RuntimeError("of the program")

            with pytest.raises(ExceptionGroup):  # noqa: F821
                async with connecting(pki, listener) as connection, asyncio.TaskGroup() as group:
                    group.create_task(fail())
                    group.create_task(_ask(connection, 1))
            assert connection.is_closed

    run_anywhere(main())


def test_anyios_task_groups(run_anywhere, pki):
    anyio = pytest.importorskip("anyio", reason="anyio comes with the extra that frameworks need")

    async def main():
        async with listening(pki) as listener:

            async def serve():
                async with await listener.accept() as connection:
                    async with anyio.create_task_group() as group:
                        async for stream in connection.streams():
                            group.start_soon(_echo, stream)

            async with anyio.create_task_group() as group:
                group.start_soon(serve)
                async with connecting(pki, listener) as connection:
                    assert await _ask(connection, 7) == b"7"
                    async with connection.open_stream() as stream:
                        with anyio.move_on_after(0.01) as scope:
                            await stream.read()
                        assert scope.cancelled_caught
                        await stream.send(b"after")
                        await stream.finish()
                        with anyio.fail_after(30):
                            assert await stream.read() == b"after"

    run_anywhere(main())


def test_uvloop(pki):
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed")

    async def main():
        async with listening(pki) as listener:

            async def serve():
                async with await listener.accept() as connection:
                    async for stream in connection.streams():
                        await _echo(stream)

            server = asyncio.ensure_future(serve())
            async with connecting(pki, listener) as connection:
                for number in range(5):
                    assert await _ask(connection, number) == b"%d" % number
            await server

    loop = uvloop.new_event_loop()
    try:
        loop.run_until_complete(asyncio.wait_for(main(), 60))
    finally:
        loop.close()


def test_between_loops_of_two_threads(pki):
    """The server runs on the loop of another thread: the two share only the wire."""
    import threading

    ready, address, stop = threading.Event(), [], []

    async def serve():
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        stop.append(lambda: loop.call_soon_threadsafe(event.set))
        async with listening(pki) as listener:
            address.append(listener.address)
            ready.set()
            async with await listener.accept() as connection:
                async for stream in connection.streams():
                    await _echo(stream)
            await event.wait()

    async def ask():
        async with quic.connect(*address[0], client_config(pki)) as connection:
            return [await _ask(connection, number) for number in range(5)]

    thread = threading.Thread(target=lambda: uringcore.run(serve()))
    thread.start()
    assert ready.wait(60)
    try:
        assert asyncio.run(ask()) == [b"%d" % number for number in range(5)]
    finally:
        stop[0]()
        thread.join()
