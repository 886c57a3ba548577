"""`sock_recv`, `sock_recv_into` and `sock_sendall` on stream sockets, as on asyncio."""

from __future__ import annotations

import array
import asyncio
import random
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.loop.harness import Runner, at_rest, connected_pair, rounds


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two connected non-blocking TCP sockets."""
    one, other = connected_pair()
    with one, other:
        yield one, other


async def started(coroutine: object) -> asyncio.Task[object]:
    """A task that has run up to its first wait, and whose operation the kernel has received."""
    task: asyncio.Task[object] = asyncio.ensure_future(coroutine)  # type: ignore[arg-type]
    for _ in range(3):
        await asyncio.sleep(0)
    return task


def test_recv_and_sendall(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (one, other):
            task = await started(loop.sock_recv(one, 100))
            assert not task.done()
            assert await loop.sock_sendall(other, b"hello") is None
            assert await task == b"hello"
            other.close()
            assert await loop.sock_recv(one, 100) == b""
            assert await loop.sock_recv(one, 100) == b""

    run(main())


@pytest.mark.parametrize("size", [0, 1, 3, 70_000, 10_000_000])
def test_recv_returns_at_most_the_requested_size(run: Runner, size: int) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (one, other):
            other.send(b"abcd")
            got = await loop.sock_recv(one, size)
            assert got == b"abcd"[:size]
            rest = b"abcd"[len(got) :]
            if rest:
                assert await loop.sock_recv(one, 100) == rest

    run(main())


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("size", [0, 1, 4096, 5_000_000])
def test_everything_arrives_in_order(run: Runner, kind: type, size: int) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        data = random.Random(size).randbytes(size)
        with pair() as (one, other):

            async def send() -> None:
                await loop.sock_sendall(other, kind(data))
                other.shutdown(socket.SHUT_WR)

            async def receive() -> bytes:
                got = bytearray()
                while piece := await loop.sock_recv(one, 65536):
                    got += piece
                return bytes(got)

            _, got = await asyncio.gather(send(), receive())
            assert got == data

    run(main())


def test_recv_into_fills_any_writable_buffer(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (one, other):
            target = bytearray(8)
            task = await started(loop.sock_recv_into(one, memoryview(target)[2:6]))
            other.send(b"abcdef")
            assert await task == 4
            assert target == b"\0\0abcd\0\0"
            assert await loop.sock_recv_into(one, target) == 2
            assert target == b"efabcd\0\0"
            words = array.array("I", [0, 0])
            other.send(b"12345678")
            assert await loop.sock_recv_into(one, words) == 8
            assert words.tobytes() == b"12345678"
            assert await loop.sock_recv_into(one, bytearray()) == 0
            other.close()
            assert await loop.sock_recv_into(one, target) == 0

    run(main())


def test_wrong_arguments_raise_as_in_asyncio(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (one, _):
            with pytest.raises(TypeError, match="integer"):
                await loop.sock_recv(one, "many")  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="negative buffersize"):
                await loop.sock_recv(one, -1)
            with pytest.raises(TypeError, match="read-write"):
                await loop.sock_recv_into(one, b"fixed")  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="bytes-like"):
                await loop.sock_sendall(one, "text")  # type: ignore[arg-type]
            with pytest.raises(AttributeError):
                await loop.sock_recv(3, 1)  # type: ignore[arg-type]

    run(main())


def test_a_closed_or_unconnected_socket_is_an_error(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (one, _):
            one.close()
            with pytest.raises(OSError, match="Bad file descriptor"):
                await loop.sock_recv(one, 1)
            with pytest.raises(OSError, match="Bad file descriptor"):
                await loop.sock_sendall(one, b"x")
        with socket.socket() as fresh:
            fresh.setblocking(False)
            with pytest.raises(OSError, match="not connected"):
                await loop.sock_recv(fresh, 1)
            with pytest.raises(BrokenPipeError):
                await loop.sock_sendall(fresh, b"x")

    run(main())


def test_a_reset_raises_in_waiting_calls(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (one, other):
            task = await started(loop.sock_recv(one, 100))
            other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            other.close()
            with pytest.raises(ConnectionResetError):
                await task

    run(main())


def test_debug_mode_refuses_blocking_sockets(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_debug(True)
        with pair() as (one, _):
            for timeout in (None, 5.0):
                one.settimeout(timeout)
                for call in (
                    loop.sock_recv(one, 1),
                    loop.sock_recv_into(one, bytearray(1)),
                    loop.sock_sendall(one, b"x"),
                    loop.sock_accept(one),
                    loop.sock_connect(one, ("127.0.0.1", 9)),
                ):
                    with pytest.raises(ValueError, match="the socket must be non-blocking"):
                        await call

    run(main())


def test_tls_sockets_are_refused(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (one, _):
            context = ssl.create_default_context()
            wrapped = context.wrap_socket(
                one, server_hostname="localhost", do_handshake_on_connect=False
            )
            with wrapped:
                for call in (
                    loop.sock_recv(wrapped, 1),
                    loop.sock_recv_into(wrapped, bytearray(1)),
                    loop.sock_sendall(wrapped, b"x"),
                    loop.sock_accept(wrapped),
                    loop.sock_connect(wrapped, ("127.0.0.1", 9)),
                ):
                    with pytest.raises(TypeError, match="cannot be of type SSLSocket"):
                        await call

    run(main())


def test_a_subclass_of_socket_keeps_its_own_methods(run: Runner) -> None:
    class Upper(socket.socket):
        def recv(self, size: int, flags: int = 0) -> bytes:
            return super().recv(size, flags).upper()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (one, other):
            mine = Upper(fileno=one.detach())
            with mine:
                task = await started(loop.sock_recv(mine, 10))
                other.send(b"hello")
                assert await task == b"HELLO"

    run(main())


def test_a_socket_with_a_transport_is_refused(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (one, _):
            transport, _ = await loop.create_connection(asyncio.Protocol, sock=one)
            with pytest.raises(RuntimeError, match="is used by transport"):
                await loop.sock_recv(one, 1)
            transport.close()
            await asyncio.sleep(0)

    run(main())


def test_one_task_does_not_starve_the_others(run_ours: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        others = 0

        async def other_task() -> None:
            nonlocal others
            while True:
                others += 1
                await asyncio.sleep(0)

        with pair() as (one, other):
            other.send(b"x" * 1000)
            task = asyncio.create_task(other_task())
            for _ in range(1000):
                assert await loop.sock_recv(one, 1) == b"x"
            task.cancel()
            assert others > 10

    run_ours(main())


def test_two_sends_at_once_do_not_mix(run_ours: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (one, other):
            size = 3_000_000
            sends = [loop.sock_sendall(one, bytes([mark]) * size) for mark in (65, 66, 67)]
            tasks = [asyncio.create_task(send) for send in sends]
            got = bytearray()
            while len(got) < 3 * size:
                got += await loop.sock_recv(other, 1 << 18)
            await asyncio.gather(*tasks)
            assert got == b"A" * size + b"B" * size + b"C" * size

    run_ours(main())


def test_two_receives_at_once_are_served_in_order(run_ours: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (one, other):
            tasks = [await started(loop.sock_recv(one, 1)) for _ in range(5)]
            tasks[1].cancel()
            other.send(b"abcd")
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert [r for r in results if isinstance(r, bytes)] == [b"a", b"b", b"c", b"d"]

    run_ours(main())


def test_a_cancelled_send_lets_the_next_one_go(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (one, other):
            task = await started(loop.sock_sendall(one, bytes(50_000_000)))
            assert not task.done()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

            async def last() -> None:
                await loop.sock_sendall(one, b"end")
                one.shutdown(socket.SHUT_WR)

            sender = asyncio.create_task(last())
            tail = b""
            while piece := await loop.sock_recv(other, 1 << 18):
                tail = (tail + piece)[-3:]
            assert tail == b"end"
            await sender

    run(main())


def test_a_socket_closed_while_a_receive_waits(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (one, other):
            number = one.fileno()
            task = await started(loop.sock_recv(one, 100))
            one.close()
            # The next owner of the number loses no data.
            with pair() as (fresh, peer):
                assert number in (fresh.fileno(), peer.fileno())
                peer.send(b"to fresh")
                fresh.send(b"to peer")
                assert await loop.sock_recv(fresh, 100) == b"to fresh"
                assert await loop.sock_recv(peer, 100) == b"to peer"
            await rounds()
            assert not task.done()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            other.close()

    run(main())


def test_a_number_given_away_within_a_turn_is_not_read(run_ours: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (one, other):
            other.send(b"x" * 5)
            await loop.sock_recv(one, 100)
            task = asyncio.create_task(loop.sock_recv(one, 100))

            def give_away() -> None:
                number = one.fileno()
                one.close()
                self_pair = connected_pair()
                replaced.extend(self_pair)
                assert number in [each.fileno() for each in self_pair]

            replaced: list[socket.socket] = []
            # Runs after the task's first step, in the same turn.
            loop.call_soon(give_away)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            replaced[0].send(b"for me")
            replaced[1].send(b"for me")
            for _ in range(5):
                await asyncio.sleep(0)
            assert [each.recv(100) for each in replaced] == [b"for me", b"for me"]
            assert not task.done()
            task.cancel()
            for each in replaced:
                each.close()

    run_ours(main())


def test_the_peer_of_a_socket_closed_under_a_receive_reads_the_end(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        with one, other:
            one.setblocking(False)
            other.settimeout(10)
            task = await started(loop.sock_recv(one, 100))
            one.close()
            assert await loop.run_in_executor(None, other.recv, 100) == b""
            assert not task.done()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    run(main())


def test_a_loop_with_waiting_receives_sleeps(run_ours: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (one, _):
            task = await started(loop.sock_recv(one, 100))
            before = await at_rest(lambda: loop.stats()["turns"])  # type: ignore[attr-defined]
            await asyncio.sleep(0.5)
            assert loop.stats()["turns"] - before <= 4  # type: ignore[attr-defined]
            task.cancel()

    run_ours(main())
