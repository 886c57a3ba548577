"""Starlette's and FastAPI's applications with a session beside a page."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from uringcore.webtransport.starlette import (
    WebTransportMiddleware,
    WebTransportRoute,
    add_webtransport_route,
)


async def room(webtransport):
    """Tells where it is by a datagram for each that comes."""
    if webtransport.query_params.get("secret") != "yes":
        webtransport.refuse(401)
        return
    where = webtransport.path_params["room"], webtransport.headers["host"].partition(":")[0]
    async with await webtransport.accept() as session:
        async for data in session.datagrams():
            session.send_datagram(data + f" in {where[0]} at {where[1]}".encode())


async def page(request):
    return PlainTextResponse("page")


starlette_app = Starlette(
    routes=[Route("/", page), WebTransportRoute("/rooms/{room:int}", room)],
    middleware=[Middleware(WebTransportMiddleware)],
)

fastapi_app = FastAPI()
add_webtransport_route(fastapi_app, "/rooms/{room:int}", room)
fastapi_app.get("/", response_class=PlainTextResponse)(lambda: "page")
