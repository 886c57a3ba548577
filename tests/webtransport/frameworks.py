"""Applications of Starlette and FastAPI with a session beside a page."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from uringcore.contrib.starlette import (
    WebTransportMiddleware,
    WebTransportRoute,
    add_webtransport_route,
)


async def room(webtransport):
    """Answers each datagram with one that names the room and the host."""
    if webtransport.query_params.get("secret") != "yes":
        webtransport.refuse(401)
        return
    where = webtransport.path_params["room"], webtransport.headers["host"].partition(":")[0]
    async with await webtransport.accept() as session:
        async for data in session.datagrams():
            session.send_datagram(data + f" in {where[0]} at {where[1]}".encode())


async def faulty(webtransport):
    """Raises before it answers."""
    raise LookupError("of the endpoint's own")


class Guarded:
    """A middleware that supports sessions, and refuses some."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] == "webtransport" and scope["path"] == "/guarded":
            await send({"type": "webtransport.close", "status": 407})
        else:
            await self.app(scope, receive, send)


async def page(request):
    return PlainTextResponse("page")


starlette_app = Starlette(
    routes=[
        Route("/", page),
        WebTransportRoute("/rooms/{room:int}", room),
        WebTransportRoute("/faulty", faulty),
    ],
    middleware=[Middleware(WebTransportMiddleware)],
)

fastapi_app = FastAPI()
fastapi_app.add_middleware(Guarded)
add_webtransport_route(fastapi_app, "/rooms/{room:int}", room)
add_webtransport_route(fastapi_app, "/faulty", faulty)
fastapi_app.get("/", response_class=PlainTextResponse)(lambda: "page")
