"""busy_poll_us: a loop that polls for work before it sleeps behaves like any other."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from typing import Any

import pytest

import uringcore
from tests.loop.harness import BACKENDS, PATIENCE, Echo, Recorder, listen

# Everything below arrives while the loop is still polling.
LONG_US = 1_000_000


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Each backend."""
    return str(request.param)


@pytest.mark.parametrize("busy_poll_us", [1, 200, LONG_US])
def test_data_is_noticed_while_spinning_and_while_blocked(backend: str, busy_poll_us: int) -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        assert loop.busy_poll_us == busy_poll_us
        before = loop.stats()["busy_polls"]
        # Wake-ups by another thread, a socket, a watcher, a signal, and a timer.
        assert await asyncio.wait_for(asyncio.to_thread(time.sleep, 0.01), PATIENCE) is None
        server, address = await listen(Echo)
        _, client = await loop.create_connection(Recorder, *address)
        for number in range(20):
            client.transport.write(b"%d" % (number % 10))
            await client.until(lambda number=number: len(client.data) == number + 1)  # type: ignore[misc]
        one, other = socket.socketpair()
        readable = asyncio.Event()
        loop.add_reader(one, lambda: (one.recv(1), readable.set()))
        threading.Timer(0.01, other.send, (b"x",)).start()
        await asyncio.wait_for(readable.wait(), PATIENCE)
        loop.remove_reader(one)
        signalled = asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, signalled.set)
        threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        await asyncio.wait_for(signalled.wait(), PATIENCE)
        loop.remove_signal_handler(signal.SIGUSR1)
        started = loop.time()
        await asyncio.sleep(0.02)
        assert loop.time() - started >= 0.02
        if busy_poll_us == LONG_US:
            assert loop.stats()["busy_polls"] > before
        one.close()
        other.close()
        client.transport.close()
        await client.until_call("lost")
        server.close()

    uringcore.run(main(), backend=backend, busy_poll_us=busy_poll_us)


def test_the_spin_time_follows_recent_waits_by_default(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("URINGCORE_BUSY_POLL_US", raising=False)
    loop = uringcore.new_event_loop(backend)
    assert loop.busy_poll_us is None
    loop.run_until_complete(asyncio.sleep(0.01))
    assert loop.stats()["busy_polls"] == 0
    loop.close()
    monkeypatch.setenv("URINGCORE_BUSY_POLL_US", "250")
    loop = uringcore.new_event_loop(backend)
    assert loop.busy_poll_us == 250
    loop.close()
    loop = uringcore.new_event_loop(backend, busy_poll_us=0)
    assert loop.busy_poll_us == 0
    loop.close()


@pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="with one processor the loop does not spin"
)
def test_a_loop_whose_waits_are_short_begins_to_look(backend: str) -> None:
    # A client that sends again as soon as it gets an answer, in a process of its own: threads of
    # this one would wait for the interpreter lock.
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        server, address = await listen(Echo)
        code = (
            "import socket, sys\n"
            "s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
            "s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)\n"
            "while s.send(b'x'): s.recv(1)\n"
        )
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, *map(str, address), stderr=asyncio.subprocess.DEVNULL
        )
        deadline = loop.time() + PATIENCE
        while loop.stats()["busy_polls"] == 0 and loop.time() < deadline:
            await asyncio.sleep(0.01)
        client.kill()
        await client.wait()
        server.close()
        assert loop.stats()["busy_polls"] > 0

    uringcore.run(main(), backend=backend)


def test_an_idle_loop_never_looks(backend: str) -> None:
    async def main() -> None:
        for _ in range(30):
            await asyncio.sleep(0.002)

    loop = uringcore.new_event_loop(backend)
    loop.run_until_complete(main())
    assert loop.stats()["busy_polls"] == 0
    loop.close()


@pytest.mark.parametrize("wrong", [-1, 1_000_001, 1 << 70])
def test_a_number_out_of_range_is_refused(backend: str, wrong: int) -> None:
    with pytest.raises((ValueError, OverflowError)):
        uringcore.new_event_loop(backend, busy_poll_us=wrong)


def test_a_variable_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("URINGCORE_BUSY_POLL_US", "often")
    with pytest.raises(ValueError, match="URINGCORE_BUSY_POLL_US"):
        uringcore.new_event_loop()
