"""aiopquic, which wraps picoquic: its `connect_webtransport` and `serve_webtransport`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from aiopquic.asyncio.webtransport import (
    WebTransportError,
    connect_webtransport,
    serve_webtransport,
)
from aiopquic.quic.events import (
    WebTransportDatagramReceived,
    WebTransportNewStream,
    WebTransportSessionClosed,
    WebTransportStopSending,
    WebTransportStreamReset,
)

from tests.interop.webtransport.session import Ended, Handler, Refused, Reset

LACKING: dict[str, str] = {}
run = asyncio.run


class WTStream:
    """A stream by its number."""

    def __init__(self, session: WTSession, stream_id: int) -> None:
        self.session = session.session
        self.stream_id = stream_id
        self.stop_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.events = self.session.receive_stream_data(stream_id)

    async def send(self, data: bytes, end: bool = False) -> None:
        await self.session.send_stream_data_drained(self.stream_id, data, end)

    async def read(self) -> bytes:
        async for event in self.events:
            if isinstance(event, WebTransportStreamReset):
                raise Reset(event.error_code)
            if event.data or event.end_stream:
                return bytes(event.data)
        return b""

    async def reset(self, code: int) -> None:
        self.session.reset_stream(self.stream_id, code)

    async def stop(self, code: int) -> None:
        self.session.stop_stream(self.stream_id, code)

    async def stopped(self) -> int:
        return await self.stop_code


class WTSession:
    """A session, with a task that dispatches its events."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.protocol = session.negotiated_protocol
        self.streams: dict[bool, asyncio.Queue[WTStream | None]] = {
            True: asyncio.Queue(),
            False: asyncio.Queue(),
        }
        self.known: dict[int, WTStream] = {}
        self.datagrams: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.end: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        self.sorting = asyncio.ensure_future(self._sort())

    async def _sort(self) -> None:
        async for event in self.session.events():
            if isinstance(event, WebTransportNewStream):
                stream = self._stream(event.stream_id)
                self.streams[event.stream_id & 2 == 0].put_nowait(stream)
            elif isinstance(event, WebTransportDatagramReceived):
                self.datagrams.put_nowait(bytes(event.data))
            elif isinstance(event, WebTransportStopSending) and event.stream_id in self.known:
                self.known[event.stream_id].stop_code.set_result(event.error_code)
            elif isinstance(event, WebTransportSessionClosed):
                self.end.set_result((event.error_code, bytes(event.reason).decode()))
                for queue in (*self.streams.values(), self.datagrams):
                    queue.put_nowait(None)

    def _stream(self, stream_id: int) -> WTStream:
        stream = self.known[stream_id] = WTStream(self, stream_id)
        return stream

    async def open(self, bidirectional: bool) -> WTStream:
        return self._stream(await self.session.create_stream(bidirectional))

    async def accept(self, bidirectional: bool) -> WTStream:
        stream = await self.streams[bidirectional].get()
        if stream is None:
            raise Ended
        return stream

    async def send_datagram(self, data: bytes) -> None:
        self.session.send_datagram_frame(data)

    async def datagram(self) -> bytes:
        found = await self.datagrams.get()
        if found is None:
            raise Ended
        return found

    async def close(self, code: int, reason: str) -> None:
        self.session.close(code, reason.encode())

    async def closed(self) -> tuple[int, str]:
        return await asyncio.shield(self.end)


@contextlib.asynccontextmanager
async def connect(
    host: str, port: int, path: str, authority: Path, protocols: list[str]
) -> AsyncIterator[WTSession]:
    opening = connect_webtransport(
        host,
        port,
        path,
        sni="localhost",
        wt_available_protocols=protocols or None,
        ca_file=str(authority),
    )
    try:
        raw = await opening.__aenter__()
    except WebTransportError as error:
        raise Refused(None) from error
    session = WTSession(raw)
    try:
        yield session
    finally:
        await opening.__aexit__(None, None, None)
        session.sorting.cancel()


async def serve(
    host: str, port: int, path: str, certificates: Path, protocols: list[str], handler: Handler
) -> Callable[[], Any]:
    async def handle(session: Any) -> None:
        await handler(WTSession(session))

    server = await serve_webtransport(
        host,
        port,
        path,
        handler=handle,
        cert_file=str(certificates / "cert.pem"),
        key_file=str(certificates / "priv.key"),
        wt_supported_protocols=protocols,
    )
    return server.aclose
