"""The ASGI application under attack: each path is one way to be held up.

What became of each call is counted by path; ``/state`` tells.
"""

import asyncio
import hashlib
import os
from collections import Counter, defaultdict

from tests.server.application import PART, answer, lifespan

STATE = defaultdict(Counter)
"""By path: calls ``running``, ``cancelled``, ``failed``, ``returned``; ``disconnects`` that were told."""


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
    """Looks at nothing that its client does."""
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
    """So many bytes, then what there is to hear."""
    size = int(scope["path"].split("/")[2])
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while size:
        # A copy each: what waits is to be seen in the memory.
        part = bytes(memoryview(PART)[:size])
        size -= len(part)
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
    await receive()


async def endless(scope, receive, send):
    """Sends for ever, and hears nothing."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": PART, "more_body": True})


async def tells(scope, receive, send):
    """A response, then what `receive` has to say of it."""
    await answer(send, b"hello")
    while (await receive())["type"] != "http.disconnect":
        pass


async def own_fields(scope, receive, send):
    """A response whose fields no other has."""
    number = scope["path"].split("/")[2].encode()
    await answer(send, b"", headers=[(b"x-own-" + number, number * 200)])


async def file(scope, receive, send):
    """A file by its path, as Starlette's FileResponse sends it."""
    path = scope["path"].removeprefix("/file")
    headers = [(b"content-length", b"%d" % os.stat(path).st_size)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.pathsend", "path": path})


async def zerocopy(scope, receive, send):
    """A file that is open already: one descriptor is the application's."""
    path = scope["path"].removeprefix("/zerocopy")
    with open(path, "rb") as opened:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.zerocopysend", "file": opened})


async def socket(scope, receive, send):
    """A WebSocket whose messages are taken as they come."""
    await receive()
    await send({"type": "websocket.accept"})
    while (await receive())["type"] == "websocket.receive":
        pass


async def session(scope, receive, send):
    """A WebTransport session of which nothing is read."""
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
