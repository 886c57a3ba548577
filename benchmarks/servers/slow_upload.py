"""Uploads to a reader that is slower than its loop, so that it pauses reading again and again.

Prints `READY <port>` once it listens and ends on SIGTERM. The server does almost nothing with the bytes: the
figures are the cost of pausing, of resuming and of the bytes held meanwhile. `native/upload_load.rs`
describes the protocol.
"""

from __future__ import annotations

import asyncio
import ssl

from benchmarks.servers import program
from benchmarks.servers.bulk import Upload
from benchmarks.servers.program import BACKLOG

VERIFIED = 8 << 20
PIECE = 1 << 20
HIGH_WATER = 64 * 1024
"""Reading is paused when more bytes than this have collected: uvicorn's HIGH_WATER_LIMIT."""


class Account:
    """The bytes that the application has taken of one connection, and their answers."""

    def __init__(self) -> None:
        self.taken = 0
        self.due = VERIFIED
        """The number of bytes taken in all at which the next answer is due."""
        self._verified = Upload(hashed=True)

    def take(self, data: bytes | bytearray) -> bytes:
        """Take the next bytes; return the answer that is due, or nothing."""
        self.taken += len(data)
        verifying = self.due == VERIFIED
        if verifying:
            self._verified.feed(data)
        if self.taken < self.due:
            return b""
        pieces = self.taken - self.taken % PIECE
        self.due = pieces + PIECE
        # The client waits for the first answer, so no bytes after the verified ones are hashed.
        return self._verified.answer() if verifying else pieces.to_bytes(8, "big")


class SlowUpload(asyncio.Protocol):
    """Pauses as soon as more than `HIGH_WATER` bytes have collected, like uvicorn with a body.

    The application takes them in the loop's next turn, and reading resumes.
    """

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.account = Account()
        self.body = bytearray()
        self.paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Collect data until there is too much, or all that the client sends before its next answer."""
        self.body += data
        if self.paused:
            return
        if len(self.body) > HIGH_WATER or self.account.taken + len(self.body) >= self.account.due:
            self.paused = True
            self.transport.pause_reading()
            self.loop.call_soon(self.take)

    def take(self) -> None:
        """The application's turn."""
        body, self.body = self.body, bytearray()
        answer = self.account.take(body)
        if answer:
            self.transport.write(answer)
        self.paused = False
        self.transport.resume_reading()


async def serve_protocol(tls: ssl.SSLContext | None) -> int:
    """`asyncio.Protocol` with `pause_reading` and `resume_reading`."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(SlowUpload, "127.0.0.1", 0, backlog=BACKLOG, ssl=tls)
    return int(server.sockets[0].getsockname()[1])


async def serve_streams(tls: ssl.SSLContext | None) -> int:
    """`asyncio.start_server`: its `StreamReader` pauses reading at twice its limit."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        account = Account()
        while data := await reader.read(HIGH_WATER):
            if answer := account.take(data):
                writer.write(answer)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(
        handle, "127.0.0.1", 0, backlog=BACKLOG, limit=HIGH_WATER, ssl=tls
    )
    return int(server.sockets[0].getsockname()[1])


STYLES: dict[str, program.Style] = {"protocol": serve_protocol, "streams": serve_streams}


if __name__ == "__main__":
    program.run(__doc__, STYLES)
