"""uringcore's own WebTransport, `uringcore.webtransport`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import uringcore
from tests.interop.webtransport.session import Ended, Handler, Refused, Reset
from uringcore.quic import ClientConfig, QuicError, StreamResetError, StreamStoppedError
from uringcore.webtransport import (
    SessionRefusedError,
    connect_webtransport,
    serve_webtransport,
)

LACKING: dict[str, str] = {}
run = uringcore.run


class WTStream:
    """A stream of any kind."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    async def send(self, data: bytes, end: bool = False) -> None:
        if data:
            await self.stream.send_all(data)
        if end:
            await self.stream.finish()

    async def read(self) -> bytes:
        try:
            found: bytes = await self.stream.read(65536)
        except StreamResetError as error:
            raise Reset(error.code) from error
        return found

    async def reset(self, code: int) -> None:
        self.stream.reset(code)

    async def stop(self, code: int) -> None:
        self.stream.stop(code)

    async def stopped(self) -> int:
        try:
            await self.stream.wait_finished()
        except StreamStoppedError as error:
            return error.code
        raise ValueError("the stream was finished")


class WTSession:
    """A session."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.protocol = session.protocol

    async def open(self, bidirectional: bool) -> WTStream:
        opened = self.session.open_stream() if bidirectional else self.session.open_uni_stream()
        return WTStream(await opened)

    async def accept(self, bidirectional: bool) -> WTStream:
        session = self.session
        try:
            accepting = session.accept_stream() if bidirectional else session.accept_uni_stream()
            return WTStream(await accepting)
        except QuicError as error:
            raise Ended from error

    async def send_datagram(self, data: bytes) -> None:
        self.session.send_datagram(data)

    async def datagram(self) -> bytes:
        try:
            async for datagram in self.session.datagrams():
                return bytes(datagram)
        except QuicError as error:
            raise Ended from error
        raise Ended

    async def close(self, code: int, reason: str) -> None:
        self.session.close(code, reason)

    async def closed(self) -> tuple[int, str]:
        await self.session.wait_closed()
        return self.session.close_code, self.session.close_reason


@contextlib.asynccontextmanager
async def connect(
    host: str, port: int, path: str, authority: Path, protocols: list[str]
) -> AsyncIterator[WTSession]:
    config = ClientConfig(authorities=authority)
    opening = connect_webtransport(f"https://{host}:{port}{path}", config, protocols=protocols)
    try:
        session = await opening
    except SessionRefusedError as error:
        raise Refused(error.status) from error
    async with session:
        yield WTSession(session)


async def serve(
    host: str, port: int, path: str, certificates: Path, protocols: list[str], handler: Handler
) -> Callable[[], Any]:
    async def handle(session: Any) -> None:
        await handler(WTSession(session))

    certificate = (str(certificates / "cert.pem"), str(certificates / "priv.key"))
    stack = contextlib.AsyncExitStack()
    await stack.enter_async_context(
        serve_webtransport(
            host,
            port,
            certificate=certificate,
            paths=[path],
            protocols=protocols,
            handler=handle,
        )
    )
    return stack.aclose
