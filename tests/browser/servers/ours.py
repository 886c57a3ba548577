"""The WebTransport server on uringcore; the package's table describes its behaviour by path.

python -m tests.browser.servers.ours --certificate FILE --key FILE --port PORT
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
from urllib.parse import parse_qsl, urlsplit

import uringcore
from uringcore.quic._errors import QuicError, StreamResetError, StreamStoppedError
from uringcore.webtransport import serve_webtransport


def tell(**what):
    print(json.dumps(what), flush=True)


async def each(session, bidirectional, unidirectional):
    """Calls a function for every stream of the client, each in its own task, until the session
    ends.
    """
    async with asyncio.TaskGroup() as group:

        async def take(streams, handle):
            async for stream in streams:
                group.create_task(quietly(handle(stream)))

        group.create_task(quietly(take(session.streams(), bidirectional)))
        group.create_task(quietly(take(session.uni_streams(), unidirectional)))


async def quietly(coroutine):
    """Suppresses errors caused by the peer or by the session's end."""
    with contextlib.suppress(QuicError):
        await coroutine


async def echo_stream(stream):
    async for data in stream:
        await stream.send(data)
    await stream.finish()


async def echo(session, query):
    async def answer(stream):
        reply = await session.open_uni_stream()
        async for data in stream:
            await reply.send(data)
        await reply.finish()

    async with asyncio.TaskGroup() as group:
        group.create_task(each(session, echo_stream, answer))
        group.create_task(quietly(datagrams(session, lambda datagram: datagram)))


async def datagrams(session, answer):
    async for datagram in session.datagrams():
        session.send_datagram(answer(datagram))


async def opens(session, query):
    stream = await session.open_stream()
    await stream.send(b"")
    await echo_stream(stream)


async def lengths(session, query):
    await datagrams(session, lambda datagram: str(len(datagram)).encode())


async def headers(session, query):
    said = {name.decode(): value.decode() for name, value in session.headers}
    said |= {":method": "CONNECT", ":protocol": "webtransport", ":scheme": "https"}
    said |= {":authority": session.authority, ":path": session.path}
    async with session.open_uni_stream() as stream:
        await stream.send(json.dumps(said).encode())


async def closes(session, query):
    await (await session.accept_uni_stream()).read(1)
    session.close(int(query["code"]), query.get("reason", ""))


async def stops(session, query):
    code = int(query["code"])

    async def stop(stream):
        await stream.read(1)
        stream.stop(code)

    async def stop_and_reset(stream):
        await stop(stream)
        stream.reset(code)

    await each(session, stop_and_reset, stop)


async def resets(session, query):
    stream = await session.open_uni_stream()
    await stream.send(b"hello")
    stream.reset(int(query["code"]))


async def record(session, query):
    token = query["token"]

    async def read(stream, kind):
        if await stream.read(1):
            tell(token=token, event="begin", kind=kind)
        try:
            async for _ in stream:
                pass
        except StreamResetError as reset:
            tell(token=token, event="reset", kind=kind, code=reset.code)
        else:
            tell(token=token, event="end", kind=kind)

    async def write(stream, kind):
        await stream.send(b"hello")
        try:
            while True:
                await stream.send(b"more")
                await asyncio.sleep(0.05)
        except StreamStoppedError as stopped:
            tell(token=token, event="stopped", kind=kind, code=stopped.code)

    async with asyncio.TaskGroup() as group:
        bidirectional = await session.open_stream()
        group.create_task(quietly(read(bidirectional, "bidirectional")))
        group.create_task(quietly(write(bidirectional, "bidirectional")))
        group.create_task(quietly(write(await session.open_uni_stream(), "unidirectional")))
        group.create_task(
            each(
                session,
                lambda stream: read(stream, "bidirectional"),
                lambda stream: read(stream, "unidirectional"),
            )
        )
        await session.wait_closed()
        if session.close_code is None:
            tell(token=token, event="lost")
        else:
            tell(token=token, event="closed", code=session.close_code, reason=session.close_reason)


PATHS = {
    "/echo": echo,
    "/opens": opens,
    "/lengths": lengths,
    "/headers": headers,
    "/cookie": echo,
    "/close": closes,
    "/stops": stops,
    "/resets": resets,
    "/record": record,
}


async def answer(request):
    """Serves one session, from its request to its end."""
    url = urlsplit(request.path)
    query = dict(parse_qsl(url.query))
    if url.path not in PATHS:
        request.refuse(int(query["status"]) if url.path == "/status" else 404)
        return
    cookie = [(b"set-cookie", b"foo=bar")] if url.path == "/cookie" else []
    async with await request.accept(headers=cookie) as session:
        await quietly(PATHS[url.path](session, query))
        await session.wait_closed()


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--certificate", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    pair = (options.certificate, options.key)
    async with serve_webtransport("127.0.0.1", options.port, certificate=pair) as server:
        tell(port=server.address[1])
        serving = asyncio.create_task(serve(server))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
        # An error ends it too, so that the test sees it.
        with contextlib.suppress(asyncio.CancelledError):
            await serving


async def serve(server):
    async with asyncio.TaskGroup() as group:
        async for request in server:
            group.create_task(quietly(answer(request)))


if __name__ == "__main__":
    uringcore.run(main())
