"""The ASGI application behind `--static`, `--compress` and `--proxy-protocol`: one path for each kind of
response."""

import asyncio
import json
import os
from urllib.parse import unquote

from uringcore.server import StaticFiles

TEXT = b"".join(b"line %d of a document\n" % number for number in range(20_000))
GO_ON = asyncio.Event()


async def app(scope, receive, send):
    assert scope["type"] == "http"
    name = scope["path"].split("/")[1]
    await ROUTES.get(name, show)(scope, receive, send)


async def respond(send, body, *, status=200, kind=b"text/plain", fields=(), parts=1, length=True):
    headers = [(b"content-type", kind), *fields]
    if length:
        headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    size = -(-len(body) // parts)
    for at in range(parts):
        part = body[at * size : (at + 1) * size]
        await send({"type": "http.response.body", "body": part, "more_body": at + 1 < parts})


async def show(scope, receive, send):
    """Shows what the application sees of a request."""
    shown = {key: scope[key] for key in ("path", "client", "server", "scheme", "method")}
    shown["headers"] = [[name.decode(), value.decode()] for name, value in scope["headers"]]
    await respond(send, json.dumps(shown).encode(), kind=b"application/json")


async def state(scope, receive, send):
    await respond(send, json.dumps(scope["state"]).encode(), kind=b"application/json")


async def renamed(scope, receive, send):
    """Replaces the identifiers in the state by the query."""
    value = unquote(scope["query_string"].decode())
    scope["state"].update(dict.fromkeys(("request_id", "trace_id", "span_id"), value))
    await respond(send, b"")


async def text(scope, receive, send):
    """The text in one message, or with a number in the path in that many."""
    parts = int(scope["path"].split("/")[2] or 1)
    await respond(send, TEXT, parts=parts, length=b"length" in scope["query_string"])


async def small(scope, receive, send):
    await respond(send, TEXT[:1000])


async def page(scope, receive, send):
    await respond(send, TEXT[:50_000])


async def picture(scope, receive, send):
    await respond(send, TEXT, kind=b"image/png")


async def noise(scope, receive, send):
    await respond(send, os.urandom(6144))


async def field(scope, receive, send):
    """The text with the field that the query has as `name=value`."""
    name, _, value = scope["query_string"].partition(b"=")
    await respond(send, TEXT, fields=[(name, value)])


async def validated(scope, receive, send):
    fields = [(b"etag", b'"one"'), (b"accept-ranges", b"bytes"), (b"vary", b"origin")]
    known = dict(scope["headers"]).get(b"if-none-match", b"")
    if b'"one"' in known:
        await send({"type": "http.response.start", "status": 304, "headers": fields})
        await send({"type": "http.response.body"})
        return
    await respond(send, TEXT, fields=fields)


async def events(scope, receive, send):
    """Two events. The second one is sent when a client requests /go."""
    GO_ON.clear()
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"data: one\n\n", "more_body": True})
    await GO_ON.wait()
    await send({"type": "http.response.body", "body": b"data: two\n\n"})


async def go_on(scope, receive, send):
    GO_ON.set()
    await respond(send, b"")


async def trailers(scope, receive, send):
    headers = [(b"content-type", b"text/plain")]
    start = {"type": "http.response.start", "status": 200, "headers": headers, "trailers": True}
    await send(start)
    await send({"type": "http.response.body", "body": TEXT})
    await send({"type": "http.response.trailers", "headers": [(b"x-end", b"1")]})


async def path(scope, receive, send):
    """The file that the query names, by `http.response.pathsend`."""
    headers = [(b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.pathsend", "path": scope["query_string"].decode()})


async def failing(scope, receive, send):
    headers = [(b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": TEXT, "more_body": True})
    raise RuntimeError("in the middle")


ROUTES = {
    "state": state,
    "renamed": renamed,
    "text": text,
    "small": small,
    "page": page,
    "picture": picture,
    "noise": noise,
    "field": field,
    "validated": validated,
    "events": events,
    "go": go_on,
    "trailers": trailers,
    "path": path,
    "failing": failing,
}


def mounted(folder):
    """Returns a Starlette application with the folder at /files."""
    from starlette.applications import Starlette
    from starlette.routing import Mount

    return Starlette(routes=[Mount("/files", StaticFiles(folder, cache_control="no-cache"))])


def behind_middleware(folder):
    """Returns the application `mounted` behind Starlette's middleware that passes messages on in a task."""
    from starlette.middleware.base import BaseHTTPMiddleware

    made = mounted(folder)

    async def pass_on(request, call_next):
        return await call_next(request)

    made.add_middleware(BaseHTTPMiddleware, dispatch=pass_on)
    return made
