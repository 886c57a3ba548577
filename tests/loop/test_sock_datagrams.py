"""`sock_recvfrom`, `sock_recvfrom_into` and `sock_sendto`, as on asyncio."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.loop.harness import Runner
from tests.loop.test_sock_streams import started

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="stock asyncio has these calls since Python 3.11"
)


@contextmanager
def udp(family: int = socket.AF_INET, host: str = "127.0.0.1") -> Iterator[socket.socket]:
    """A bound, non-blocking UDP socket."""
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.bind((host, 0))
        yield sock


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")], ids=["v4", "v6"]
)
def test_there_and_back(run: Runner, family: int, host: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with udp(family, host) as one, udp(family, host) as other:
            task = await started(loop.sock_recvfrom(one, 100))
            assert await loop.sock_sendto(other, b"hello", one.getsockname()) == 5
            assert await task == (b"hello", other.getsockname())
            assert await loop.sock_sendto(one, bytearray(), other.getsockname()) == 0
            assert await loop.sock_recvfrom(other, 100) == (b"", one.getsockname())

    run(main())


def test_a_datagram_is_cut_at_the_requested_size(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with udp() as one, udp() as other:
            for waits in (False, True):
                task = await started(loop.sock_recvfrom(one, 3)) if waits else None
                other.sendto(b"abcdef", one.getsockname())
                data, _ = await (task or loop.sock_recvfrom(one, 3))
                assert data == b"abc"
            other.sendto(b"next", one.getsockname())
            assert await loop.sock_recv(one, 100) == b"next"

    run(main())


@pytest.mark.parametrize("size", [65_507, 9000])
def test_large_datagrams_arrive_whole(run: Runner, size: int) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with udp() as one, udp() as other:
            for call in (loop.sock_recvfrom, loop.sock_recv):
                task = await started(call(one, 1 << 17))
                await loop.sock_sendto(other, b"x" * size, one.getsockname())
                result = await task
                data = result[0] if isinstance(result, tuple) else result
                assert data == b"x" * size

    run(main())


def test_into_a_buffer(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with udp() as one, udp() as other:
            address = other.getsockname()
            target = bytearray(10)
            task = await started(loop.sock_recvfrom_into(one, target))
            other.sendto(b"hello", one.getsockname())
            assert await task == (5, address)
            assert target == b"hello" + bytes(5)
            other.sendto(b"abcdef", one.getsockname())
            assert await loop.sock_recvfrom_into(one, target, 2) == (2, address)
            assert target == b"abllo" + bytes(5)
            task = await started(loop.sock_recv_into(one, target))
            other.sendto(b"last", one.getsockname())
            assert await task == 4
            with pytest.raises(ValueError, match="nbytes"):
                await loop.sock_recvfrom_into(one, target, 11)
            with pytest.raises(TypeError):
                await loop.sock_recvfrom_into(one, b"fixed")

    run(main())


def test_a_buffer_that_shrinks_keeps_the_datagram(run_ours: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with udp() as one, udp() as other:
            target = bytearray(10)
            task = await started(loop.sock_recvfrom_into(one, target))
            del target[2:]
            other.sendto(b"hello", one.getsockname())
            with pytest.raises(ValueError, match="nbytes is greater"):
                await task
            assert await loop.sock_recvfrom(one, 100) == (b"hello", other.getsockname())

    run_ours(main())


def test_unix_datagrams(run: Runner, tmp_path: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        other = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with one, other:
            one.setblocking(False)
            other.setblocking(False)
            one.bind(str(tmp_path / "one"))
            for name in (None, str(tmp_path / "other")):
                if name:
                    other.bind(name)
                task = await started(loop.sock_recvfrom(one, 200_000))
                await loop.sock_sendto(other, b"x" * 100_000, str(tmp_path / "one"))
                assert await task == (b"x" * 100_000, name)

    run(main())


def test_a_full_unix_socket_makes_the_sender_wait(run: Runner, tmp_path: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        other = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with one, other:
            one.setblocking(False)
            other.setblocking(False)
            one.bind(str(tmp_path / "one"))
            other.connect(str(tmp_path / "one"))

            async def send_all() -> None:
                for number in range(100):
                    await loop.sock_sendto(other, b"%d" % number, str(tmp_path / "one"))

            sender = asyncio.create_task(send_all())
            got = [(await loop.sock_recvfrom(one, 100))[0] for _ in range(100)]
            await sender
            assert got == [b"%d" % number for number in range(100)]

    run(main())


def test_wrong_addresses_raise_as_in_asyncio(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with udp() as one:
            with pytest.raises(TypeError):
                await loop.sock_sendto(one, b"x", "127.0.0.1")
            with pytest.raises(OverflowError):
                await loop.sock_sendto(one, b"x", ("127.0.0.1", 70_000))
            with pytest.raises(OSError, match="Message too long"):
                await loop.sock_sendto(one, bytes(70_000), one.getsockname())
            with pytest.raises(TypeError, match="bytes-like"):
                await loop.sock_sendto(one, "text", one.getsockname())  # type: ignore[arg-type]
            # A name is looked up.
            assert await loop.sock_sendto(one, b"x", ("localhost", one.getsockname()[1])) == 1

    run(main())


def test_a_stream_has_no_sender(run: Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with one, other:
            one.setblocking(False)
            task = await started(loop.sock_recvfrom(one, 100))
            other.send(b"hello")
            assert await task == (b"hello", None)

    run(main())
