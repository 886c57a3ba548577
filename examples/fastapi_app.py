"""A FastAPI application to serve over HTTP/1.1, WebSocket and HTTP/3.

    uringcore examples.fastapi_app:app --dev-cert --port 8443
    uringcore get -v --insecure https://127.0.0.1:8443/

Only ``/stats`` is specific to uringcore: it shows the event loop's counters.
"""

import asyncio
import functools
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import StreamingResponse

BLOCK = hashlib.shake_128(b"uringcore").digest(64 * 1024)
DOWNLOAD_MAX_BYTES = 1 << 30


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    """Runs once around the server's life, for all protocols together."""
    yield {"started_at": asyncio.get_running_loop().time()}


app = FastAPI(title="uringcore example", lifespan=lifespan)


@app.get("/")
async def hello(request: Request) -> dict[str, str]:
    """Returns the protocol that carried the request."""
    return {"message": "Hello from uringcore", "http_version": request.scope["http_version"]}


@app.get("/download/{size}")
async def download(size: int) -> Response:
    """Sends ``size`` bytes in 64 KiB parts, with their SHA-256 in a header."""
    if not 0 <= size <= DOWNLOAD_MAX_BYTES:
        raise HTTPException(422, f"size must be 0 to {DOWNLOAD_MAX_BYTES}")
    headers = {"content-length": str(size), "x-content-sha256": download_sha256(size)}
    return StreamingResponse(parts(size), media_type="application/octet-stream", headers=headers)


@app.put("/upload")
async def upload(request: Request) -> dict[str, Any]:
    """Receives a body of any size without keeping it, and returns its size and SHA-256."""
    digest = hashlib.sha256()
    received = 0
    async for part in request.stream():
        digest.update(part)
        received += len(part)
    return {"bytes": received, "sha256": digest.hexdigest()}


@app.websocket("/ws")
async def echo(websocket: WebSocket) -> None:
    """Echoes every message."""
    await websocket.accept()
    try:
        while True:
            await websocket.send_text(await websocket.receive_text())
    except WebSocketDisconnect:
        return


@app.get("/stats")
async def stats(request: Request) -> dict[str, Any]:
    """Returns the event loop's counters, if the loop has any."""
    loop: Any = asyncio.get_running_loop()
    counters = loop.stats() if hasattr(loop, "stats") else {}
    return {
        "loop": type(loop).__name__,
        "backend": getattr(loop, "backend", "selector"),
        "uptime_seconds": loop.time() - request.state.started_at,
        "counters": counters,
    }


async def parts(size: int) -> AsyncIterator[bytes]:
    while size > 0:
        yield BLOCK if size >= len(BLOCK) else BLOCK[:size]
        size -= len(BLOCK)


@functools.lru_cache(maxsize=8)
def download_sha256(size: int) -> str:
    digest = hashlib.sha256()
    for _ in range(size // len(BLOCK)):
        digest.update(BLOCK)
    digest.update(BLOCK[: size % len(BLOCK)])
    return digest.hexdigest()
