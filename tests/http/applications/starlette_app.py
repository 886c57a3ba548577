"""Starlette, with its own middleware and a mounted application."""

import asyncio
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import (
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route

from tests.http.applications.observed_application import watched
from tests.http.applications.request_bodies import (
    LARGE,
    NOTES,
    described,
    endless_parts,
    failing_parts,
    few_parts,
    note,
)


@asynccontextmanager
async def lifespan(app):
    yield {"token": "from lifespan"}


class Marked:
    """ASGI middleware."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        async def marking(message):
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"X-Middleware", b"yes")]
            await send(message)

        await self.app(scope, receive, marking if scope["type"] == "http" else send)


async def plain(request):
    return PlainTextResponse("hello")


def threaded(request):
    return PlainTextResponse("hello from a thread")


async def item(request):
    query = request.query_params
    tags = query.getlist("tags")
    number = request.path_params["number"]
    return JSONResponse({"number": number, "q": query.get("q", ""), "tags": tags})


async def files(request):
    return JSONResponse({"path": request.path_params["path"], "root": request.scope["root_path"]})


async def order(request):
    try:
        return JSONResponse({"got": await request.json()})
    except ValueError as exc:
        return JSONResponse({"error": str(exc)}, status_code=400)


async def form(request):
    async with request.form() as form:
        return JSONResponse(dict(form))


async def upload(request):
    async with request.form() as form:
        file = form["file"]
        found = {"name": file.filename, "title": form["title"], **described(await file.read())}
        return JSONResponse(found)


async def digest(request):
    return JSONResponse(described(await request.body()))


async def stream(request):
    return StreamingResponse(few_parts(), media_type="text/plain")


async def raise_late(request):
    return StreamingResponse(failing_parts(), media_type="text/plain")


async def endless(request):
    return StreamingResponse(endless_parts(), media_type="text/plain")


async def wait(request):
    await asyncio.sleep(1)
    return PlainTextResponse("waited")


async def until_gone(request: Request):
    while not await request.is_disconnected():
        await asyncio.sleep(0.01)
    return PlainTextResponse("gone")


async def cookies(request):
    response = JSONResponse(request.cookies)
    response.set_cookie("first", "1", httponly=True, secure=True)
    response.set_cookie("second", "2", path="/x")
    return response


async def redirect(request):
    return RedirectResponse("/plain")


async def raises(request):
    raise RuntimeError("the application's own fault")


async def background(request):
    task = BackgroundTask(note, "done")
    return JSONResponse({"accepted": True}, status_code=202, background=task)


async def notes(request):
    return JSONResponse(NOTES)


async def state(request):
    return JSONResponse({"token": request.state.token})


async def large(request):
    return Response(LARGE, media_type="application/octet-stream")


async def nothing(request):
    return Response(status_code=204)


async def teapot(request):
    return JSONResponse({"headers": request.headers.getlist("x-many")}, status_code=418)


routes = [
    Route("/plain", plain),
    Route("/threaded", threaded),
    Route("/items/{number:int}", item),
    Mount("/files", routes=[Route("/{path:path}", files)]),
    Route("/json", order, methods=["POST"]),
    Route("/form", form, methods=["POST"]),
    Route("/upload", upload, methods=["POST"]),
    Route("/digest", digest, methods=["POST", "PUT", "PATCH", "DELETE"]),
    Route("/stream", stream),
    Route("/raise-late", raise_late),
    Route("/endless", endless),
    Route("/wait", wait),
    Route("/until-gone", until_gone),
    Route("/cookies", cookies),
    Route("/redirect", redirect),
    Route("/raise", raises),
    Route("/background", background, methods=["POST"]),
    Route("/notes", notes),
    Route("/state", state),
    Route("/large", large),
    Route("/nothing", nothing),
    Route("/teapot", teapot),
]
middleware = [Middleware(Marked), Middleware(GZipMiddleware, minimum_size=2000)]
app = watched(Starlette(routes=routes, middleware=middleware, lifespan=lifespan))
