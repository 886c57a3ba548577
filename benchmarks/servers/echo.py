"""Echo on a named event loop, with each of asyncio's interfaces.

Prints `READY <port>` once it listens and ends on SIGTERM. The work per request is one read and one
write, so the figures are the loop's.
"""

from __future__ import annotations

import asyncio
import socket
import ssl

from benchmarks.servers import program
from benchmarks.servers.program import BACKLOG

BUFFER = 64 * 1024
DATAGRAM_BUFFER = 4 << 20
SO_RCVBUFFORCE = 33
"""Linux's number, which `socket` does not define."""


class Echo(asyncio.Protocol):
    """Writes received data back."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; asyncio's TCP transports set TCP_NODELAY."""
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Echo."""
        self.transport.write(data)


class BufferedEcho(asyncio.BufferedProtocol):
    """Writes data back from the buffer that it gives to the transport."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(BUFFER))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport  # type: ignore[assignment]

    def get_buffer(self, sizehint: int) -> memoryview:
        """One buffer for all reads."""
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Echo a copy, because the buffer is used again."""
        self.transport.write(bytes(self.buffer[:nbytes]))


class DatagramEcho(asyncio.DatagramProtocol):
    """Sends a datagram back to its sender."""

    transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport  # type: ignore[assignment]

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Echo."""
        self.transport.sendto(data, addr)


async def serve_protocol(tls: ssl.SSLContext | None) -> int:
    """`asyncio.Protocol`, with TLS if there is a context."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", 0, backlog=BACKLOG, ssl=tls)
    return int(server.sockets[0].getsockname()[1])


async def serve_buffered(tls: ssl.SSLContext | None) -> int:
    """`asyncio.BufferedProtocol`."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(BufferedEcho, "127.0.0.1", 0, backlog=BACKLOG, ssl=tls)
    return int(server.sockets[0].getsockname()[1])


async def serve_streams(tls: ssl.SSLContext | None) -> int:
    """`asyncio.start_server` with `StreamReader.read` and `StreamWriter.write`."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(BUFFER):
            writer.write(data)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=BACKLOG, ssl=tls)
    return int(server.sockets[0].getsockname()[1])


async def serve_sock(tls: ssl.SSLContext | None) -> int:
    """`loop.sock_accept`, `sock_recv` and `sock_sendall`, a task for each connection."""
    loop = asyncio.get_running_loop()
    listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    listener.setblocking(False)
    tasks: set[asyncio.Task[None]] = set()

    async def handle(connection: socket.socket) -> None:
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := await loop.sock_recv(connection, BUFFER):
                await loop.sock_sendall(connection, data)

    async def accept() -> None:
        while True:
            connection, _ = await loop.sock_accept(listener)
            task = asyncio.ensure_future(handle(connection))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    task = asyncio.ensure_future(accept())
    tasks.add(task)
    return int(listener.getsockname()[1])


async def serve_datagrams(tls: ssl.SSLContext | None) -> int:
    """`asyncio.DatagramProtocol` on one socket for all clients."""
    loop = asyncio.get_running_loop()
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    # A message of every client must fit, or the kernel drops some and the client waits for ever. The usual
    # limit, net.core.rmem_max, has no room for a hundred of 8 KiB; root may pass it.
    try:
        listener.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, DATAGRAM_BUFFER)
    except PermissionError:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, DATAGRAM_BUFFER)
    listener.bind(("127.0.0.1", 0))
    listener.setblocking(False)
    # Read before: rloop detaches the socket object.
    port = int(listener.getsockname()[1])
    await loop.create_datagram_endpoint(DatagramEcho, sock=listener)
    return port


STYLES: dict[str, program.Style] = {
    "protocol": serve_protocol,
    "buffered": serve_buffered,
    "streams": serve_streams,
    "sock": serve_sock,
    "udp": serve_datagrams,
}


if __name__ == "__main__":
    program.run(__doc__, STYLES)
