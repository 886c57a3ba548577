"""The application as a bare ASGI callable: the cost of a server with an application that costs nothing."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.servers import heap
from benchmarks.servers.bulk import Upload, pattern

# Each server imports its application, so all servers are measured with a warm heap.
heap.warm()

HELLO = b"Hello, world!"
BLOCK = pattern()
LARGE = (BLOCK * 2)[: 100 * 1024]
TEXT = (b"content-type", b"text/plain")
BINARY = (b"content-type", b"application/octet-stream")
JSON = (b"content-type", b"application/json")


def _start(length: int, kind: tuple[bytes, bytes]) -> dict[str, Any]:
    headers = [kind, (b"content-length", str(length).encode())]
    return {"type": "http.response.start", "status": 200, "headers": headers}


def _whole(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body}


ANSWERS = {
    "/": (_start(len(HELLO), TEXT), _whole(HELLO)),
    "/100k": (_start(len(LARGE), BINARY), _whole(LARGE)),
}
UPLOADS = {"/upload": False, "/verify": True}
"""The paths of uploads; True for an upload that is hashed."""
DOWNLOAD = "/download/"
ORDER = "/order"
NUMBERS = "/numbers/"


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answer by the path."""
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
        return
    if scope["type"] == "websocket":
        await _echo(receive, send)
        return
    path = scope["path"]
    answer = ANSWERS.get(path)
    if answer is not None:
        start, body = answer
        await send(start)
        await send(body)
    elif path in UPLOADS:
        await _take(UPLOADS[path], receive, send)
    elif path == ORDER:
        await _order(receive, send)
    elif path.startswith(NUMBERS):
        total = sum(map(int, path.removeprefix(NUMBERS).split("/")))
        await _send(str(total).encode(), TEXT, send)
    elif path.startswith(DOWNLOAD):
        await _give(int(path.removeprefix(DOWNLOAD)), send)
    else:
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send(_whole(b""))


async def _lifespan(receive: Any, send: Any) -> None:
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def _echo(receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({**message, "type": "websocket.send"})


async def _take(hashed: bool, receive: Any, send: Any) -> None:
    upload = Upload(hashed=hashed)
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        upload.feed(message.get("body", b""))
        more = message.get("more_body", False)
    await _send(upload.answer(), BINARY, send)


async def _order(receive: Any, send: Any) -> None:
    content = b""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        content += message.get("body", b"")
        more = message.get("more_body", False)
    order = json.loads(content)
    answer = {"name": order["name"], "total": order["price"] * order["count"]}
    await _send(json.dumps(answer, separators=(",", ":")).encode(), JSON, send)


async def _send(body: bytes, kind: tuple[bytes, bytes], send: Any) -> None:
    await send(_start(len(body), kind))
    await send(_whole(body))


async def _give(length: int, send: Any) -> None:
    await send(_start(length, BINARY))
    for at in range(0, length, len(BLOCK)):
        piece = BLOCK if length - at >= len(BLOCK) else BLOCK[: length - at]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send(_whole(b""))
