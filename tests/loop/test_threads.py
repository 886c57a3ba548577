"""Loops and threads: one loop after the other on several threads, several loops at once, many loops."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, BinaryIO, TypeVar

import pytest

from tests.loop.harness import (
    BACKENDS,
    PATIENCE,
    Echo,
    Recorder,
    Runner,
    collect,
    connected_pair,
    factory,
    listen,
    open_descriptors,
    rounds,
)
from uringcore import _uringcore

T = TypeVar("T")


def in_thread(work: Callable[[], T]) -> T:
    """Call `work` in a new thread and return what it returns, or raise what it raises."""
    outcome: list[Any] = []

    def call() -> None:
        try:
            outcome.append((work(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "the thread hangs"
    value, error = outcome[0]
    if error is not None:
        raise error
    return value  # type: ignore[no-any-return]


def test_a_loop_moves_between_threads_with_everything_in_flight(run: Runner) -> None:
    loop = run.factory()
    loop.set_exception_handler(run.complaints)
    one, other = connected_pair()
    watched, pusher = socket.socketpair()
    watched.setblocking(False)
    fired: list[str] = []
    seen: list[bytes] = []

    async def start() -> tuple[Any, Recorder, tuple[str, int], asyncio.Task[bytes]]:
        server, address = await listen(Echo)
        _, recorder = await loop.create_connection(Recorder, sock=one)
        loop.add_reader(watched, lambda: seen.append(watched.recv(100)))
        loop.call_later(0.01, fired.append, "timer")
        raw, raw_peer = socket.socketpair()
        raw.setblocking(False)
        raws.extend((raw, raw_peer))
        receiving = loop.create_task(loop.sock_recv(raw, 100))
        await asyncio.sleep(0)
        return server, recorder, address, receiving

    async def use(recorder: Recorder, address: tuple[str, int], text: bytes) -> None:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(text)
        assert await reader.readexactly(len(text)) == text
        writer.close()
        await writer.wait_closed()
        other.sendall(text)
        await recorder.until(lambda: recorder.data.endswith(text))
        pusher.sendall(text)
        while b"".join(seen)[-len(text) :] != text:
            await asyncio.sleep(0.001)

    raws: list[socket.socket] = []
    server, recorder, address, receiving = loop.run_until_complete(start())
    for number in range(4):
        text = b"round %d" % number
        in_thread(lambda text=text: loop.run_until_complete(use(recorder, address, text + b"a")))  # type: ignore[misc]
        # Data that arrives between two runs waits for the next one.
        other.sendall(b"between")
        loop.run_until_complete(use(recorder, address, text + b"b"))
    assert fired == ["timer"]
    assert not receiving.done()
    raws[1].send(b"raw")
    assert in_thread(lambda: loop.run_until_complete(receiving)) == b"raw"
    expected = b"".join(b"round %dabetweenround %db" % (n, n) for n in range(4))
    assert bytes(recorder.data) == expected

    async def stop() -> None:
        server.close()
        loop.remove_reader(watched)
        recorder.transport.close()
        await recorder.until_call("lost")

    in_thread(lambda: loop.run_until_complete(stop()))
    loop.close()
    for sock in (other, watched, pusher, *raws):
        sock.close()
    assert run.complaints.contexts == []


def test_a_large_write_survives_the_moves(run: Runner) -> None:
    """The send is in the kernel when the loop stops: no byte is lost, none is repeated."""
    loop = run.factory()
    loop.set_exception_handler(run.complaints)
    one, other = connected_pair()
    other.setblocking(True)
    data = b"".join(b"%08d" % number for number in range(1_000_000))
    received = bytearray()

    def read_all() -> None:
        while piece := other.recv(1 << 18):
            received.extend(piece)

    async def start() -> Recorder:
        _, recorder = await loop.create_connection(Recorder, sock=one)
        recorder.transport.write(data)
        recorder.transport.close()
        return recorder

    recorder = loop.run_until_complete(start())
    reader = threading.Thread(target=read_all)
    reader.start()
    for _ in range(20):
        in_thread(lambda: loop.run_until_complete(asyncio.sleep(0.001)))
        loop.run_until_complete(asyncio.sleep(0.001))
    loop.run_until_complete(asyncio.wait_for(recorder.until_call("lost"), PATIENCE))
    reader.join(PATIENCE)
    loop.close()
    other.close()
    assert bytes(received) == data


def test_the_last_turns_writes_are_sent(run: Runner) -> None:
    """asyncio's write() sends at once; a loop that stops or is closed has sent what it was given."""
    for close in (False, True):
        loop = run.factory()
        one, other = connected_pair()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
            receiver.bind(("127.0.0.1", 0))
            address = receiver.getsockname()
            transport, _ = loop.run_until_complete(loop.create_connection(Recorder, sock=one))
            sender, _ = loop.run_until_complete(
                loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0))
            )

            def last(
                loop: asyncio.AbstractEventLoop = loop,
                transport: Any = transport,
                sender: Any = sender,
                address: Any = address,
            ) -> None:
                transport.write(b"bye")
                sender.sendto(b"bye", address)
                loop.stop()

            loop.call_soon(last)
            loop.run_forever()
            if close:
                loop.close()
            for sock in (other, receiver):
                sock.settimeout(PATIENCE)
                assert sock.recv(10) == b"bye"
            if not close:
                transport.abort()
                sender.abort()
                loop.run_until_complete(asyncio.sleep(0))
                loop.close()
        other.close()
        one.close()
        collect()


