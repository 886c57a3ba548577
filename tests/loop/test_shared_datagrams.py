"""One datagram socket in several threads or processes: datagrams that a loop did not request stay
in the socket.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.loop.harness import LOOPS, PATIENCE, Runner
from tests.loop.shared_sockets import Worker, workers
from tests.loop.test_fork import check

JOBS = 9


@pytest.fixture(params=[socket.AF_INET, socket.AF_UNIX], ids=["udp", "unix"])
def bound(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[socket.socket]:
    unix = request.param == socket.AF_UNIX
    with socket.socket(request.param, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "socket") if unix else ("127.0.0.1", 0))
        sock.setblocking(False)
        yield sock


def send(bound: socket.socket, count: int) -> None:
    with socket.socket(bound.family, socket.SOCK_DGRAM) as sender:
        for number in range(count):
            sender.sendto(b"%d" % number, bound.getsockname())


def rest_of(sock: socket.socket) -> list[bytes]:
    rest = []
    while True:
        try:
            rest.append(sock.recv(100))
        except BlockingIOError:
            return rest


def test_datagrams_behind_the_one_that_closes_the_transport_stay_in_the_socket(
    run: Runner, bound: socket.socket
) -> None:
    class One(asyncio.DatagramProtocol):
        def __init__(self) -> None:
            self.got: list[bytes] = []
            self.lost = asyncio.get_running_loop().create_future()

        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, addr: Any) -> None:
            self.got.append(data)
            self.transport.close()

        def connection_lost(self, exc: BaseException | None) -> None:
            self.lost.set_result(None)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        send(bound, 8)
        _, protocol = await loop.create_datagram_endpoint(One, sock=bound.dup())
        await protocol.lost
        assert protocol.got == [b"0"]
        assert rest_of(bound) == [b"%d" % number for number in range(1, 8)]

    run(main())


def test_callbacks_of_a_datagram_run_before_the_next_one(run: Runner, bound: socket.socket) -> None:
    class Schedules(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            seen.append(b"got " + data)
            loop = asyncio.get_running_loop()
            if data == b"3":
                loop.call_soon(ended.set_result, None)
            else:
                loop.call_soon(seen.append, b"done " + data)

    seen: list[bytes] = []

    async def main() -> None:
        nonlocal ended
        ended = asyncio.get_running_loop().create_future()
        send(bound, 4)
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            Schedules, sock=bound.dup()
        )
        await ended
        transport.close()
        await asyncio.sleep(0)

    ended: asyncio.Future[None]
    run(main())
    steps = [step % number for number in range(4) for step in (b"got %d", b"done %d")]
    assert seen == steps[:-1]


def test_datagrams_during_a_pause_stay_in_the_socket(run: Runner, bound: socket.socket) -> None:
    class Pauses(asyncio.DatagramProtocol):
        def __init__(self) -> None:
            self.got: list[bytes] = []
            self.paused = asyncio.Event()

        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, addr: Any) -> None:
            self.got.append(data)
            if not self.paused.is_set():
                self.transport.pause_reading()
                self.paused.set()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_datagram_endpoint(Pauses, sock=bound.dup())
        send(bound, 3)
        await protocol.paused.wait()
        for _ in range(3):
            await asyncio.sleep(0)
        assert rest_of(bound) == [b"1", b"2"]
        transport.resume_reading()
        send(bound, 1)
        while len(protocol.got) < 2:
            await asyncio.sleep(0.001)
        assert protocol.got == [b"0", b"0"]
        transport.close()
        await asyncio.sleep(0)

    if run.ours:  # asyncio's datagram transports cannot pause
        run(main())


@pytest.mark.parametrize("name", LOOPS)
def test_a_busy_worker_has_the_job_that_keeps_it_busy_and_no_other(
    name: str, bound: socket.socket
) -> None:
    taken = threading.Event()
    goes_on = threading.Event()
    done: dict[bytes, list[bytes]] = {b"0": [], b"1": []}
    all_done = threading.Semaphore(0)

    class Works(asyncio.DatagramProtocol):
        def __init__(self, worker: Worker) -> None:
            self.worker = worker

        def datagram_received(self, data: bytes, addr: Any) -> None:
            if self.worker.tag == b"0":
                taken.set()
                assert goes_on.wait(PATIENCE)
            done[self.worker.tag].append(data)
            all_done.release()

    async def work(worker: Worker) -> None:
        loop = worker.loop
        await loop.create_datagram_endpoint(lambda: Works(worker), sock=worker.sock.dup())

    with workers(name, bound, work, count=1) as (busy,):
        with busy.computing():
            send(bound, JOBS)
        assert taken.wait(PATIENCE)
        other = Worker(name, b"1", bound)
        try:
            other.start(work)
            for _ in range(JOBS - 1):
                assert all_done.acquire(timeout=PATIENCE), done
        finally:
            goes_on.set()
            other.stop()
        assert all_done.acquire(timeout=PATIENCE)
    assert done == {b"0": [b"0"], b"1": [b"%d" % number for number in range(1, JOBS)]}


@pytest.mark.parametrize("name", LOOPS)
def test_a_cancelled_sock_recvfrom_leaves_its_datagram_in_the_socket(
    name: str, bound: socket.socket
) -> None:
    async def receive(worker: Worker) -> None:
        receiving = worker.loop.create_task(worker.loop.sock_recv(worker.sock, 100))
        receiving.set_name("receives")
        await asyncio.sleep(0)

    with workers(name, bound, receive, count=1) as (worker,):
        (task,) = (task for task in asyncio.all_tasks(worker.loop) if task.get_name() == "receives")
        with worker.computing(then=lambda: worker.loop.call_soon(task.cancel)):
            send(bound, 1)
        worker.do(asyncio.sleep(0))
        worker.do(asyncio.sleep(0))
        assert task.cancelled()
        assert rest_of(bound) == [b"0"]


@pytest.mark.parametrize("name", LOOPS)
def test_an_error_of_a_shared_socket_is_reported(name: str) -> None:
    check(
        name,
        """
        class Errors(asyncio.DatagramProtocol):
            def __init__(self):
                self.errors = asyncio.Queue()
                self.got = asyncio.Queue()
            def error_received(self, exc):
                self.errors.put_nowait(exc)
            def datagram_received(self, data, addr):
                self.got.put_nowait((data, addr))
        async def main():
            loop = asyncio.get_running_loop()
            peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            peer.bind(("127.0.0.1", 0))
            address = peer.getsockname()
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.bind(("127.0.0.1", 0))
            sock.connect(address)
            peer.close()
            transport, protocol = await loop.create_datagram_endpoint(Errors, sock=sock)
            transport.sendto(b"to nobody")
            assert type(await protocol.errors.get()) is ConnectionRefusedError
            # It goes on.
            peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            peer.bind(address)
            peer.sendto(b"", sock.getsockname())
            peer.sendto(b"x" * 60_000, sock.getsockname())
            assert await protocol.got.get() == (b"", address)
            assert await protocol.got.get() == (b"x" * 60_000, address)
            transport.close()
            await asyncio.sleep(0)
        loop = new_loop()
        loop.run_until_complete(asyncio.wait_for(main(), 15))
        loop.close()
        """,
    )


@pytest.mark.parametrize("name", ["uring", "epoll"])
def test_a_fork_makes_the_loops_own_socket_a_shared_one(name: str) -> None:
    check(
        name,
        """
        class One(asyncio.DatagramProtocol):
            def __init__(self):
                self.got = []
            def connection_made(self, transport):
                self.transport = transport
            def datagram_received(self, data, addr):
                self.got.append(data)
                self.transport.close()
                loop.stop()
        loop = new_loop()
        asyncio.set_event_loop(loop)
        transport, protocol = loop.run_until_complete(
            loop.create_datagram_endpoint(One, local_addr=("127.0.0.1", 0)))
        address = transport.get_extra_info("sockname")
        loop.run_until_complete(asyncio.sleep(0))
        ready, waits = socket.socketpair()
        def child():
            assert waits.recv(1) == b"1"
            loop.run_forever()
            assert protocol.got == [b"1"], protocol.got
        pid = child_of(child)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for number in range(3):
                sender.sendto(b"%d" % number, address)
        kept = transport.get_extra_info("socket").dup()
        loop.run_forever()
        assert protocol.got == [b"0"], protocol.got
        ready.send(b"1")
        assert status_of(pid) == 0
        assert kept.recv(10) == b"2"
        kept.close()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        """,
    )
