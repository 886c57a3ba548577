"""A user's program with sessions: the QUIC tests' ``test_typing`` checks and runs it."""

from __future__ import annotations

import asyncio
import dataclasses

from uringcore import quic, webtransport
from uringcore.quic.workers import PortWorker

Refusals = dict[str, int]


async def handle(session: webtransport.Session) -> None:
    async for stream in session.streams():
        async with stream:
            line: bytes = await stream.read()
            await stream.send(line + (session.protocol or "").encode())


async def ask(session: webtransport.Session, question: bytes) -> bytes:
    async with session.open_stream() as stream:
        await stream.send(question)
        await stream.finish()
        reply: bytes = await stream.read()
    return reply


async def several(first: webtransport.Session) -> tuple[bytes, Refusals]:
    refusals: Refusals = {}
    async with first.open_session("/second", protocols=["loud"]) as second:
        reply = await ask(second, b"how ")
    try:
        third = await first.open_session("/nowhere", headers=[("x-one", "1")], timeout=5)
        third.close(1, "not expected")
    except webtransport.SessionRefusedError as refused:
        refusals["/nowhere"] = refused.status
    except webtransport.WebTransportError as error:
        refusals[error.reason] = error.code
    counted: int = first.stats()["streams_opened"]
    assert counted == 0 and first.peer_address is not None
    return reply, refusals


async def serve_worker(worker: PortWorker, settings: quic.ServerConfig) -> None:
    serving = webtransport.serve(config=settings, workers=worker)
    async with serving as server:
        async for request in server:
            session: webtransport.Session = await request.accept()
            server.reload(dataclasses.replace(settings, stateless_reset_key=[bytes(32)]))
            session.close()
            break
        await server.drain(timeout=30)


async def main(files: tuple[str, str], authorities: str) -> tuple[bytes, Refusals]:
    serving = webtransport.serve_webtransport(
        "127.0.0.1",
        0,
        certificate=files,
        paths=["/first", "/second"],
        protocols=["loud"],
        handler=handle,
        max_sessions=3,
    )
    async with serving as server:
        host, port = server.address
        config = quic.ClientConfig(authorities=authorities, server_name="localhost")
        url = f"https://{host}:{port}/first"
        async with webtransport.connect_webtransport(url, config) as session:
            return await asyncio.wait_for(several(session), 30)
