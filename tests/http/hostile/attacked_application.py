"""The ASGI application under attack: each path is one way to block it.

It counts the outcomes of its calls by path; ``/state`` returns the counts.
"""

import asyncio
import hashlib
import os
from collections import Counter, defaultdict

from tests.server.application import PART, answer, lifespan

STATE = defaultdict(Counter)
"""By path: calls ``running``, ``cancelled``, ``failed``, ``returned``; ``disconnects`` that were received."""


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await lifespan(scope, receive, send)
        return
    name = scope["path"].split("/")[1]
    counts = STATE[name]

    async def counted():
        message = await receive()
        counts["disconnects"] += message["type"] == "http.disconnect"
        return message

    counts["started"] += 1
    counts["running"] += 1
    end = "returned"
    try:
        await ROUTES[name](scope, counted, send)
    except asyncio.CancelledError:
        end = "cancelled"
        raise
    except BaseException:
        end = "failed"
        raise
    finally:
        counts["running"] -= 1
        counts[end] += 1


async def hello(scope, receive, send):
    await answer(send, b"hello")


async def state(scope, receive, send):
    await answer(send, STATE)


async def hang(scope, receive, send):
    """Waits for ever and ignores its client."""
    await asyncio.Event().wait()


async def waits(scope, receive, send):
    while (await receive())["type"] != "http.disconnect":
        pass


async def upload(scope, receive, send):
    digest, size = hashlib.sha256(), 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        digest.update(message["body"])
        size += len(message["body"])
        if not message["more_body"]:
            break
    await answer(send, {"bytes": size, "sha256": digest.hexdigest()})


async def flood(scope, receive, send):
    """Sends a number of bytes, then receives events."""
    size = int(scope["path"].split("/")[2])
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while size:
        # Each part is a copy, so that queued data shows in the memory.
        part = bytes(memoryview(PART)[:size])
        size -= len(part)
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
    await receive()


async def endless(scope, receive, send):
    """Sends for ever, and receives nothing."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": PART, "more_body": True})


async def tells(scope, receive, send):
    """Sends a response, then the result of `receive`."""
    await answer(send, b"hello")
    while (await receive())["type"] != "http.disconnect":
        pass


async def own_fields(scope, receive, send):
    """Sends a response whose fields no other has."""
    number = scope["path"].split("/")[2].encode()
    await answer(send, b"", headers=[(b"x-own-" + number, number * 200)])


async def file(scope, receive, send):
    """Sends a file by its path, as Starlette's FileResponse does."""
    path = scope["path"].removeprefix("/file")
    headers = [(b"content-length", b"%d" % os.stat(path).st_size)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.pathsend", "path": path})


async def zerocopy(scope, receive, send):
    """Sends a file that is already open: the application owns one descriptor."""
    path = scope["path"].removeprefix("/zerocopy")
    with open(path, "rb") as opened:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.zerocopysend", "file": opened})


async def socket(scope, receive, send):
    """Receives the messages of a WebSocket as they arrive."""
    await receive()
    await send({"type": "websocket.accept"})
    while (await receive())["type"] == "websocket.receive":
        pass


async def session(scope, receive, send):
    """Accepts a WebTransport session and reads nothing of it."""
    await receive()
    await send({"type": "webtransport.accept"})
    await asyncio.Event().wait()


ROUTES = {
    "": hello,
    "count": hello,
    "endless": endless,
    "fields": own_fields,
    "file": file,
    "flood": flood,
    "hang": hang,
    "session": session,
    "socket": socket,
    "state": state,
    "tells": tells,
    "upload": upload,
    "waits": waits,
    "zerocopy": zerocopy,
}
