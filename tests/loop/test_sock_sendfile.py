"""`sock_sendfile` and `sendfile`, as on asyncio: the bytes sent, the file position, the rejected
calls.
"""

from __future__ import annotations

import asyncio
import inspect
import io
import random
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.loop.harness import Recorder, Runner, listen
from tests.loop.test_sock_streams import pair
from tests.loop.test_socket_overrides import Counted

SIZE = 3_000_000
# Newer asyncio puts the file there also when nothing was sent.
SEEKS_TO_WHERE_IT_STOPS = (
    "total_sent"
    not in inspect.signature(
        asyncio.SelectorEventLoop._sock_sendfile_update_filepos  # type: ignore[attr-defined]
    ).parameters
)


@pytest.fixture(scope="module")
def content() -> bytes:
    """The file's content."""
    return random.Random(1).randbytes(SIZE)


@pytest.fixture
def path(tmp_path: Path, content: bytes) -> Path:
    """A regular file."""
    file = tmp_path / "file"
    file.write_bytes(content)
    return file


async def received(sock: socket.socket) -> bytes:
    """Everything up to the end of the stream."""
    loop = asyncio.get_running_loop()
    got = bytearray()
    while piece := await loop.sock_recv(sock, 1 << 18):
        got += piece
    return bytes(got)


@pytest.mark.parametrize(
    ("offset", "count"),
    [(0, None), (1000, None), (5, 70_000), (SIZE - 10, 100), (SIZE, None), (SIZE + 5, 10)],
)
def test_sendfile_sends_the_range_and_moves_the_files_position(
    run: Runner, path: Path, content: bytes, offset: int, count: int | None
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (one, other), path.open("rb") as file:
            reader = asyncio.create_task(received(other))
            sent = await loop.sock_sendfile(one, file, offset, count, fallback=False)
            one.shutdown(socket.SHUT_WR)
            end = SIZE if count is None else offset + count
            expected = content[offset:end]
            assert sent == len(expected)
            assert file.tell() == (offset + sent if sent or SEEKS_TO_WHERE_IT_STOPS else 0)
            assert await reader == expected

    run(main())


def test_a_file_that_is_not_regular_falls_back_or_is_refused(run: Runner, path: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (one, other):
            file = io.BytesIO(b"x" * 100_000)
            with pytest.raises(asyncio.SendfileNotAvailableError):
                await loop.sock_sendfile(one, file, fallback=False)
            reader = asyncio.create_task(received(other))
            assert await loop.sock_sendfile(one, file, 10, 50_000) == 50_000
            one.shutdown(socket.SHUT_WR)
            assert await reader == b"x" * 50_000
            with path.open() as text, pytest.raises(ValueError, match="binary mode"):
                await loop.sock_sendfile(one, text)  # type: ignore[arg-type]

    run(main())


def test_a_cancelled_sendfile_leaves_the_file_after_the_sent_bytes(
    run_ours: Runner, path: Path, content: bytes
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (one, other), path.open("rb") as file:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
            task = asyncio.create_task(loop.sock_sendfile(one, file, fallback=False))
            got = bytearray()
            while len(got) < 500_000:
                got += await loop.sock_recv(other, 1 << 16)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            position = file.tell()
            assert 0 < position < SIZE
            # The rest goes out behind it: no byte is missing and none comes twice.
            rest = asyncio.create_task(loop.sock_sendfile(one, file, position, fallback=False))
            rest.add_done_callback(lambda _: one.shutdown(socket.SHUT_WR))
            got += await received(other)
            assert await rest == SIZE - position
            assert got == content

    run_ours(main())


def test_through_a_transport(run: Runner, path: Path, content: bytes) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        peer = Recorder()
        server, address = await listen(lambda: peer)
        transport, _ = await loop.create_connection(asyncio.Protocol, *address)
        transport.write(b"head")
        with path.open("rb") as file:
            assert await loop.sendfile(transport, file) == SIZE
            assert file.tell() == SIZE
        transport.write(b"tail")
        transport.close()
        await peer.until_call("lost")
        assert peer.data == b"head" + content + b"tail"
        server.close()

    run(main())


@pytest.mark.parametrize("kind", [socket.socket, Counted])
@pytest.mark.parametrize("when", ["before the queue is empty", "in the middle of the file"])
def test_a_transport_outlives_a_cancelled_one(
    run_ours: Runner, path: Path, content: bytes, kind: type[socket.socket], when: str
) -> None:
    """Not on asyncio: its transport breaks at the first wait (cpython#157025)."""
    head = b"" if when == "in the middle of the file" else b"head" * 2_000_000

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (plain, other), path.open("rb") as file:
            one = kind(plain.family, plain.type, plain.proto, plain.detach())
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
            transport, protocol = await loop.create_connection(Recorder, sock=one)
            transport.write(head)
            task = asyncio.create_task(loop.sendfile(transport, file))
            while transport.is_reading():  # until it has begun
                await asyncio.sleep(0)
            got = bytearray()
            while len(got) < 100_000:
                got += await loop.sock_recv(other, 1 << 16)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert transport.is_reading()
            transport.write(b"middle")
            rest = asyncio.create_task(loop.sendfile(transport, file, file.tell()))
            rest.add_done_callback(lambda _: transport.write_eof())
            got += await received(other)
            await rest
            before, _, after = bytes(got[len(head) :]).partition(b"middle")
            assert got.startswith(head) and before + after == content
            other.send(b"answer")
            await protocol.until(lambda: protocol.data == b"answer")
            transport.close()
            await protocol.until_call("lost")

    run_ours(main())


def test_a_peer_that_goes_away(run: Runner, path: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (one, other), path.open("rb") as file:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
            task: asyncio.Task[Any] = asyncio.create_task(
                loop.sock_sendfile(one, file, fallback=False)
            )
            await loop.sock_recv(other, 10)
            other.close()
            with pytest.raises((ConnectionResetError, BrokenPipeError)):
                await task

    run(main())