def test_a_loop_that_ran_in_a_thread_is_cleaned_up_from_here(run: Runner) -> None:
    loop = run.factory()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server, address = asyncio.run_coroutine_threadsafe(listen(Echo), loop).result(PATIENCE)
    client = socket.create_connection(address)
    client.sendall(b"ping")
    assert client.recv(10) == b"ping"
    loop.call_soon_threadsafe(loop.stop)
    thread.join(PATIENCE)
    server.close()
    client.close()
    # The socket no longer listens, and the address is free although the loop was not run again.
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(address)
    loop.run_until_complete(rounds())
    loop.close()


def test_a_server_closed_from_another_thread_stops_listening(run: Runner) -> None:
    """Not documented as safe; works on asyncio, and leaves no port behind here."""

    async def main() -> None:
        server, address = await listen(Echo)
        await asyncio.to_thread(server.close)

        def refused() -> bool:
            try:
                socket.create_connection(address).close()
            except ConnectionRefusedError:
                return True
            return False

        while not await asyncio.to_thread(refused):
            await asyncio.sleep(0.01)

    run(main())


def test_several_loops_in_several_threads(run: Runner) -> None:
    results: list[int] = []

    def work() -> None:
        loop = run.factory()

        async def main() -> int:
            server, address = await listen(Echo)
            total = 0
            for number in range(20):
                reader, writer = await asyncio.open_connection(*address)
                writer.write(b"%d" % number)
                total += int(await reader.read(100))
                writer.close()
                await writer.wait_closed()
            server.close()
            return total

        try:
            results.append(loop.run_until_complete(asyncio.wait_for(main(), PATIENCE)))
        finally:
            loop.close()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert results == [190] * 6


