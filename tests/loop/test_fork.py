"""fork with a loop in the parent, by hand and through multiprocessing, and subprocesses of children."""

from __future__ import annotations

import pytest

from tests.loop.support import BACKENDS, LOOPS
from tests.loop.test_signals import finish, start

QUIET = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
from tests.loop.support import Echo, Recorder, listen
def child_of(body):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            body()
            status = 0
        finally:
            os._exit(status)
    return pid
def status_of(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
async def exchange(client, transport):
    client.data.clear()
    transport.write(b"ping")
    await client.until(lambda: client.data == b"ping")
"""


def check(name: str, body: str) -> None:
    """Run `body`; it has to end well and say nothing on standard error."""
    import textwrap

    status, out, err = finish(start(name, QUIET + textwrap.dedent(body)))
    assert (status, err) == (0, ""), out


@pytest.mark.parametrize("name", LOOPS)
def test_a_child_makes_a_loop_of_its_own_inside_a_running_one(name: str) -> None:
    check(
        name,
        """
        async def main():
            loop = asyncio.get_running_loop()
            server, address = await listen(Echo)
            transport, client = await loop.create_connection(Recorder, *address)
            await exchange(client, transport)
            def child():
                asyncio._set_running_loop(None)
                async def own():
                    server, address = await listen(Echo)
                    other, recorder = await asyncio.get_running_loop().create_connection(
                        Recorder, *address)
                    await exchange(recorder, other)
                    other.close()
                    server.close()
                    sub = await asyncio.create_subprocess_exec(
                        "/bin/echo", "hi", stdout=asyncio.subprocess.PIPE)
                    assert (await sub.communicate())[0] == b"hi\\n"
                fresh = new_loop()
                asyncio.set_event_loop(fresh)
                fresh.run_until_complete(own())
                fresh.close()
            pid = child_of(child)
            # The parent's loop goes on while the child is busy.
            for _ in range(20):
                await exchange(client, transport)
            status = await loop.run_in_executor(None, status_of, pid)
            assert status == 0, status
            await exchange(client, transport)
            transport.close()
            await client.until_call("lost")
            server.close()
        loop = new_loop()
        asyncio.set_event_loop(loop)
        loop.run_until_complete(main())
        loop.close()
        """,
    )


@pytest.mark.parametrize("name", LOOPS)
def test_a_child_closes_and_drops_the_parents_loop(name: str) -> None:
    check(
        name,
        """
        import gc
        loop = new_loop()
        async def begin():
            server, address = await listen(Echo)
            transport, client = await asyncio.get_running_loop().create_connection(
                Recorder, *address)
            await exchange(client, transport)
            return server, transport, client
        server, transport, client = loop.run_until_complete(begin())
        def child():
            global loop, server, transport, client
            if name != "stock":  # its epoll set is the parent's: asyncio closes the parent's watch
                loop.close()
            del loop, server, transport, client
            gc.collect()
        pid = child_of(child)
        assert status_of(pid) == 0
        loop.run_until_complete(exchange(client, transport))
        async def end():
            transport.close()
            await client.until_call("lost")
            server.close()
        loop.run_until_complete(end())
        loop.close()
        """.replace('name != "stock"', f'{name!r} != "stock"'),
    )


@pytest.mark.parametrize("name", BACKENDS)
def test_a_child_that_goes_on_in_the_parents_loop_is_told(name: str) -> None:
    """The child's copy of the loop is dead: an error, instead of a hand in the parent's kernel state."""
    check(
        name,
        """
        loop = new_loop()
        loop.run_until_complete(asyncio.sleep(0))
        def child():
            try:
                loop.run_until_complete(asyncio.sleep(0.01))
            except OSError as error:
                assert "forked child" in str(error), error
            else:
                raise AssertionError("it ran")
        assert status_of(child_of(child)) == 0
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()
        """,
    )


@pytest.mark.parametrize("name", BACKENDS)
def test_a_childs_signals_are_not_the_parents(name: str) -> None:
    """On asyncio before 3.12 they are: both share the wakeup socket."""
    check(
        name,
        """
        async def main():
            loop = asyncio.get_running_loop()
            seen = []
            loop.add_signal_handler(signal.SIGUSR1, seen.append, 1)
            def child():
                os.kill(os.getpid(), signal.SIGUSR1)
                time.sleep(0.05)
            pid = child_of(child)
            assert await loop.run_in_executor(None, status_of, pid) == 0
            for _ in range(10):
                await asyncio.sleep(0.005)
            assert seen == []
            os.kill(os.getpid(), signal.SIGUSR1)
            while not seen:
                await asyncio.sleep(0.001)
        loop = new_loop()
        loop.run_until_complete(main())
        loop.close()
        """,
    )


@pytest.mark.parametrize("name", LOOPS)
def test_forks_from_an_executors_thread(name: str) -> None:
    check(
        name,
        """
        def fork_here():
            return status_of(child_of(lambda: None))
        async def main():
            loop = asyncio.get_running_loop()
            server, address = await listen(Echo)
            transport, client = await loop.create_connection(Recorder, *address)
            forks = [loop.run_in_executor(None, fork_here) for _ in range(10)]
            for _ in range(50):
                await exchange(client, transport)
            assert await asyncio.gather(*forks) == [0] * 10
            transport.close()
            await client.until_call("lost")
            server.close()
        loop = new_loop()
        loop.run_until_complete(main())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        """,
    )


@pytest.mark.parametrize("name", BACKENDS)
def test_forks_while_children_are_being_made(name: str) -> None:
    """A forked child has the memory of a half-made subprocess, and neither its thread nor its child."""
    check(
        name,
        """
        import gc
        async def main():
            for _ in range(20):
                starting = [
                    asyncio.ensure_future(asyncio.create_subprocess_exec(
                        "/bin/cat", stdin=asyncio.subprocess.PIPE,
                        stdout=asyncio.subprocess.PIPE))
                    for _ in range(4)
                ]
                await asyncio.sleep(0)
                def child():
                    starting.clear()
                    gc.collect()
                pid = child_of(child)
                children = await asyncio.gather(*starting)
                for one in children:
                    out, _ = await one.communicate(b"alive")
                    assert (out, one.returncode) == (b"alive", 0)
                assert status_of(pid) == 0
        loop = new_loop()
        asyncio.set_event_loop(loop)
        loop.run_until_complete(main())
        loop.close()
        """,
    )


PARALLEL = '''
"""Run by the tests of multiprocessing: a module of its own, so that children can import it."""
import asyncio, concurrent.futures, multiprocessing, os, sys
from tests.loop.support import factory


async def answer(number):
    await asyncio.sleep(0.001)
    child = await asyncio.create_subprocess_exec(
        "/bin/echo", str(number), stdout=asyncio.subprocess.PIPE)
    out, _ = await child.communicate()
    return int(out)


def work(name, number):
    """What a child process does: a loop of its own, a subprocess of its own."""
    loop = factory(name)()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(answer(number)) * 2
    finally:
        loop.close()


def put(queue, name, number):
    queue.put(work(name, number))


async def main(name, method):
    loop = asyncio.get_running_loop()
    context = multiprocessing.get_context(method)
    ticks = 0
    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1
    ticker = asyncio.ensure_future(tick())
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        jobs = [loop.run_in_executor(pool, work, name, number) for number in range(6)]
        assert await asyncio.gather(*jobs) == [number * 2 for number in range(6)]
    queue = context.Queue()
    process = context.Process(target=put, args=(queue, name, 21))
    process.start()
    assert await loop.run_in_executor(None, queue.get) == 42
    await loop.run_in_executor(None, process.join)
    assert process.exitcode == 0
    assert await answer(7) == 7
    assert ticks > 0
    ticker.cancel()


if __name__ == "__main__":
    import warnings
    warnings.simplefilter("ignore", DeprecationWarning)
    name, method = sys.argv[1:]
    loop = factory(name)()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(asyncio.wait_for(main(name, method), 60))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.starmap(work, [(name, 1), (name, 2)]) == [2, 4]
'''


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
@pytest.mark.parametrize("name", LOOPS)
def test_multiprocessing(name: str, method: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    import os
    import subprocess
    import sys
    from pathlib import Path

    folder = tmp_path_factory.mktemp("parallel")
    script = folder / "parallel.py"
    script.write_text(PARALLEL)
    done = subprocess.run(
        [sys.executable, str(script), name, method],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
