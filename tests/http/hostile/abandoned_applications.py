"""Framework applications whose clients disconnect at every moment: none of them handles that."""

import asyncio
import sys

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import FileResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Mount, Route, WebSocketRoute

from uringcore.contrib.starlette import WebTransportMiddleware, WebTransportRoute

PART = bytes(range(256)) * 64


async def parts():
    while True:
        yield PART
        await asyncio.sleep(0)


async def hello(request):
    return PlainTextResponse("hello")


async def stream(request):
    return StreamingResponse(parts())


async def file(request):
    return FileResponse(sys.executable)


async def body(request):
    return PlainTextResponse(str(len(await request.body())))


async def slow(request):
    await asyncio.sleep(0.02)
    return PlainTextResponse("late")


async def background(request):
    return PlainTextResponse("hello", background=BackgroundTask(asyncio.sleep, 0.02))


async def broken(request):
    """Raises an error of its own because its client has disconnected."""
    try:
        await request.body()
    except Exception:
        raise RuntimeError("the upload is\nnot whole") from None
    return PlainTextResponse("whole")


async def echo(websocket):
    await websocket.accept()
    while True:
        await websocket.send_text(await websocket.receive_text())


async def flood(websocket):
    await websocket.accept()
    while True:
        await websocket.send_bytes(PART)


async def session(webtransport):
    headers = [(b"x-answer", b"longer than some clients take")]
    async with await webtransport.accept(headers=headers) as accepted:
        async for data in accepted.datagrams():
            accepted.send_datagram(data)
        raise RuntimeError("the session is over")


async def through(request, call_next):
    return await call_next(request)


items = FastAPI()


@items.post("/items")
async def make_item(item: dict):
    return item


PATHS = {
    "/": hello,
    "/stream": stream,
    "/file": file,
    "/body": body,
    "/slow": slow,
    "/background": background,
    "/broken": broken,
}
ROUTES = [Route(path, endpoint, methods=["GET", "POST"]) for path, endpoint in PATHS.items()]

app = Starlette(
    routes=[
        *ROUTES,
        WebSocketRoute("/echo", echo),
        WebSocketRoute("/flood", flood),
        Mount("/api", items),
        Mount(
            "/through",
            Starlette(routes=ROUTES, middleware=[Middleware(BaseHTTPMiddleware, dispatch=through)]),
        ),
        WebTransportRoute("/session", session),
    ],
    middleware=[Middleware(WebTransportMiddleware)],
)
