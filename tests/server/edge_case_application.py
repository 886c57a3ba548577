"""An ASGI application for rare cases: one path for each rule of ASGI or HTTP."""

import asyncio

from tests.server.application import PROGRESS, answer, lifespan, show_scope

EVENTS = []


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await lifespan(scope, receive, send)
    else:
        # The root path is part of the path.
        await ROUTES[scope["path"].rsplit("/", 1)[1]](scope, receive, send)


async def padded(scope, receive, send):
    headers = [(b"x-padded", b" \t value with space\t "), (b"content-length", b" 5 ")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})


async def trailers(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [], "trailers": True})
    await send({"type": "http.response.body", "body": b"body"})
    for name, more in ((b"X-First", True), (b"X-Second", True), (b"X-Last", False)):
        fields = [(name, b" yes ")]
        message = {"type": "http.response.trailers", "headers": fields, "more_trailers": more}
        await send(message)


async def file(scope, receive, send):
    """Declares the length and leaves the content out for HEAD, as Starlette's FileResponse does."""
    headers = [(b"content-length", b"5")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    body = b"" if scope["method"] == "HEAD" else b"hello"
    await send({"type": "http.response.body", "body": body})


async def bad_start(scope, receive, send):
    """A 204 with a line feed in a header, which makes it invalid."""
    headers = [(b"x-bad", b"a\nb"), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 204, "headers": headers})


async def empty(scope, receive, send):
    """Sends a body of None, as some frameworks do for an empty one."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": None, "more_body": True})
    await send({"type": "http.response.body", "body": None})


async def repeated(scope, receive, send):
    """Declares its length twice."""
    headers = [(b"content-length", b"5"), (b"Content-Length", b" 5"), (b"x-after", b"yes")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})


async def contradictory(scope, receive, send):
    headers = [(b"content-length", b"5"), (b"content-length", b"6")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})


async def whole(scope, receive, send):
    """Sends 8 MB in one message; counts the responses that `send` has accepted."""
    PROGRESS["whole"] = PROGRESS.get("whole", 0)
    await answer(send, bytes(8_000_000))
    PROGRESS["whole"] += 1


async def late(scope, receive, send):
    await asyncio.sleep(0.8)
    await answer(send, b"late")


async def notices(scope, receive, send):
    """Reads nothing for a second, then reads until the disconnect."""
    await asyncio.sleep(1)
    message = await receive()
    while message["type"] == "http.request" and message["more_body"]:
        message = await receive()
    EVENTS.append(message["type"])


async def progress(scope, receive, send):
    await answer(send, {**PROGRESS, "events": EVENTS})


async def hello(scope, receive, send):
    await answer(send, b"hello")


ROUTES = {
    "": hello,
    "bad-start": bad_start,
    "contradictory": contradictory,
    "empty": empty,
    "file": file,
    "late": late,
    "notices": notices,
    "padded": padded,
    "progress": progress,
    "repeated": repeated,
    "scope": show_scope,
    "trailers": trailers,
    "whole": whole,
}
