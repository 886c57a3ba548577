"""The ASGI application that the server's tests serve: one path for each provoked situation.

It is plain ASGI, so that no framework is between the server and the tests.
"""

import asyncio
import hashlib
import json
import sys

PART = bytes(range(256)) * 256
EVENTS = []
PROGRESS = {"flooded": 0, "held": 0}
RELEASE = asyncio.Event()


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await lifespan(scope, receive, send)
    elif scope["type"] == "websocket":
        await websocket(scope, receive, send)
    else:
        name = scope["path"].split("/")[1]
        await ROUTES.get(name, not_found)(scope, receive, send)


async def lifespan(scope, receive, send):
    while True:
        message = await receive()
        print("LIFESPAN", message["type"], file=sys.stderr, flush=True)
        if message["type"] == "lifespan.startup":
            scope["state"]["token"] = "from lifespan"
            await send({"type": "lifespan.startup.complete"})
        else:
            await send({"type": "lifespan.shutdown.complete"})
            return


async def websocket(scope, receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"]})


async def answer(send, body, status=200, headers=(), **start):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    headers = [(b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": headers, **start})
    await send({"type": "http.response.body", "body": body})


async def body_of(receive):
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError("the client went away")
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return


async def not_found(scope, receive, send):
    await answer(send, b"not found", status=404)


async def hello(scope, receive, send):
    await answer(send, b"hello")


async def show_scope(scope, receive, send):
    shown = {key: value for key, value in scope.items() if isinstance(value, (str, int))}
    shown["headers"] = [[name.decode(), value.decode()] for name, value in scope["headers"]]
    shown["client"] = scope["client"]
    shown["server"] = scope["server"]
    shown["raw_path"] = scope["raw_path"].decode()
    shown["query_string"] = scope["query_string"].decode()
    shown["state"] = scope["state"]
    shown["extensions"] = scope.get("extensions", {})
    await answer(send, shown)


async def upload(scope, receive, send):
    digest, size, largest = hashlib.sha256(), 0, 0
    async for part in body_of(receive):
        digest.update(part)
        size += len(part)
        largest = max(largest, len(part))
    await answer(send, {"bytes": size, "sha256": digest.hexdigest(), "largest": largest})


async def echo(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    async for part in body_of(receive):
        if part:
            await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def flood(scope, receive, send):
    size = int(scope["path"].split("/")[2])
    PROGRESS["flooded"] = 0
    headers = [(b"content-length", str(size).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    while PROGRESS["flooded"] < size:
        part = PART[: size - PROGRESS["flooded"]]
        await send({"type": "http.response.body", "body": part, "more_body": True})
        PROGRESS["flooded"] += len(part)
    await send({"type": "http.response.body", "body": b""})


async def burst(scope, receive, send):
    """Sends the whole response in one message, as frameworks do."""
    size = int(scope["path"].split("/")[2])
    headers = [(b"content-length", str(size).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": bytes(size)})


async def slow_flood(scope, receive, send):
    """Sends 2 MiB in about two seconds."""
    headers = [(b"content-length", str(32 * len(PART)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for _ in range(32):
        await send({"type": "http.response.body", "body": PART, "more_body": True})
        await asyncio.sleep(0.06)
    await send({"type": "http.response.body", "body": b""})


async def hold(scope, receive, send):
    """Reads one message of the body, and the rest only after /release."""
    RELEASE.clear()
    message = await receive()
    PROGRESS["held"] = len(message["body"])
    await RELEASE.wait()
    size = len(message["body"])
    while message.get("more_body"):
        message = await receive()
        size += len(message.get("body", b""))
    await answer(send, {"bytes": size})


async def release(scope, receive, send):
    RELEASE.set()
    await answer(send, b"released")


async def progress(scope, receive, send):
    await answer(send, {**PROGRESS, "events": EVENTS})


async def wait_disconnect(scope, receive, send):
    EVENTS.append("waiting")
    while (await receive())["type"] != "http.disconnect":
        pass
    EVENTS.append("disconnected")
    await send({"type": "http.response.start", "status": 200, "headers": []})


async def sleep(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"first ", "more_body": True})
    await asyncio.sleep(float(scope["path"].split("/")[2]))
    await send({"type": "http.response.body", "body": b"last"})


async def raises(scope, receive, send):
    raise RuntimeError("the application's own fault")


async def raises_midway(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"some", "more_body": True})
    raise RuntimeError("the application's own fault, later")


async def returns_nothing(scope, receive, send):
    return


async def too_long(scope, receive, send):
    headers = [(b"content-length", b"3")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"four"})


async def trailers(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [], "trailers": True})
    await send({"type": "http.response.body", "body": b"body"})
    fields = [(b"x-checksum", b"42")]
    await send({"type": "http.response.trailers", "headers": fields, "more_trailers": False})


async def hints(scope, receive, send):
    await send({"type": "http.response.early_hint", "links": [b"</style.css>; rel=preload"]})
    await answer(send, b"hinted")


async def early(scope, receive, send):
    """Responds without having read the body."""
    await answer(send, b"enough", status=413)


async def connection_fields(scope, receive, send):
    fields = [(b"Connection", b"close"), (b"Transfer-Encoding", b"identity"), (b"X-Kept", b"yes")]
    await answer(send, b"", headers=fields)


async def no_content(scope, receive, send):
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


ROUTES = {
    "": hello,
    "scope": show_scope,
    "upload": upload,
    "echo": echo,
    "burst": burst,
    "flood": flood,
    "slow-flood": slow_flood,
    "hold": hold,
    "release": release,
    "progress": progress,
    "wait-disconnect": wait_disconnect,
    "sleep": sleep,
    "raises": raises,
    "raises-midway": raises_midway,
    "returns-nothing": returns_nothing,
    "too-long": too_long,
    "trailers": trailers,
    "early": early,
    "hints": hints,
    "connection-fields": connection_fields,
    "no-content": no_content,
}
