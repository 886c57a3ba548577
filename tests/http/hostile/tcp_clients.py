"""Hostile clients over TCP with TLS: requests of HTTP/1.1 and of HTTP/2 with one interface.

They run on asyncio's loop. An `Exchange` is a request and its response. Over HTTP/1.1 each has a connection
of its own, over HTTP/2 a hundred share one. A client that does not read has small buffers, so that the
server's are full soon.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import hpack

from tests.http.http2.client import PREFACE, frame
from tests.http.http3_bytes import prefixed
from tests.http.raw_client import WAIT_SECONDS

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = 0, 1, 2, 3, 4
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION, PRIORITY_UPDATE = 6, 7, 8, 9, 16
END_STREAM, ACK, END_HEADERS = 1, 1, 4
NO_ERROR, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 0, 7, 8, 11
HEADER_TABLE_SIZE, INITIAL_WINDOW_SIZE, MAX_HEADER_LIST_SIZE = 1, 4, 6

STREAMS = 100
"""The requests at once that a connection of HTTP/2 may have."""
BUFFER = 8192

Fields = Iterable[tuple[bytes, bytes]]


async def until(condition: Callable[[], Any], seconds: float = WAIT_SECONDS) -> Any:
    """Waits until a condition holds; returns its value."""

    async def holds() -> Any:
        while not (found := condition()):
            await asyncio.sleep(0.01)
        return found

    return await asyncio.wait_for(holds(), seconds)


class Connection:
    """A TLS connection."""

    def __init__(self) -> None:
        self.is_closed = False
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, server: Any, protocol: str, *, reads: bool = True) -> None:
        trust = ssl.create_default_context(cafile=server.certificate)
        trust.set_alpn_protocols([protocol])
        sock = socket.socket()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not reads:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", server.port))
        self.socket = sock
        self.reader, self.writer = await asyncio.open_connection(
            sock=sock, ssl=trust, server_hostname="localhost", limit=BUFFER
        )

    def start_reading(self) -> None:
        self._tasks.append(asyncio.ensure_future(self._read()))

    async def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := await self.reader.read(65_536):
                self.received(data)
        self.is_closed = True

    def received(self, data: bytes) -> None:
        raise NotImplementedError

    async def write(self, data: bytes) -> None:
        """Writes, and waits for space; drops the data if the server has closed the connection."""
        with contextlib.suppress(OSError):
            self.writer.write(data)
            await self.writer.drain()
        # Without pressure `drain` returns at once.
        await asyncio.sleep(0)

    def abort(self) -> None:
        """Resets the connection."""
        # The server may have closed it already.
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.writer.transport.abort()


class Exchange:
    """A request and its response."""

    status = 0
    received_bytes = 0
    is_over = False
    code: int | None = None
    """The code with which the server has reset the stream (HTTP/2)."""

    async def over(self) -> Exchange:
        """Waits for the end of the exchange."""
        await until(lambda: self.is_over)
        return self

    async def send(self, content: bytes) -> None:
        """Sends content, as far as the server takes it, until the exchange is over."""
        raise NotImplementedError

    async def finish(self) -> None:
        """Ends the content."""
        raise NotImplementedError

    async def take(self, size: int) -> None:
        """Reads this many more bytes of a response that is not read by itself."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Gives the exchange up."""
        raise NotImplementedError


class Http1(Connection, Exchange):
    """One request on a connection."""

    def __init__(self) -> None:
        super().__init__()
        self._head = b""

    async def ask(self, method: str, path: str, fields: Fields = (), *, content: bool) -> None:
        lines = [f"{method} {path} HTTP/1.1".encode(), b"Host: localhost"]
        lines += [name + b": " + value for name, value in fields]
        if content:
            lines.append(b"Transfer-Encoding: chunked")
        await self.write(b"\r\n".join(lines) + b"\r\n\r\n")

    def received(self, data: bytes) -> None:
        if not self.status:
            self._head += data
            if b"\r\n\r\n" not in self._head:
                return
            head, _, data = self._head.partition(b"\r\n\r\n")
            self.status = int(head.split(b" ", 2)[1])
        self.received_bytes += len(data)

    async def send(self, content: bytes) -> None:
        await self.write(b"%x\r\n%b\r\n" % (len(content), content))

    async def finish(self) -> None:
        await self.write(b"0\r\n\r\n")

    async def take(self, size: int) -> None:
        data = await self.reader.read(size)
        self.is_closed = self.is_closed or not data
        self.received_bytes += len(data)

    def cancel(self) -> None:
        self.abort()

    @property
    def is_over(self) -> bool:  # type: ignore[override]
        """True at the end of the connection."""
        return self.is_closed


