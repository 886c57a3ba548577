"""The application on FastAPI, written as its users write it."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel

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


class Order(BaseModel):
    """The content of a POST to `/order`."""

    name: str
    price: int
    count: int
    tags: list[str]


@application.post("/order")
async def order(order: Order) -> dict[str, str | int]:
    """The order's name and its total."""
    return {"name": order.name, "total": order.price * order.count}


@application.get(
    "/numbers/{a}/{b}/{c}/{d}/{e}/{f}/{g}/{h}/{i}/{j}", response_class=PlainTextResponse
)
async def numbers(
    a: int, b: int, c: int, d: int, e: int, f: int, g: int, h: int, i: int, j: int
) -> str:
    """The sum of ten path parameters."""
    return str(a + b + c + d + e + f + g + h + i + j)


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
