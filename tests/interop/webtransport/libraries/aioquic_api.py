"""WebTransport through aioquic's API: `H3Connection(enable_webtransport=True)`, which is draft 02.

This module implements capsules and error codes, which that API leaves to the program.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import uringcore
from tests.interop.webtransport.session import Ended, Handler, Refused, Reset
from uringcore.asyncio import QuicConnectionProtocol
from uringcore.asyncio import connect as quic_connect
from uringcore.asyncio import serve as quic_serve
from uringcore.h3.connection import H3Connection
from uringcore.h3.events import (
    DatagramReceived,
    DataReceived,
    HeadersReceived,
    WebTransportStreamDataReceived,
)
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.events import (
    ConnectionTerminated,
    HandshakeCompleted,
    ProtocolNegotiated,
    StopSendingReceived,
    StreamDataReceived,
    StreamReset,
)

__all__ = ["LACKING", "Connection", "connect", "run", "serve"]

LACKING = {"wt-protocol": "draft 02 has no negotiation of protocols"}
CLOSE_SESSION = 0x2843
FIRST_CODE = 0x52E4A40FA8DB
DRAFT = (b"sec-webtransport-http3-draft", b"draft02")


def run(main: Any) -> None:
    uringcore.run(main)


def to_http(code: int) -> int:
    """Returns the HTTP/3 code of an application's code; every thirty-first HTTP/3 code is reserved."""
    return FIRST_CODE + code + code // 0x1E


def from_http(code: int) -> int:
    shifted = code - FIRST_CODE
    return shifted - shifted // 0x1F


class WTStream:
    """One stream: its data is in a queue, followed by the exception that ends it, or by nothing at
    the end.
    """

    def __init__(self, connection: Connection, stream_id: int) -> None:
        self.connection = connection
        self.stream_id = stream_id
        self.heard: asyncio.Queue[bytes | Exception] = asyncio.Queue()
        self.stop_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def send(self, data: bytes, end: bool = False) -> None:
        self.connection._quic.send_stream_data(self.stream_id, data, end)
        self.connection.transmit()

    async def read(self) -> bytes:
        found = await self.heard.get()
        if isinstance(found, Exception):
            raise found
        return found

    async def reset(self, code: int) -> None:
        self.connection._quic.reset_stream(self.stream_id, to_http(code))
        self.connection.transmit()

    async def stop(self, code: int) -> None:
        self.connection._quic.stop_stream(self.stream_id, to_http(code))
        self.connection.transmit()

    async def stopped(self) -> int:
        return await self.stop_code


class WTSession:
    """One session: a CONNECT stream and the streams and datagrams that belong to it."""

    protocol = None

    def __init__(self, connection: Connection, session_id: int) -> None:
        self.connection = connection
        self.session_id = session_id
        self.streams: dict[bool, asyncio.Queue[WTStream | None]] = {
            True: asyncio.Queue(),
            False: asyncio.Queue(),
        }
        self.datagrams: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.end: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        self.answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.capsules = b""
        self.has_left = False

    async def open(self, bidirectional: bool) -> WTStream:
        http = self.connection.http
        assert http is not None
        stream_id = http.create_webtransport_stream(self.session_id, not bidirectional)
        return self.connection.stream(stream_id)

    async def accept(self, bidirectional: bool) -> WTStream:
        stream = await self.streams[bidirectional].get()
        if stream is None:
            raise Ended
        return stream

    async def send_datagram(self, data: bytes) -> None:
        assert self.connection.http is not None
        self.connection.http.send_datagram(self.session_id, data)
        self.connection.transmit()

    async def datagram(self) -> bytes:
        found = await self.datagrams.get()
        if found is None:
            raise Ended
        return found

    async def close(self, code: int, reason: str) -> None:
        content = code.to_bytes(4, "big") + reason.encode()
        self._leave(varint(CLOSE_SESSION) + varint(len(content)) + content)
        # The connection's close would drop data in flight.
        await asyncio.shield(self.end)

    def _leave(self, capsule: bytes) -> None:
        """Ends our side of the CONNECT stream, once."""
        if not self.has_left:
            self.has_left = True
            assert self.connection.http is not None
            self.connection.http.send_data(self.session_id, capsule, True)
            self.connection.transmit()

    async def closed(self) -> tuple[int, str]:
        return await asyncio.shield(self.end)

    def hear_capsules(self, data: bytes, ended: bool) -> None:
        """Processes bytes of the CONNECT stream, whose end ends the session."""
        self.capsules += data
        while (found := capsule(self.capsules)) is not None:
            kind, content, self.capsules = found
            if kind == CLOSE_SESSION:
                self.ended(int.from_bytes(content[:4], "big"), content[4:].decode())
        if ended:
            self._leave(b"")
            self.ended(0, "")

    def ended(self, code: int, reason: str) -> None:
        if not self.end.done():
            self.end.set_result((code, reason))
            for queue in (*self.streams.values(), self.datagrams):
                queue.put_nowait(None)


