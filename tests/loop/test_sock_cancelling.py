"""A cancelled `sock_*` call loses no byte, no datagram and no connection."""

from __future__ import annotations

import asyncio
import gc
import io
import random
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.loop.harness import PATIENCE, Runner, connected_pair, open_descriptors, rounds
from tests.loop.test_sock_streams import pair, started


def test_bytes_that_come_after_a_cancelled_receive(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (one, other):
            task = await started(loop.sock_recv(one, 100))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            other.send(b"later")
            # The program may read them itself...
            assert one.recv(2) == b"la"
            # ...or through the loop.
            assert await loop.sock_recv(one, 100) == b"ter"
            other.send(b"again")
            await rounds()
            assert one.recv(100) == b"again"

    run(main())


def test_bytes_that_were_delivered_to_a_cancelled_receive(run_ours: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (one, other):
            for turns in range(6):
                task = await started(loop.sock_recv(one, 100))
                other.send(b"abc%d" % turns)
                for _ in range(turns):
                    await asyncio.sleep(0)
                if not task.cancel():
                    assert task.result() == b"abc%d" % turns
                    continue
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert await loop.sock_recv(one, 3) == b"abc"
                assert await loop.sock_recv(one, 3) == b"%d" % turns

    run_ours(main())


@pytest.mark.parametrize("into", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_receives_with_short_time_outs_lose_nothing(
    run_ours: Runner, seed: int, into: bool
) -> None:
    dice = random.Random(seed)
    total = 400_000
    data = dice.randbytes(total)

    def send(sock: socket.socket) -> None:
        sock.setblocking(True)
        sender = random.Random(seed + 100)
        position = 0
        while position < total:
            size = sender.choice((1, 10, 100, 5000))
            sock.sendall(data[position : position + size])
            position += size
            if sender.random() < 0.05:
                threading.Event().wait(0.0003)
        sock.shutdown(socket.SHUT_WR)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (one, other):
            thread = threading.Thread(target=send, args=(other,))
            thread.start()
            got = bytearray()
            buffer = bytearray(700)
            cancelled = 0
            while True:
                size = dice.choice((1, 7, 700))
                with memoryview(buffer)[:size] as view:
                    call = loop.sock_recv_into(one, view) if into else loop.sock_recv(one, size)
                    task = asyncio.ensure_future(call)
                    for _ in range(dice.choice((0, 1, 2, 3, 5))):
                        await asyncio.sleep(0)
                    if dice.random() < 0.7 and task.cancel():
                        try:
                            await task
                        except asyncio.CancelledError:
                            cancelled += 1
                        else:
                            raise AssertionError("not cancelled")
                        continue
                    result = await task
                    piece = bytes(view[:result]) if into else result
                if not piece:
                    break
                got += piece
            assert got == data
            assert cancelled > 10
            thread.join()

    run_ours(main(), timeout=60)


def test_datagrams_of_cancelled_receives(run_ours: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        dice = random.Random(7)
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with receiver, sender:
            receiver.bind(("127.0.0.1", 0))
            receiver.setblocking(False)
            sender.bind(("127.0.0.1", 0))
            got: list[bytes] = []
            for number in range(500):
                task = await started(loop.sock_recvfrom(receiver, 100))
                sender.sendto(b"%d" % number, receiver.getsockname())
                for _ in range(dice.choice((0, 1, 2, 3))):
                    await asyncio.sleep(0)
                if task.cancel():
                    with pytest.raises(asyncio.CancelledError):
                        await task
                    task = asyncio.create_task(loop.sock_recvfrom(receiver, 100))
                data, address = await task
                assert address == sender.getsockname()
                got.append(data)
            assert got == [b"%d" % number for number in range(500)]

    run_ours(main())


def test_connections_of_cancelled_accepts(run_ours: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        dice = random.Random(3)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            for number in range(200):
                task = await started(loop.sock_accept(listener))
                with socket.create_connection(listener.getsockname()) as client:
                    for _ in range(dice.choice((0, 1, 2, 3))):
                        await asyncio.sleep(0)
                    if task.cancel():
                        with pytest.raises(asyncio.CancelledError):
                            await task
                        task = asyncio.create_task(loop.sock_accept(listener))
                    conn, address = await task
                    with conn:
                        assert address == client.getsockname()
                        client.send(b"%d" % number)
                        assert await loop.sock_recv(conn, 100) == b"%d" % number

    run_ours(main())


def test_a_connection_of_a_cancelled_accept_is_closed_with_its_listener(run_ours: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        # Objects of earlier tests are collected now, and not in the middle.
        gc.collect()
        before = open_descriptors()
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        task = asyncio.create_task(loop.sock_accept(listener))
        await rounds()
        with socket.create_connection(listener.getsockname()) as client:
            # Accepted and passed to the future; the task is cancelled before its wake-up.
            future = task._fut_waiter  # type: ignore[attr-defined]
            while not future.done():
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            # The interpreter lets go of the last exception's frames only now.
            await asyncio.sleep(0)
            del task, future
            listener.close()
            del listener
            gc.collect()
            client.settimeout(5)
            assert client.recv(1) == b""
        for _ in range(3):
            await asyncio.sleep(0)
        assert open_descriptors() == before

    run_ours(main())


def test_a_buffer_that_shrinks_while_a_receive_waits(run_ours: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (one, other):
            target = bytearray(10)
            task = await started(loop.sock_recv_into(one, target))
            del target[4:]
            other.send(b"abcdefghij")
            assert await task == 4
            assert target == b"abcd"
            assert await loop.sock_recv(one, 100) == b"efghij"

    run_ours(main())


def test_kept_data_belongs_to_the_socket_object(run_ours: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = connected_pair()
        task = await started(loop.sock_recv(one, 100))
        other.send(b"held")
        future = task._fut_waiter  # type: ignore[attr-defined]
        while not future.done():
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        number = one.fileno()
        one.close()
        other.close()
        fresh, peer = connected_pair()
        with fresh, peer:
            assert number in (fresh.fileno(), peer.fileno())
            fresh.send(b"new")
            peer.send(b"new")
            assert await loop.sock_recv(fresh, 100) == b"new"
            assert await loop.sock_recv(peer, 100) == b"new"

    run_ours(main())


def test_a_cancelled_connect_can_be_repeated(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for turns in range(5):
            with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as sock:
                sock.setblocking(False)
                task = asyncio.ensure_future(loop.sock_connect(sock, listener.getsockname()))
                for _ in range(turns):
                    await asyncio.sleep(0)
                if task.cancel():
                    with pytest.raises(asyncio.CancelledError):
                        await task
                    await loop.sock_connect(sock, listener.getsockname())
                conn, _ = listener.accept()
                with conn:
                    conn.send(b"here")
                    assert await loop.sock_recv(sock, 10) == b"here"

    run(main())


@pytest.mark.parametrize("turns", range(5))
def test_a_transport_gets_what_a_cancelled_receive_brought(run_ours: Runner, turns: int) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (one, other):
            task = await started(loop.sock_recv(one, 100))
            other.send(b"first,")
            for _ in range(turns):
                await asyncio.sleep(0)
            if not task.cancel():
                assert task.result() == b"first,"
                return
            with pytest.raises(asyncio.CancelledError):
                await task
            reader, writer = await asyncio.open_connection(sock=one)
            other.send(b"second")
            other.shutdown(socket.SHUT_WR)
            assert await reader.read() == b"first,second"
            writer.close()
            await writer.wait_closed()

    run_ours(main())


def test_a_transport_made_in_the_turn_of_the_cancel(run_ours: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (one, other):
            task = await started(loop.sock_recv(one, 100))
            other.send(b"first,")
            # The task still waits for the receive in the kernel, so the task gets the bytes.
            reader, writer = await asyncio.open_connection(sock=one)
            other.send(b"second")
            other.shutdown(socket.SHUT_WR)
            rest = await reader.read()
            task.cancel()
            got = b"" if task.cancelled() else await asyncio.gather(task, return_exceptions=True)
            first = got[0] if got and isinstance(got[0], bytes) else b""
            assert first + rest == b"first,second"
            writer.close()
            await writer.wait_closed()

    run_ours(main())


def test_a_socket_closed_while_the_loop_rests_leaves_its_number(run: Runner) -> None:
    loop = run.factory()
    try:
        one, other = connected_pair()
        old = loop.create_task(loop.sock_recv(one, 100))
        loop.run_until_complete(rounds())
        number = one.fileno()
        one.close()
        fresh, peer = connected_pair()
        with fresh, peer, other:
            assert number in (fresh.fileno(), peer.fileno())
            fresh.send(b"one")
            peer.send(b"two")
            # One turn passes before the new owner reads.
            loop.run_until_complete(asyncio.sleep(0))
            got = loop.run_until_complete(_both(loop, fresh, peer))
            assert got == [b"two", b"one"]
        assert not old.done()
        old.cancel()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(old)
    finally:
        loop.close()


async def _both(
    loop: asyncio.AbstractEventLoop, one: socket.socket, other: socket.socket
) -> list[bytes]:
    receives = [loop.sock_recv(one, 100), loop.sock_recv(other, 100)]
    return await asyncio.wait_for(asyncio.gather(*receives), PATIENCE)


CALLS: dict[str, Callable[[asyncio.AbstractEventLoop, socket.socket], Coroutine[Any, Any, Any]]] = {
    "recv": lambda loop, sock: loop.sock_recv(sock, 10),
    "recv_into": lambda loop, sock: loop.sock_recv_into(sock, bytearray(10)),
    "sendall": lambda loop, sock: loop.sock_sendall(sock, b"x" * 20_000_000),
    "sendfile": lambda loop, sock: loop.sock_sendfile(sock, io.BytesIO(b"x" * 20_000_000)),
}
if hasattr(asyncio.AbstractEventLoop, "sock_recvfrom"):
    CALLS["recvfrom"] = lambda loop, sock: loop.sock_recvfrom(sock, 10)
    CALLS["recvfrom_into"] = lambda loop, sock: loop.sock_recvfrom_into(sock, bytearray(10))


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("closed_first", [False, True])
def test_a_call_that_outlives_its_loop_ends_quietly(
    run: Runner, call: str, closed_first: bool
) -> None:
    """The call's coroutine is closed when it is collected, after the loop, while the future is pending."""
    loop = run.factory()
    one, other = connected_pair()
    coroutine = CALLS[call](loop, one)
    with other:
        loop.run_until_complete(_step(coroutine))
        if closed_first:
            one.close()
            # The loop looks for closed sockets every 100 ms (`CHECK_INTERVAL`), and forgets their operations.
            loop.run_until_complete(asyncio.sleep(0.15))
        loop.close()
        coroutine.close()
        one.close()


async def _step(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Has a coroutine come as far as its first wait."""
    while coroutine.send(None) is None:  # it lets the other tasks run
        await asyncio.sleep(0)
