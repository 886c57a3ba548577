"""The cost of file I/O: reads, writes and opening, with the bytes in the page cache; and cold reads, of
bytes that the kernel has to fetch from the device first.

Peers: blocking calls of the standard library as the floor, aiofiles on two loops, `uringcore.aio` on
uringcore's loops and on stock asyncio. Every read is checked: each 4 KiB block of the file begins and ends
with its offset.
"""

from __future__ import annotations

import asyncio
import functools
import os
import random
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from benchmarks.programs.rows import Row, arguments, tell
from benchmarks.servers import heap
from benchmarks.servers.loops import new_loop

BLOCK = 4096
PIECE = 64 * 1024
FILE_BYTES = 256 * 2**20
LINES = 10_000
TASKS = 64

PEERS = {
    "blocking": "asyncio",
    "aiofiles on asyncio": "asyncio",
    "aiofiles on uvloop": "uvloop",
    "uringcore-uring": "uringcore-uring",
    "uringcore-epoll": "uringcore-epoll",
    "uringcore on asyncio": "asyncio",
}


class _Blocking:
    """The standard library behind an aiofiles interface, for the floor."""

    class File:
        def __init__(self, *arguments: Any) -> None:
            self._file = open(*arguments)  # noqa: SIM115 - closed by its user

        def __await__(self) -> Any:
            yield from ()
            return self

        def __getattr__(self, name: str) -> Any:
            method = getattr(self._file, name)

            async def call(*arguments: Any) -> Any:
                return method(*arguments)

            return call

        def fileno(self) -> int:
            return self._file.fileno()

        def __aiter__(self) -> Any:
            return self

        async def __anext__(self) -> Any:
            if line := self._file.readline():
                return line
            raise StopAsyncIteration

    open = File


def block(number: int) -> bytes:
    """The block with this number."""
    mark = (number * BLOCK).to_bytes(8, "little")
    return mark + bytes(BLOCK - 16) + mark


def check(data: bytes, offset: int, size: int) -> None:
    """Raise unless `data` is the file's content at `offset`."""
    first = offset.to_bytes(8, "little")
    last = (offset + size - BLOCK).to_bytes(8, "little")
    if len(data) != size or data[:8] != first or data[-8:] != last:
        raise AssertionError(f"wrong bytes at {offset}")