class Connection(QuicConnectionProtocol):
    """One connection, with at most one session for a client."""

    tells_replies = True
    """True if the library attributes replies on its own streams to WebTransport."""
    path = ""
    handler: Handler | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.http: H3Connection | None = None
        self.ready = asyncio.get_running_loop().create_future()
        self.sessions: dict[int, WTSession] = {}
        self.known: dict[int, WTStream] = {}
        self.tasks: set[asyncio.Future[None]] = set()

    def stream(self, stream_id: int) -> WTStream:
        return self.known.setdefault(stream_id, WTStream(self, stream_id))

    def quic_event_received(self, event: Any) -> None:
        if isinstance(event, ProtocolNegotiated):
            self.http = H3Connection(self._quic, enable_webtransport=True)
        elif isinstance(event, HandshakeCompleted):
            self.ready.set_result(None)
        elif isinstance(event, ConnectionTerminated):
            for session in self.sessions.values():
                session.ended(event.error_code, event.reason_phrase)
        elif isinstance(event, StreamReset) and event.stream_id in self.known:
            self.known[event.stream_id].heard.put_nowait(Reset(from_http(event.error_code)))
        elif isinstance(event, StopSendingReceived) and event.stream_id in self.known:
            stop_code = self.known[event.stream_id].stop_code
            if not stop_code.done():
                stop_code.set_result(from_http(event.error_code))
        elif self._is_reply(event):
            self._heard(self.known[event.stream_id], event.data, event.end_stream)
            return
        if self.http is not None:
            for http_event in self.http.handle_event(event):
                self._http_event(http_event)
        self.transmit()

    def _is_reply(self, event: Any) -> bool:
        is_ours = isinstance(event, StreamDataReceived) and event.stream_id in self.known
        return is_ours and not self.tells_replies and self._is_own(event.stream_id)

    def _is_own(self, stream_id: int) -> bool:
        return (stream_id & 1 == 0) == self._quic.configuration.is_client

    def _http_event(self, event: Any) -> None:
        if isinstance(event, HeadersReceived):
            self._head(event)
        elif isinstance(event, DataReceived):
            if (session := self.sessions.get(event.stream_id)) is not None:
                session.hear_capsules(event.data, event.stream_ended)
        elif isinstance(event, DatagramReceived):
            if (session := self.sessions.get(event.stream_id)) is not None:
                session.datagrams.put_nowait(bytes(event.data))
        elif isinstance(event, WebTransportStreamDataReceived):
            self._stream_data(event)

    def _head(self, event: Any) -> None:
        fields = dict(event.headers)
        if (session := self.sessions.get(event.stream_id)) is not None:
            if not session.answer.done():
                session.answer.set_result(int(fields[b":status"]))
            if event.stream_ended:
                session.ended(0, "")
            return
        assert self.http is not None
        if fields.get(b":protocol") != b"webtransport" or fields[b":path"].decode() != self.path:
            self.http.send_headers(event.stream_id, [(b":status", b"404")], end_stream=True)
            return
        session = self.sessions[event.stream_id] = WTSession(self, event.stream_id)
        self.http.send_headers(event.stream_id, [(b":status", b"200"), DRAFT])
        assert self.handler is not None
        task = asyncio.ensure_future(type(self).handler(session))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _stream_data(self, event: Any) -> None:
        is_new = event.stream_id not in self.known
        stream = self.stream(event.stream_id)
        session = self.sessions.get(event.session_id)
        if is_new and session is not None:
            session.streams[event.stream_id & 2 == 0].put_nowait(stream)
        self._heard(stream, event.data, event.stream_ended)

    def _heard(self, stream: WTStream, data: bytes, ended: bool) -> None:
        if data:
            stream.heard.put_nowait(bytes(data))
        if ended:
            stream.heard.put_nowait(b"")


@contextlib.asynccontextmanager
async def connect(
    host: str, port: int, path: str, authority: Path, protocols: list[str]
) -> AsyncIterator[WTSession]:
    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=["h3"], max_datagram_frame_size=65536
    )
    configuration.load_verify_locations(str(authority))
    async with quic_connect(
        host, port, configuration=configuration, create_protocol=Connection
    ) as connection:
        await connection.ready
        session_id = connection._quic.get_next_available_stream_id()
        session = connection.sessions[session_id] = WTSession(connection, session_id)
        fields = [
            (b":method", b"CONNECT"),
            (b":scheme", b"https"),
            (b":authority", f"{host}:{port}".encode()),
            (b":path", path.encode()),
            (b":protocol", b"webtransport"),
            (b"sec-webtransport-http3-draft02", b"1"),
        ]
        connection.http.send_headers(session_id, fields)
        connection.transmit()
        status = await session.answer
        if not 200 <= status < 300:
            raise Refused(status)
        yield session


async def serve(
    host: str, port: int, path: str, certificates: Path, protocols: list[str], handler: Handler
) -> Callable[[], Any]:
    configuration = QuicConfiguration(
        is_client=False, alpn_protocols=["h3"], max_datagram_frame_size=65536
    )
    configuration.load_cert_chain(certificates / "cert.pem", certificates / "priv.key")
    Served = type("Served", (Connection,), {"path": path, "handler": staticmethod(handler)})
    server = await quic_serve(host, port, configuration=configuration, create_protocol=Served)
    return server.close


def varint(value: int) -> bytes:
    if value < 0x40:
        return bytes([value])
    return (value | 0x4000).to_bytes(2, "big")


def capsule(data: bytes) -> tuple[int, bytes, bytes] | None:
    """Returns type and content of the first capsule, and the rest; nothing while it is incomplete."""
    at, parts = 0, []
    for _ in range(2):
        if at >= len(data):
            return None
        size = 1 << (data[at] >> 6)
        if at + size > len(data):
            return None
        parts.append(int.from_bytes(data[at : at + size], "big") & ((1 << (8 * size - 2)) - 1))
        at += size
    kind, length = parts
    if at + length > len(data):
        return None
    return kind, data[at : at + length], data[at + length :]
