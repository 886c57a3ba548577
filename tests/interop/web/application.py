"""The site of every server of these cases, as an ASGI application: uringcore and hypercorn run it.

GET /NAME         the file of $WWW, or what a range leaves of it POST /NAME        the request's
content GET /hinted       103 before the response GET /trailed      a trailer section after the
content GET /broken       less content than the response's length GET /held/NAME    the file's first
half, and the second when $WWW has a file `go` /ws               a WebSocket that echoes messages
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any

HELD, GO = "held", "go"
LINK = b"</style.css>; rel=preload"
TRAILER = (b"x-checked", b"yes")


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": f"{message['type']}.complete"})
        await send({"type": "lifespan.shutdown.complete"})
    elif scope["type"] == "websocket":
        await _talk(receive, send)
    elif scope["type"] == "http":
        response = Response(send)
        content = await _content(receive)
        if scope["method"] == "POST":
            await response.whole(content)
            return
        name, _, argument = scope["path"].strip("/").partition("/")
        await WAYS.get(name, file)(response, scope, argument or name)


class Response:
    """Sends a response in ASGI messages."""

    def __init__(self, send: Any) -> None:
        self.send = send

    async def begin(
        self, size: int, *fields: tuple[bytes, bytes], status: int = 200, **more: Any
    ) -> None:
        headers = [(b"content-length", b"%d" % size), *fields]
        message = {"type": "http.response.start", "status": status, "headers": headers}
        await self.send({**message, **more})

    async def body(self, data: bytes, more_body: bool = False) -> None:
        await self.send({"type": "http.response.body", "body": data, "more_body": more_body})

    async def whole(self, data: bytes) -> None:
        await self.begin(len(data))
        await self.body(data)


async def file(response: Response, scope: dict[str, Any], name: str) -> None:
    path = www() / name
    if not path.is_file():
        await response.begin(0, status=404)
        await response.body(b"")
        return
    content = path.read_bytes()
    fields = dict(scope["headers"])
    found = re.fullmatch(rb"bytes=(\d+)-", fields.get(b"range", b""))
    if found is None:
        await response.begin(len(content), (b"etag", b'"one"'))
        await response.body(content)
        return
    first = int(found.group(1))
    shown = b"bytes %d-%d/%d" % (first, len(content) - 1, len(content))
    rest = content[first:]
    await response.begin(len(rest), (b"content-range", shown), (b"etag", b'"one"'), status=206)
    await response.body(rest)


async def hinted(response: Response, scope: dict[str, Any], name: str) -> None:
    await response.send({"type": "http.response.early_hint", "links": [LINK]})
    await response.whole(b"hinted")


async def trailed(response: Response, scope: dict[str, Any], name: str) -> None:
    await response.begin(7, (b"trailer", TRAILER[0]), trailers=True)
    await response.body(b"trailed")
    await response.send({"type": "http.response.trailers", "headers": [TRAILER]})


async def broken(response: Response, scope: dict[str, Any], name: str) -> None:
    await response.begin(1000)
    await response.body(bytes(500), more_body=True)
    raise RuntimeError("broken, as asked")


async def held(response: Response, scope: dict[str, Any], name: str) -> None:
    content = (www() / name).read_bytes()
    half = len(content) // 2
    await response.begin(len(content))
    await response.body(content[:half], more_body=True)
    (www() / HELD).touch()
    while not (www() / GO).exists():
        await asyncio.sleep(0.02)
    await response.body(content[half:])


WAYS = {"hinted": hinted, "trailed": trailed, "broken": broken, "held": held}


async def _content(receive: Any) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _talk(receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        heard = {key: message[key] for key in ("text", "bytes") if message.get(key) is not None}
        await send({"type": "websocket.send", **heard})


def www() -> Path:
    return Path(os.environ["WWW"])