def test_thousands_of_loops_leave_nothing_behind(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(1000, print)
        one, other = socket.socketpair()
        one.setblocking(False)
        loop.add_reader(one, print)
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=other)
        transport.write(b"left alone")

    def one_loop() -> None:
        loop = run.factory()
        loop.run_until_complete(main())
        loop.close()

    def many(count: int) -> None:
        for _ in range(count):
            one_loop()

    with warnings.catch_warnings():
        # The collector closes what the loops leave open, with a ResourceWarning.
        warnings.simplefilter("ignore", ResourceWarning)
        many(20)
        collect()
        before = open_descriptors()
        count = 1000 if run.ours else 100
        many(count // 2)
        threads = [threading.Thread(target=many, args=(count // 8,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(6 * PATIENCE)
            assert not thread.is_alive()
        collect()
    assert open_descriptors() <= before + 2


def order_of_closing(memory: BinaryIO) -> list[str]:
    """Closes a loop with a write under way, which may be over before on a machine with much to do."""
    loop: Any = factory("uring")()
    order: list[str] = []
    closing = threading.Event()

    def wait() -> None:
        closing.wait()
        order.append("the other thread ran")

    core_close = loop._core_close

    def close() -> None:
        closing.set()
        core_close()
        order.append("closed")

    async def begin() -> None:
        _uringcore.file_write(loop, memory.fileno(), bytes(256 << 20), -1)
        await asyncio.sleep(0.005)

    loop._core_close = close
    interval = sys.getswitchinterval()
    loop.run_until_complete(begin())
    other = threading.Thread(target=wait)
    other.start()
    # No thread gets the interpreter lock unless this one releases it.
    sys.setswitchinterval(1000)
    try:
        loop.close()
    finally:
        sys.setswitchinterval(interval)
    other.join(PATIENCE)
    return order


def test_closing_holds_up_no_other_thread() -> None:
    """A write of so much to a file in memory can't be taken back, and closing waits for it."""
    orders = []
    for _ in range(20):
        with open(os.memfd_create("large"), "wb") as memory:
            orders.append(order_of_closing(memory))
        if orders[-1] == ["the other thread ran", "closed"]:
            return
    raise AssertionError(orders)


WOKEN_WITHOUT_THE_LOCK = """
import os, sys, threading, time
import uringcore

def wait_until_it_sleeps(thread):
    # Who waits for the interpreter lock is woken whenever it is let go, as here: then it runs, or can, or
    # has slept once more. Who sleeps on is in a system call. However busy the machine is.
    seen = None
    while True:
        with open(f"/proc/self/task/{thread.native_id}/status") as status:
            fields = dict(line.rstrip("\\n").split(":\\t", 1) for line in status)
        now = fields["State"], fields["voluntary_ctxt_switches"]
        if now == seen and now[0].startswith("S"):
            return
        seen = now
        time.sleep(0.001)

def eventfds():
    numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    kind = "anon_inode:[eventfd]"
    return {one for one in numbers if os.path.exists(f"/proc/self/fd/{one}") and
            os.readlink(f"/proc/self/fd/{one}") == kind}

before = eventfds()
loop = uringcore.new_event_loop(backend=sys.argv[1])
[waker] = eventfds() - before
loop_thread = threading.Thread(target=loop.run_forever, daemon=True)
loop_thread.start()
while not loop.is_running():
    time.sleep(0.01)
wait_until_it_sleeps(loop_thread)
# The system call that wakes the loop blocks from now on: a full pipe is in the eventfd's place.
reading, writing = os.pipe()
os.set_blocking(writing, False)
try:
    while True:
        os.write(writing, bytes(4096))
except BlockingIOError:
    os.set_blocking(writing, True)
real = os.dup(waker)
os.dup2(writing, waker)
calling = threading.Event()
def call():
    calling.set()
    loop.call_soon_threadsafe(loop.stop)
caller = threading.Thread(target=call, daemon=True)
caller.start()
calling.wait()
wait_until_it_sleeps(caller)
print("other threads run", flush=True)
os.read(reading, 65536)
os.dup2(real, waker)
os.write(real, (1).to_bytes(8, sys.byteorder))
caller.join()
loop_thread.join()
loop.close()
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_other_threads_run_while_a_sleeping_loop_is_woken(backend: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WOKEN_WITHOUT_THE_LOCK, backend],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stdout) == (0, "other threads run\n"), done.stderr