def evict(fd: int, advice: int) -> None:
    """Drop a file from the page cache, and give `advice` to the kernel for the next reads.

    Raises `RuntimeError` if the file stays cached, as on a tmpfs.
    """
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    room = bytearray(1)
    cached = 0
    for offset in range(0, FILE_BYTES, FILE_BYTES // 64):
        try:
            cached += os.preadv(fd, [room], offset, os.RWF_NOWAIT)
        except BlockingIOError:
            continue
    os.posix_fadvise(fd, 0, 0, advice)
    # A page in use by another process stays.
    if cached > 4:
        raise RuntimeError(f"{cached} of 64 pages are still cached: set TMPDIR to a disk's folder")


class Rows:
    """The rows, over one loop and one library."""

    def __init__(self, loop: asyncio.AbstractEventLoop, peer: str, folder: Path) -> None:
        self.loop = loop
        self.folder = folder
        self.large = folder / "large"
        self.evicted = folder / "evicted"
        self.small = folder / "small"
        self.text = folder / "text"
        self.random = random.Random(0)
        self.opens: Callable[..., Any]
        self.pread: Callable[[Any, int, int], Awaitable[bytes]]
        if peer == "blocking":
            self.opens = _Blocking.open
            self.pread = self._pread_now
        elif peer.startswith("aiofiles"):
            import aiofiles
            import aiofiles.os

            self.opens = aiofiles.open
            # One call in a thread; seek() and read() are two, and not safe with many tasks.
            pread = aiofiles.os.wrap(os.pread)
            self.pread = lambda file, size, offset: pread(file.fileno(), size, offset)
        else:
            from uringcore import aio

            self.opens = aio.open
            self.pread = lambda file, size, offset: file.pread(size, offset)

    async def _pread_now(self, file: Any, size: int, offset: int) -> bytes:
        return os.pread(file.fileno(), size, offset)

    def make_files(self) -> None:
        """Write the files to read: in the page cache, except for one file."""
        for path in (self.evicted, self.large):
            with open(path, "w+b") as file:
                for start in range(0, FILE_BYTES // BLOCK, 256):
                    file.write(b"".join(block(start + index) for index in range(256)))
                if path == self.evicted:
                    file.flush()
                    # Evicted now, because it takes long: later there is little to write or to drop.
                    evict(file.fileno(), os.POSIX_FADV_NORMAL)
        self.small.write_bytes(block(0))
        self.text.write_text("".join(f"line {number}\n" for number in range(LINES)))

    def all(self) -> dict[str, Row]:
        """The rows by their names in the table."""
        return {
            "4 KiB at random, 1 task": self._row(functools.partial(self.at_random, 1)),
            "4 KiB at random, 64 tasks": self._row(functools.partial(self.at_random, TASKS)),
            "64 KiB in sequence": self._row(self.in_sequence),
            "open, read 4 KiB, close": self._row(self.open_read_close),
            "lines of a text file": self._row(self.lines),
            "write 4 KiB": self._row(self.write),
            "cold: 4 KiB at random, 1 task": self._row(functools.partial(self.cold, 1)),
            "cold: 4 KiB at random, 64 tasks": self._row(functools.partial(self.cold, TASKS)),
            "cold: 64 KiB in sequence": self._row(self.cold_in_sequence),
        }

    def _row(self, main: Callable[[int], Coroutine[Any, Any, None]]) -> Row:
        def row(count: int) -> None:
            self.loop.run_until_complete(main(count))

        return row

    async def at_random(self, tasks: int, count: int) -> None:
        """Blocks of one file, by several tasks at once."""
        file = await self.opens(self.large, "rb", 0)

        async def read(count: int) -> None:
            for _ in range(count):
                offset = self.random.randrange(FILE_BYTES // BLOCK) * BLOCK
                check(await self.pread(file, BLOCK, offset), offset, BLOCK)

        if tasks == 1:
            await read(count)
        else:
            await asyncio.gather(*(read(max(count // tasks, 1)) for _ in range(tasks)))
        await file.close()

    async def in_sequence(self, count: int) -> None:
        """A large file from its start, again and again."""
        file = await self.opens(self.large, "rb")
        offset = 0
        for _ in range(count):
            check(await file.read(PIECE), offset, PIECE)
            offset += PIECE
            if offset == FILE_BYTES:
                offset = await file.seek(0)
        await file.close()

    async def cold(self, tasks: int, count: int) -> None:
        """Blocks of one file by several tasks, each block once before the file is evicted again."""
        file = await self.opens(self.evicted, "rb", 0)
        blocks = list(range(FILE_BYTES // BLOCK))
        left = 0

        async def read(count: int) -> None:
            nonlocal left
            for _ in range(count):
                if left == 0:
                    self.random.shuffle(blocks)
                    left = len(blocks)
                    # Without reading ahead: blocks that were read ahead would not be cold.
                    evict(file.fileno(), os.POSIX_FADV_RANDOM)
                left -= 1
                offset = blocks[left] * BLOCK
                check(await self.pread(file, BLOCK, offset), offset, BLOCK)

        await asyncio.gather(*(read(max(count // tasks, 1)) for _ in range(tasks)))
        await file.close()

    async def cold_in_sequence(self, count: int) -> None:
        """A large file from its start, evicted each time; the kernel reads ahead."""
        file = await self.opens(self.evicted, "rb", 0)
        offset = FILE_BYTES
        for _ in range(count):
            if offset == FILE_BYTES:
                evict(file.fileno(), os.POSIX_FADV_NORMAL)
                offset = await file.seek(0)
            check(await file.read(PIECE), offset, PIECE)
            offset += PIECE
        await file.close()

    async def open_read_close(self, count: int) -> None:
        """A small file, whole."""
        for _ in range(count):
            file = await self.opens(self.small, "rb")
            check(await file.read(), 0, BLOCK)
            await file.close()

    async def lines(self, count: int) -> None:
        """`async for` over a text file, per line."""
        while count > 0:
            file = await self.opens(self.text)
            number = 0
            async for line in file:
                if line[5:-1] != str(number):
                    raise AssertionError(line)
                number += 1
                if number == count:
                    break
            count -= number
            await file.close()

    async def write(self, count: int) -> None:
        """Blocks at the end of a file, which is cut off at 16 MiB."""
        path = self.folder / "written"
        while count > 0:
            blocks = min(count, 4096)
            file = await self.opens(path, "wb")
            for number in range(blocks):
                await file.write(block(number))
            await file.close()
            if path.stat().st_size != blocks * BLOCK:
                raise AssertionError("not all was written")
            count -= blocks


def main() -> None:
    """Run every row for the peer named on the command line."""
    options = arguments(__doc__, PEERS)
    heap.warm()
    loop = new_loop(PEERS[options.peer])
    asyncio.set_event_loop(loop)
    try:
        with tempfile.TemporaryDirectory() as folder:
            rows = Rows(loop, options.peer, Path(folder))
            rows.make_files()
            tell(rows.all(), options.seconds)
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


if __name__ == "__main__":
    main()
