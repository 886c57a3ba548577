"""``sendfile``: a file's bytes on a stream."""

from __future__ import annotations

import asyncio
import io
import os

import pytest

from tests.quic.harness import patterned
from tests.quic.native.connection_pairs import cancelled, pair
from uringcore import quic
from uringcore.aio._file_backends import files_of


@pytest.mark.parametrize(
    ("offset", "count"), [(0, None), (0, 0), (5, 700_000), (2_999_999, None), (9_000_000, 10)]
)
def test_a_part_of_a_file(run_anywhere, pki, tmp_path, offset, count):
    content = patterned(3_000_000)
    (tmp_path / "file").write_bytes(content)
    wanted = content[offset:] if count is None else content[offset : offset + count]

    async def main():
        async with pair(pki) as (one, other):
            with (tmp_path / "file").open("rb") as file:
                stream = await one.open_uni_stream()
                sending = asyncio.ensure_future(_send(stream, file, offset, count))
                async with await other.accept_uni_stream() as there:
                    assert await there.read() == wanted
                assert await sending == len(wanted)
                assert file.tell() == (offset + len(wanted) if wanted else 0)

    run_anywhere(main())


async def _send(stream, file, offset, count):
    sent = await stream.sendfile(file, offset, count)
    await stream.finish()
    return sent


IN_MEMORY, ON_A_DISK, NOBODY_KNOWS, OTHERS_FIRST = "memory", None, False, True


class Direct:
    """Stands in for the read from the page cache; returns the answer that the test chose."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = self.rests = 0

    def read(self, descriptor, size, offset):
        self.asked += 1
        is_there = self.answer is OTHERS_FIRST and self.asked % 2 == 0
        if is_there or self.answer is IN_MEMORY:
            return os.pread(descriptor, size, offset)
        return self.answer

    def rested(self):
        self.rests += 1


@pytest.mark.parametrize("answer", [IN_MEMORY, ON_A_DISK, NOBODY_KNOWS, OTHERS_FIRST])
def test_only_what_is_not_in_memory_is_waited_for(run_anywhere, pki, tmp_path, answer):
    content = patterned(1_000_000)
    (tmp_path / "file").write_bytes(content)

    async def main():
        files = files_of()
        files.direct = direct = Direct(answer)
        operations, read = [], files.read
        files.read = lambda *asked: operations.append(asked) or read(*asked)
        async with pair(pki) as (one, other):
            if answer in (IN_MEMORY, OTHERS_FIRST):
                asyncio.get_running_loop().run_in_executor = None
            with (tmp_path / "file").open("rb") as file:
                stream = await one.open_uni_stream()
                sending = asyncio.ensure_future(_send(stream, file, 0, None))
                async with await other.accept_uni_stream() as there:
                    assert await there.read() == content
                assert await sending == len(content)
        assert bool(operations) == (answer in (ON_A_DISK, NOBODY_KNOWS))
        assert bool(direct.rests) == (answer is OTHERS_FIRST)

    run_anywhere(main())


def test_a_slow_reader_is_waited_for_and_a_cancelled_sender_has_sent_a_part(
    run_anywhere, pki, tmp_path
):
    (tmp_path / "file").write_bytes(patterned(5_000_000))

    async def main():
        client, server = {"send_buffer": 50_000}, {"receive_window": 100_000}
        async with pair(pki, client, server) as (one, other):
            with (tmp_path / "file").open("rb") as file:
                stream = await one.open_uni_stream()
                sending = asyncio.ensure_future(stream.sendfile(file))
                there = await other.accept_uni_stream()
                got = await there.readexactly(1000)
                for _ in range(3):
                    await one.ping()
                await cancelled(sending)
                at = file.tell()
                assert 1000 < at < 2_000_000
                await stream.finish()
                got += await there.read()
                assert got == patterned(5_000_000)[: len(got)] and len(got) == at

    run_anywhere(main())


def test_files_that_sendfile_refuses(run_anywhere, pki, tmp_path):
    (tmp_path / "file").write_bytes(b"content")

    async def main():
        async with pair(pki) as (one, other):
            stream = await one.open_uni_stream()
            memory = io.BytesIO(b"content")
            memory.seek(3)
            with pytest.raises(io.UnsupportedOperation):
                await stream.sendfile(memory)
            assert memory.tell() == 3
            with (tmp_path / "file").open() as text, pytest.raises(ValueError, match="binary"):
                await stream.sendfile(text)
            reading, writing = os.pipe()
            with os.fdopen(reading, "rb") as pipe, os.fdopen(writing, "wb"):
                with pytest.raises(OSError):
                    await stream.sendfile(pipe)
            with (tmp_path / "file").open("rb") as file:
                for offset, count in ((-1, None), (0, -1)):
                    with pytest.raises(ValueError):
                        await stream.sendfile(file, offset, count)
                await stream.sendfile(file)
                there = await other.accept_uni_stream()
                there.stop(4)
                with pytest.raises(quic.StreamStoppedError):
                    while True:
                        await stream.sendfile(file)
                        await one.ping()

    run_anywhere(main())
