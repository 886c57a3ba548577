"""Typed listeners of several processes on one port: ``quic.listen(workers=...)``."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import uringcore
from tests.quic.harness import eventually
from tests.quic.native.connection_pairs import client_config, server_config, settled
from uringcore import quic
from uringcore.quic.workers import PortGroup

WORKERS = 3


async def answer(listener, index):
    """Sends the listener's index and the process id on each stream."""
    async for connection in listener:
        tasks.add(task := asyncio.ensure_future(answer_one(connection, index)))
        task.add_done_callback(tasks.discard)


async def answer_one(connection, index):
    async with connection:
        async for stream in connection.streams():
            async with stream:
                await stream.send(b"%d %d" % (index, os.getpid()))


tasks: set[asyncio.Task[None]] = set()


async def ask(connection):
    async with connection.open_stream() as stream:
        await stream.finish()
        return [int(number) for number in (await stream.read()).split()]


@contextlib.asynccontextmanager
async def in_one_process(group, pki, **fields):
    """Opens a listener for each worker, all on the running loop."""
    async with contextlib.AsyncExitStack() as stack:
        listeners, serving = [], []
        for worker in group:
            settings = server_config(pki, **fields)
            listener = await stack.enter_async_context(quic.listen(config=settings, workers=worker))
            listeners.append(listener)
            serving.append(asyncio.ensure_future(answer(listener, worker.index)))
        yield listeners
    await asyncio.gather(*serving)


def test_a_connection_stays_with_its_worker(run_anywhere, pki):
    async def main():
        with PortGroup("127.0.0.1", 0, workers=WORKERS) as group:
            async with in_one_process(group, pki) as listeners:
                assert {listener.address for listener in listeners} == {group.sockname}
                seen = set()
                while seen != set(range(WORKERS)):
                    async with quic.connect(*group.sockname, client_config(pki)) as one:
                        first, _ = await ask(one)
                        await one.migrate()
                        assert (await ask(one))[0] == first
                        seen.add(first)

    run_anywhere(main())


def test_workers_share_the_groups_keys(run, pki):
    """A token of one worker is valid at the others; a worker whose settings contain keys uses those."""

    async def main():
        with PortGroup("127.0.0.1", 0, workers=WORKERS) as group:
            async with in_one_process(group, pki, retry=True) as listeners:

                def retries():
                    return sum(listener.stats()["incoming_retried"] for listener in listeners)

                seen = set()
                while len(seen) < 2:
                    async with quic.connect(*group.sockname, client_config(pki)) as one:
                        await eventually(lambda: one.address_token is not None)
                        issuer = (await ask(one))[0]
                    before = retries()
                    config = client_config(pki, address_token=one.address_token)
                    async with quic.connect(*group.sockname, config) as two:
                        seen |= {issuer, (await ask(two))[0]}
                    assert retries() == before

    run(main())


def test_reloading_and_draining_one_worker(run, pki):
    """New clients of a draining worker reach the next one; its open connections continue."""

    async def main():
        with PortGroup("127.0.0.1", 0, workers=2) as group:
            async with in_one_process(group, pki) as listeners:
                clients = {}
                while len(clients) < 2:
                    one = await quic.connect(*group.sockname, client_config(pki))
                    index, _ = await ask(one)
                    if index in clients:
                        one.close()
                    else:
                        clients[index] = one
                for listener in listeners:
                    listener.reload()
                draining = await settled(asyncio.ensure_future(listeners[0].drain()))
                for _ in range(10):
                    async with quic.connect(*group.sockname, client_config(pki)) as one:
                        assert (await ask(one))[0] == 1
                assert (await ask(clients[0]))[0] == 0
                assert not draining.done()
                clients[0].close()
                await draining
                assert (await ask(clients[1]))[0] == 1
                clients[1].close()

    run(main())


def _work(worker, settings, kind):
    """One worker process: it runs until SIGTERM, and then until its connections have ended."""

    async def main():
        listener = await quic.listen(config=settings, workers=worker)
        serving = asyncio.ensure_future(answer(listener, worker.index))
        told = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
        await told.wait()
        await listener.drain(timeout=20)
        await serving

    uringcore.run(main(), backend=kind)


def test_processes_are_replaced_one_after_the_other(run, pki):
    """SIGHUP to the group: open connections end regularly, and no client is refused."""

    async def main(port):
        def client():
            return quic.connect("127.0.0.1", port, client_config(pki))

        async def until(enough):
            """Connects clients one after the other until there are enough; returns each one's worker index
            and process id.
            """
            found = set()
            while not enough(found):
                async with client() as one:
                    found.add(tuple(await ask(one)))
            return found

        before = await until(lambda found: {index for index, _ in found} == {0, 1})
        async with contextlib.AsyncExitStack() as stack:
            # The second worker is replaced once the first one's successor serves.
            index = None
            while index != 1:
                one = await stack.enter_async_context(client())
                index, process = await ask(one)
                if index == 0:
                    await stack.aclose()
            os.kill(os.getpid(), signal.SIGHUP)
            await until(lambda found: found - before)
            assert await ask(one) == [index, process]

    settings = server_config(pki)
    with PortGroup("127.0.0.1", 0, workers=2) as group:
        failed = []

        def watch():
            try:
                run(main(group.sockname[1]))
            except BaseException as error:
                failed.append(error)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        watcher = threading.Thread(target=watch)
        watcher.start()
        group.run(_work, settings, run.kind, context=multiprocessing.get_context("spawn"))
        watcher.join()
        if failed:
            raise failed[0]


SIGNALLED_WHILE_IT_FORKS = """
import multiprocessing, os, signal, time
from uringcore.quic.workers import PortGroup

forks = 0

def ends_the_group():
    # The handlers run at once, before the child begins, as for a signal that was pending in the parent.
    global forks
    forks += 1
    if forks == 2:
        os.kill(os.getpid(), signal.SIGTERM)

def work(worker):
    time.sleep(60)

os.register_at_fork(after_in_child=ends_the_group, after_in_parent=ends_the_group)
with PortGroup("127.0.0.1", 0, workers=3) as group:
    group.run(work, context=multiprocessing.get_context("fork"))
print("ended")
"""


def test_a_signal_that_arrives_while_a_process_is_forked_ends_the_group():
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED_WHILE_IT_FORKS],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")
