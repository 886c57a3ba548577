"""The client of a QUIC server that another program measures: it does the amount of work on stdin.

    python -m benchmarks.programs.quic_client PORT CERTIFICATE MODE

Each line on stdin is a number of handshakes, of round trips or requests of 100 bytes, of DATAGRAM frames of
1,000 bytes, or of KiB in either direction in writes of 1 KiB or 64. A byte on stdout follows once all is done
and acknowledged. The protocol is that of the bulk servers (`native/quic_load.rs`). Like `echo_client.py` it
runs when the server, on the same core, is idle.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import uringcore
from benchmarks.programs.work_requests import shares, until_stdin_ends, yield_the_core
from benchmarks.servers.bulk import ALPN, WINDOW, pattern
from uringcore import quic
from uringcore.quic._typed_api.await_and_async_with import AwaitableContext

MESSAGE = bytes(100)
DATAGRAM = bytes(1000)
AT_ONCE = 100
KIB = 1024


class Work:
    """The modes."""

    def __init__(self, port: int, certificate: str) -> None:
        self._port = port
        self._config = quic.ClientConfig(
            authorities=certificate,
            alpn=[ALPN],
            connection_receive_window=2 * WINDOW,
            receive_window=WINDOW,
        )

    def connect(self) -> AwaitableContext[quic.Connection]:
        """Returns the context manager that a visit enters."""
        return quic.connect("localhost", self._port, self._config)

    async def handshake(self, connection: quic.Connection, count: int) -> None:
        """`count` connections one after the other, closed at once."""
        del connection
        for _ in range(count):
            async with self.connect():
                pass

    async def ping(self, connection: quic.Connection, count: int) -> None:
        """`count` round trips on one stream."""
        async with connection.open_stream() as stream:
            await stream.send(b"E")
            for _ in range(count):
                await stream.send(MESSAGE)
                _check(await stream.readexactly(len(MESSAGE)))
            await stream.finish()
            await stream.read()

    async def requests(self, connection: quic.Connection, count: int) -> None:
        """`count` round trips, each on a new stream."""

        async def some(number: int) -> None:
            for _ in range(number):
                async with connection.open_stream() as stream:
                    await stream.send(b"E" + MESSAGE, finish=True)
                    _check(await stream.read())

        await asyncio.gather(*map(some, shares(count, AT_ONCE)))

    async def download(self, connection: quic.Connection, count: int) -> None:
        """`count` KiB from the server, and the rest that is in flight then."""
        async with connection.open_stream() as stream:
            await stream.send(b"D")
            due = count * KIB
            while due > 0:
                due -= len(await stream.read(WINDOW))
            await stream.finish()
            while await stream.read(WINDOW):
                pass

    async def upload(self, connection: quic.Connection, count: int) -> None:
        """`count` KiB to the server in writes of 1 KiB."""
        piece = pattern()[:KIB]
        async with connection.open_stream() as stream:
            await stream.send(b"U")
            for _ in range(count):
                await stream.send(piece)
            await stream.finish()
            answer = await stream.read()
            if int.from_bytes(answer, "big") != count * KIB:
                raise ValueError(f"a wrong answer: {answer!r}")

    async def datagrams(self, connection: quic.Connection, count: int) -> None:
        """`count` DATAGRAM frames that come back."""
        for number in shares(count, count // AT_ONCE):
            connection.send_datagrams([DATAGRAM] * number)
            due = number
            while due > 0:
                due -= len(await connection.receive_datagrams())


Do = Callable[[quic.Connection, int], Coroutine[Any, Any, None]]


def _check(answer: bytes) -> None:
    if answer != MESSAGE:
        raise ValueError(f"a wrong answer: {answer!r}")


async def main() -> None:
    """Work until stdin ends."""
    port, certificate, mode = sys.argv[1:]
    yield_the_core()
    work = Work(int(port), certificate)
    do: Do = getattr(work, mode)
    async with work.connect() as connection:
        await until_stdin_ends(lambda count: do(connection, count))


if __name__ == "__main__":
    uringcore.run(main())
