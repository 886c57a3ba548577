"""Applications for the server's tests: sessions through ASGI messages, and beside HTTP and WebSocket."""

from __future__ import annotations

import asyncio
import gc
import json
import os

from uringcore._uringcore import Stream
from uringcore.webtransport._session_lifecycle import SessionState


async def app(scope, receive, send):
    """Runs the application for the session's path."""
    if scope["type"] == "lifespan":
        assert (await receive())["type"] == "lifespan.startup"
        scope["state"]["answer"] = 42
        await send({"type": "lifespan.startup.complete"})
        assert (await receive())["type"] == "lifespan.shutdown"
        await send({"type": "lifespan.shutdown.complete"})
    elif scope["type"] == "http":
        body = json.dumps(alive()).encode() if scope["path"] == "/alive" else b"http"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})
    elif scope["type"] == "websocket":
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept"})
        message = await receive()
        await send({"type": "websocket.send", "text": message["text"]})
        await send({"type": "websocket.close"})
    elif scope["path"] == "/lost":
        await lost(scope, receive, send)
    else:
        assert (await receive())["type"] == "webtransport.connect"
        await PATHS[scope["path"]](scope, receive, send)


def alive():
    """Returns the number of sessions and of their streams in this process."""
    gc.collect()
    found = [type(one) for one in gc.get_objects()]
    kinds = {"sessions": SessionState, "streams": Stream}
    return {name: sum(issubclass(one, kind) for one in found) for name, kind in kinds.items()}


async def echo(scope, receive, send):
    """Echoes received data: on the same stream, on a stream of the server's, or in a datagram."""
    protocols = scope["subprotocols"]
    subprotocol = protocols[-1] if protocols else None
    headers = [(b"x-hello", b"there")]
    await send({"type": "webtransport.accept", "headers": headers, "subprotocol": subprotocol})
    wanted, opened = [], []
    while True:
        message = await receive()
        kind = message["type"].removeprefix("webtransport.")
        if kind == "disconnect":
            return
        if kind == "datagram.receive":
            await send({"type": "webtransport.datagram.send", "data": message["data"]})
        elif kind == "stream.opened":
            opened.append(message["stream"])
        elif kind == "stream.receive" and message["stream"] & 2:
            wanted.append(message)
            if message["end"]:
                await send({"type": "webtransport.stream.open", "bidirectional": False})
        elif kind == "stream.receive":
            answer = {key: message[key] for key in ("stream", "data", "end")}
            await send({"type": "webtransport.stream.send", **answer})
        if opened and wanted and wanted[-1]["end"]:
            data = b"".join(piece["data"] for piece in wanted)
            answer = {"stream": opened.pop(), "data": data, "end": True}
            await send({"type": "webtransport.stream.send", **answer})
            wanted.clear()


async def told(scope, receive, send):
    """Sends its scope on a stream, then waits for the end."""
    await send({"type": "webtransport.accept"})
    first = await receive()
    seen = {name: scope[name] for name in ("type", "path", "scheme", "http_version")}
    seen["query"] = scope["query_string"].decode()
    seen["raw_path"] = scope["raw_path"].decode()
    seen["client"] = scope["client"][0]
    seen["subprotocols"] = scope["subprotocols"]
    seen["state"] = scope["state"]["answer"]
    seen["extensions"] = sorted(scope["extensions"])
    seen["headers"] = {name.decode(): value.decode() for name, value in scope["headers"]}
    seen["pid"] = os.getpid()
    message = {"stream": first["stream"], "data": json.dumps(seen).encode(), "end": True}
    await send({"type": "webtransport.stream.send", **message})
    while (await receive())["type"] != "webtransport.disconnect":
        pass


async def refused(scope, receive, send):
    await send({"type": "webtransport.close", "status": 418})


async def silent(scope, receive, send):
    """Returns without accepting or refusing."""


async def failing(scope, receive, send):
    await send({"type": "webtransport.accept"})
    await receive()
    raise LookupError("of the application's own")


async def closing(scope, receive, send):
    """Sends data and closes the session."""
    await send({"type": "webtransport.accept"})
    first = await receive()
    message = {"stream": first["stream"], "data": b"good bye", "end": True}
    await send({"type": "webtransport.stream.send", **message})
    await send({"type": "webtransport.close", "code": 77, "reason": "said all"})
    assert (await receive())["type"]


async def resets(scope, receive, send):
    """Answers a reset with a reset of its code plus one; echoes earlier data."""
    await send({"type": "webtransport.accept"})
    while True:
        message = await receive()
        if message["type"] == "webtransport.stream.receive":
            answer = {"stream": message["stream"], "data": message["data"]}
            await send({"type": "webtransport.stream.send", **answer})
        if message["type"] == "webtransport.stream.reset":
            answer = {"stream": message["stream"], "code": message["code"] + 1}
            await send({"type": "webtransport.stream.reset", **answer})
        elif message["type"] == "webtransport.disconnect":
            return


async def pausing(scope, receive, send):
    """Pauses a stream after its first data until a datagram arrives; reports the number of bytes by
    datagram.
    """
    await send({"type": "webtransport.accept"})
    count, paused = 0, None
    while True:
        message = await receive()
        kind = message["type"].removeprefix("webtransport.")
        if kind == "stream.receive":
            count += len(message["data"])
            if paused is None:
                paused = message["stream"]
                await send({"type": "webtransport.stream.pause", "stream": paused})
            if message["end"]:
                await send({"type": "webtransport.datagram.send", "data": b"end %d" % count})
        elif kind == "datagram.receive" and message["data"] == b"count":
            await send({"type": "webtransport.datagram.send", "data": b"%d" % count})
        elif kind == "datagram.receive":
            await send({"type": "webtransport.stream.resume", "stream": paused})
        elif kind == "disconnect":
            return


async def opening(scope, receive, send):
    """Opens streams of both kinds, sends data on them, and waits for the end."""
    await send({"type": "webtransport.accept"})
    for bidirectional in (True, False):
        await send({"type": "webtransport.stream.open", "bidirectional": bidirectional})
    while (message := await receive())["type"] != "webtransport.disconnect":
        if message["type"] == "webtransport.stream.opened":
            said = {"stream": message["stream"], "data": b"half of"}
            await send({"type": "webtransport.stream.send", **said})


async def unanswered(scope, receive, send):
    """Waits for the end without an answer to the request."""
    print(f"asked for {scope['path']}", flush=True)
    await receive()
    print(f"heard the end of {scope['path']}", flush=True)


async def late(scope, receive, send):
    """Accepts after the session's end."""
    await unanswered(scope, receive, send)
    await send({"type": "webtransport.accept"})


async def lost(scope, receive, send):
    """Raises before it answers; the message proves that the scope contains the session request."""
    raise LookupError(scope["extensions"]["uringcore.webtransport"]["request"].path)


async def native(scope, receive, send):
    """Uses the session itself instead of messages."""
    request = scope["extensions"]["uringcore.webtransport"]["request"]
    async with await request.accept() as session:
        async for stream in session.streams():
            async with stream:
                await stream.send(await stream.read())
                await asyncio.sleep(0)


PATHS = {
    "/echo": echo,
    "/told": told,
    "/refused": refused,
    "/silent": silent,
    "/failing": failing,
    "/closing": closing,
    "/resets": resets,
    "/pausing": pausing,
    "/native": native,
    "/opening": opening,
    "/unanswered": unanswered,
    "/late": late,
}


async def plain(scope, receive, send):
    """Supports HTTP alone, and raises otherwise."""
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"http"})
