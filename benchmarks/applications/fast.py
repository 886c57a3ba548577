"""The application on FastAPI, written as its users write it."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse

from benchmarks.applications.bare import HELLO, LARGE
from benchmarks.servers.bulk import Upload

application = FastAPI()
BINARY = "application/octet-stream"


@application.get("/", response_class=PlainTextResponse)
async def hello() -> str:
    """13 bytes."""
    return HELLO.decode()


@application.get("/100k")
async def large() -> Response:
    """100 KiB."""
    return Response(LARGE, media_type=BINARY)


@application.post("/upload")
async def upload(request: Request) -> Response:
    """The number of received bytes."""
    return await _take(request, Upload(hashed=False))


@application.post("/verify")
async def verify(request: Request) -> Response:
    """The number of received bytes, and their SHA-256."""
    return await _take(request, Upload(hashed=True))


async def _take(request: Request, upload: Upload) -> Response:
    async for piece in request.stream():
        upload.feed(piece)
    return Response(upload.answer(), media_type=BINARY)
