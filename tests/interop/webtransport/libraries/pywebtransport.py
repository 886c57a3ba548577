"""pywebtransport."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from pywebtransport import (
    ClientConfig,
    ServerConfig,
    StreamError,
    WebTransportClient,
    WebTransportError,
    WebTransportServer,
)

from tests.interop.webtransport.session import Ended, Handler, Lacking, Refused, Reset

LACKING = {
    "client wt-close": "pywebtransport does not report the code of a session's close",
    "server wt-closed": "pywebtransport does not report the code of a session's close",
    "client wt-codes": "pywebtransport does not report the code of a STOP_SENDING",
}
run = asyncio.run


class WTStream:
    """A stream of any kind."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    async def send(self, data: bytes, end: bool = False) -> None:
        await self.stream.write_all(data=data, end_stream=end)

    async def read(self) -> bytes:
        try:
            return bytes(await self.stream.read(max_size=65536))
        except StreamError as error:
            raise Reset(error.error_code) from error

    async def reset(self, code: int) -> None:
        await self.stream.reset(error_code=code)

    async def stop(self, code: int) -> None:
        await self.stream.stop_receiving(error_code=code)

    async def stopped(self) -> int:
        raise Lacking(LACKING["client wt-codes"])


class WTSession:
    """A session."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.protocol = session.wt_protocol
        self.streams = {
            True: session.incoming_bidirectional_streams(),
            False: session.incoming_unidirectional_streams(),
        }

    async def open(self, bidirectional: bool) -> WTStream:
        if bidirectional:
            return WTStream(await self.session.create_bidirectional_stream())
        return WTStream(await self.session.create_unidirectional_stream())

    async def accept(self, bidirectional: bool) -> WTStream:
        async for stream in self.streams[bidirectional]:
            return WTStream(stream)
        raise Ended

    async def send_datagram(self, data: bytes) -> None:
        await self.session.send_datagram(data=data)

    async def datagram(self) -> bytes:
        try:
            return bytes(await self.session.read_datagram())
        except WebTransportError as error:
            raise Ended from error

    async def close(self, code: int, reason: str) -> None:
        await self.session.close(error_code=code, reason=reason)

    async def closed(self) -> tuple[int, str]:
        """The library has no event to wait for, and nothing can be read then."""
        while not self.session.is_closed:
            await asyncio.sleep(0.02)
        return 0, ""


@contextlib.asynccontextmanager
async def connect(
    host: str, port: int, path: str, authority: Path, protocols: list[str]
) -> AsyncIterator[WTSession]:
    config = ClientConfig(ca_certs=str(authority))
    async with WebTransportClient(config=config) as client:
        try:
            session = await client.connect(
                url=f"https://{host}:{port}{path}", wt_available_protocols=protocols or None
            )
        except WebTransportError as error:
            raise Refused(None) from error
        yield WTSession(session)


async def serve(
    host: str, port: int, path: str, certificates: Path, protocols: list[str], handler: Handler
) -> Callable[[], Any]:
    config = ServerConfig(
        bind_host=host,
        bind_port=port,
        certfile=str(certificates / "cert.pem"),
        keyfile=str(certificates / "priv.key"),
    )
    server = WebTransportServer(config=config)
    await server.__aenter__()
    await server.listen()
    tasks: set[asyncio.Future[None]] = set()

    def start(work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def connections() -> None:
        async for connection in server.incoming_connections():
            start(sessions(connection))

    async def sessions(connection: Any) -> None:
        async for session in connection.incoming_sessions():
            start(answer(session))

    async def answer(session: Any) -> None:
        if session.path != path:
            await session.reject(status_code=404)
            return
        offered = session.wt_available_protocols or []
        chosen = next((one for one in protocols if one in offered), None)
        await session.accept(wt_protocol=chosen)
        wrapped = WTSession(session)
        wrapped.protocol = chosen
        await handler(wrapped)

    start(connections())
    return server.close
