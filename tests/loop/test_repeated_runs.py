"""Between two runs of a loop that is run repeatedly: its cost, the events that it handles, and those that it
leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator

import pytest

from tests.loop.harness import Recorder, Runner, connected_pair


@contextlib.contextmanager
def running(run: Runner) -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that is driven by hand, and closed."""
    loop = run.factory()
    loop.set_exception_handler(run.complaints)
    asyncio.set_event_loop(loop)
    try:
        yield loop
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def short_runs(loop: asyncio.AbstractEventLoop, count: int) -> None:
    """Runs that end at once and runs that sleep, by turns."""
    for _ in range(count):
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(asyncio.sleep(0.0001))


def test_short_runs_pay_nothing_for_idle_connections(run_ours: Runner) -> None:
    connections = 300
    with running(run_ours) as loop:
        peers: list[socket.socket] = []
        transports: list[asyncio.Transport] = []
        for _ in range(connections):
            one, other = socket.socketpair()
            peers.append(other)
            made = loop.run_until_complete(loop.create_connection(asyncio.Protocol, sock=one))
            transports.append(made[0])
        short_runs(loop, 3)
        before = loop.stats()  # type: ignore[attr-defined]
        short_runs(loop, 10)
        after = loop.stats()  # type: ignore[attr-defined]
        assert after["rearms"] == before["rearms"]
        # How often it looks before it sleeps is another matter.
        apart = [stats["syscalls"] - stats["enters"] for stats in (before, after)]
        assert apart[1] - apart[0] < connections
        for transport in transports:
            transport.abort()
        short_runs(loop, 1)
        for peer in peers:
            assert peer.recv(1) == b""
            peer.close()


def test_connections_are_read_after_any_number_of_short_runs(run: Runner) -> None:
    with running(run) as loop:
        pairs = [connected_pair() for _ in range(20)]
        recorders: list[Recorder] = []
        for one, _ in pairs:
            made = loop.run_until_complete(loop.create_connection(Recorder, sock=one))
            recorders.append(made[1])
        for number in range(6):
            short_runs(loop, 4)
            # One of them is used in every round, most of them never before the last.
            chosen = range(20) if number == 5 else (0, number)
            for index in chosen:
                text = b"%d " % number
                recorder = recorders[index]
                pairs[index][1].sendall(text)
                loop.run_until_complete(recorder.until(lambda r=recorder, t=text: t in r.data))  # type: ignore[misc]
        assert [bytes(recorder.data) for recorder in recorders] == [
            b"0 0 1 2 3 4 5 ",
            *(b"%d 5 " % number for number in range(1, 5)),
            *[b"5 "] * 15,
        ]
        for recorder in recorders:
            recorder.transport.close()
        for recorder in recorders:
            loop.run_until_complete(recorder.until_call("lost"))
        for _, other in pairs:
            other.setblocking(True)
            assert other.recv(1) == b""
            other.close()


def test_data_between_two_runs_is_read_in_the_first_turn(run: Runner) -> None:
    with running(run) as loop:
        one, other = connected_pair()
        watched, pusher = socket.socketpair()
        watched.setblocking(False)
        _, recorder = loop.run_until_complete(loop.create_connection(Recorder, sock=one))
        seen: list[bytes] = []
        loop.add_reader(watched, lambda: seen.append(watched.recv(10)))
        for _ in range(4):
            short_runs(loop, 3)
            other.sendall(b"data")
            pusher.send(b"data")
            loop.call_soon(loop.stop)
            loop.run_forever()
            assert bytes(recorder.data) == b"data"
            assert seen == [b"data"]
            recorder.data.clear()
            seen.clear()
        loop.remove_reader(watched)
        recorder.transport.abort()
        short_runs(loop, 1)
        for sock in (other, watched, pusher):
            sock.close()


@pytest.mark.parametrize("quiet_runs", [0, 3])
@pytest.mark.skipif(not hasattr(os, "eventfd"), reason="this libc has no eventfd")
def test_an_eventfd_with_the_number_of_a_watched_one_wakes_no_reader(
    run: Runner, quiet_runs: int
) -> None:
    """All eventfds share one inode, so only the kernel can distinguish them."""
    with running(run) as loop:
        one, other = socket.socketpair()
        one.setblocking(False)
        receiving = loop.create_task(loop.sock_recv(one, 1))
        watched, successor = (os.eventfd(0, os.EFD_NONBLOCK) for _ in range(2))
        fired: list[int] = []
        loop.add_reader(watched, lambda: fired.append(os.eventfd_read(watched)))
        loop.run_until_complete(asyncio.sleep(0.0001))
        os.eventfd_write(watched, 5)
        while not fired:
            loop.run_until_complete(asyncio.sleep(0.0001))
        short_runs(loop, quiet_runs)
        os.dup2(successor, watched)
        os.eventfd_write(successor, 7)
        short_runs(loop, 3)
        assert fired == [5]
        loop.remove_reader(watched)
        other.send(b"x")
        assert loop.run_until_complete(receiving) == b"x"
        for number in (watched, successor):
            os.close(number)
        one.close()
        other.close()


def test_a_socket_that_its_owner_closes_is_closed(run: Runner) -> None:
    """The socket is closed even if the loop would continue to receive from it: its peer gets the end at
    once.
    """
    with running(run) as loop:
        one, other = connected_pair()
        other.setblocking(True)
        receiving = loop.create_task(loop.sock_recv(one, 1))
        short_runs(loop, 4)
        one.close()
        assert other.recv(1) == b""
        other.close()
        receiving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(receiving)