class Http2(Connection):
    """A connection with many requests."""

    def __init__(self) -> None:
        super().__init__()
        self.exchanges: dict[int, Http2Exchange] = {}
        self.goaways: list[int] = []
        """The error code of each GOAWAY."""
        self.credit = 65_535
        self.stream_credit = 65_535
        self.frames: dict[int, int] = {}
        """The number of received frames of each type."""
        self.settings_values: dict[int, int] = {}
        self._decoder = hpack.Decoder()
        self._rest = b""
        self._next = 1

    async def begin(self, server: Any, settings: dict[int, int] | None = None) -> None:
        await self.open(server, "h2")
        self._decoder.max_allowed_table_size = (settings or {}).get(HEADER_TABLE_SIZE, 4096)
        values = b"".join(struct.pack(">HI", *pair) for pair in (settings or {}).items())
        await self.write(PREFACE + frame(SETTINGS, 0, 0, values))
        self.start_reading()
        await until(lambda: self.frames.get(SETTINGS) or self.is_closed)

    def next_stream(self) -> int:
        found, self._next = self._next, self._next + 2
        return found

    async def ask(
        self, method: str, path: str, fields: Fields = (), *, end: bool = True
    ) -> Http2Exchange:
        exchange, data = self.prepare(method, path, fields, end=end)
        await self.write(data)
        return exchange

    def prepare(
        self, method: str, path: str, fields: Fields = (), *, end: bool = True
    ) -> tuple[Http2Exchange, bytes]:
        """Returns a request and its frame."""
        exchange = Http2Exchange(self, self.next_stream())
        self.exchanges[exchange.stream_id] = exchange
        flags = END_HEADERS | (END_STREAM if end else 0)
        block = request_block(method, path, fields)
        return exchange, frame(HEADERS, flags, exchange.stream_id, block)

    def received(self, data: bytes) -> None:
        rest = self._rest + data
        while len(rest) >= 9 and len(rest) >= (size := 9 + int.from_bytes(rest[:3], "big")):
            stream_id = int.from_bytes(rest[5:9], "big")
            self._frame(rest[3], rest[4], stream_id, rest[9:size])
            rest = rest[size:]
        self._rest = rest

    def _frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        self.frames[kind] = self.frames.get(kind, 0) + 1
        exchange = self.exchanges.get(stream_id)
        if kind == HEADERS:
            lines = dict(self._decoder.decode(payload))
            payload = lines.get(":status", "0").encode()
        if kind == GOAWAY:
            self.goaways.append(int.from_bytes(payload[4:8], "big"))
        elif kind == SETTINGS and not flags & ACK:
            pairs = struct.iter_unpack(">HI", payload)
            self.settings_values.update(pairs)
            self.stream_credit = self.settings_values.get(INITIAL_WINDOW_SIZE, 65_535)
            self.writer.write(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.writer.write(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE and stream_id == 0:
            self.credit += int.from_bytes(payload, "big")
        elif exchange is not None:
            exchange.frame(kind, flags, payload)


class Http2Exchange(Exchange):
    """A request on a stream of a connection."""

    def __init__(self, connection: Http2, stream_id: int) -> None:
        self.connection = connection
        self.stream_id = stream_id
        self._credit = 0
        self._is_ended = False

    @property
    def is_over(self) -> bool:  # type: ignore[override]
        """True if the response has ended, or the stream was reset."""
        return self._is_ended or self.code is not None or self.connection.is_closed

    def frame(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == HEADERS and not self.status:
            self.status = int(payload)
        elif kind == DATA:
            self.received_bytes += len(payload)
        elif kind == WINDOW_UPDATE:
            self._credit += int.from_bytes(payload, "big")
        elif kind == RST_STREAM:
            self.code = int.from_bytes(payload, "big")
        if kind in (HEADERS, DATA) and flags & END_STREAM:
            self._is_ended = True

    async def send(self, content: bytes) -> None:
        while content and not self.is_over:
            connection = self.connection
            room = min(connection.credit, connection.stream_credit + self._credit, 16_384)
            if room <= 0:
                await asyncio.sleep(0.01)
                continue
            piece, content = content[:room], content[room:]
            connection.credit -= len(piece)
            self._credit -= len(piece)
            await connection.write(frame(DATA, 0, self.stream_id, piece))

    async def finish(self) -> None:
        if self.code is None:
            await self.connection.write(frame(DATA, END_STREAM, self.stream_id))

    async def take(self, size: int) -> None:
        wanted = self.received_bytes + size
        credit = size.to_bytes(4, "big")
        await self.connection.write(
            frame(WINDOW_UPDATE, 0, self.stream_id, credit) + frame(WINDOW_UPDATE, 0, 0, credit)
        )
        await until(lambda: self.received_bytes >= wanted or self.is_over)

    def cancel(self) -> None:
        code = CANCEL.to_bytes(4, "big")
        self.connection.writer.write(frame(RST_STREAM, 0, self.stream_id, code))


def literal(name: bytes, value: bytes, first: int = 0) -> bytes:
    """Returns a field line with a literal name (RFC 7541 section 6.2); with 0x40 it enters the table."""
    return bytes([first]) + prefixed(len(name), 7) + name + prefixed(len(value), 7) + value


def request_block(method: str, path: str, fields: Fields = ()) -> bytes:
    """Returns an encoded header section of literals."""
    lines = [
        (b":method", method.encode()),
        (b":scheme", b"https"),
        (b":path", path.encode()),
        (b":authority", b"localhost"),
        *fields,
    ]
    return b"".join(literal(*line) for line in lines)


class Clients:
    """Opens exchanges over a version of HTTP, and closes them at the end."""

    def __init__(self, server: Any, version: str) -> None:
        self._server = server
        self.version = version
        self.connections: list[Http1 | Http2] = []

    async def exchanges(
        self,
        count: int,
        path: str,
        method: str = "GET",
        *,
        content: bool = False,
        reads: bool = True,
        window: int = 0,
    ) -> list[Exchange]:
        """Begins requests. Without ``reads`` the server may send ``window`` bytes of each response."""
        if self.version == "http1":
            return list(
                await asyncio.gather(
                    *(self._http1(path, method, content, reads) for _ in range(count))
                )
            )
        found: list[Exchange] = []
        settings = None if reads else {INITIAL_WINDOW_SIZE: window}
        while len(found) < count:
            connection = await self.http2(settings)
            for _ in range(min(STREAMS, count - len(found))):
                found.append(await connection.ask(method, path, end=not content))
        return found

    async def http2(self, settings: dict[int, int] | None = None) -> Http2:
        connection = Http2()
        await connection.begin(self._server, settings)
        self.connections.append(connection)
        return connection

    async def _http1(self, path: str, method: str, content: bool, reads: bool) -> Http1:
        connection = Http1()
        await connection.open(self._server, "http/1.1", reads=reads)
        self.connections.append(connection)
        await connection.ask(method, path, content=content)
        if reads:
            connection.start_reading()
        return connection

    async def close(self) -> None:
        for connection in self.connections:
            await connection.close()


@contextlib.asynccontextmanager
async def clients(server: Any, version: str) -> AsyncIterator[Clients]:
    """Clients of a version."""
    found = Clients(server, version)
    try:
        yield found
    finally:
        await found.close()
