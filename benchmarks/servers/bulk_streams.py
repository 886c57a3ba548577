"""The protocol of the bulk servers (`native/quic_load.rs`) on streams that are read and written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from benchmarks.servers.bulk import Upload, pattern

READ = 256 * 1024
BLOCK = pattern()
WRITES = {b"D": len(BLOCK), b"d": 1024}
Read = Callable[[], Awaitable[Any]]
"""What is next of a stream, empty at its end."""
Send = Callable[[bytes, bool], Awaitable[None]]
Tasks = set["asyncio.Task[Any]"]


async def bulk(read: Read, send: Send) -> None:
    """One stream."""
    first = bytes(await read())
    mode, rest = first[:1], first[1:]
    if mode == b"E":
        if rest:
            await send(rest, False)
        while piece := await read():
            await send(bytes(piece), False)
        await send(b"", True)
    elif mode in WRITES:
        await _download(read, send, WRITES[mode])
    else:
        upload = Upload(hashed=mode == b"V")
        upload.feed(rest)
        while piece := await read():
            upload.feed(piece)
        await send(upload.answer(), True)


async def _download(read: Read, send: Send, write: int) -> None:
    """Sends until the client has ended its side."""

    async def end() -> None:
        if await read():
            raise RuntimeError("a client that downloads has nothing to say")

    writes = [BLOCK[at : at + write] for at in range(0, len(BLOCK), write)]
    ended = asyncio.ensure_future(end())
    while not ended.done():
        for piece in writes:
            await send(piece, False)
        await asyncio.sleep(0)
    await ended
    await send(b"", True)


def start(tasks: Tasks, work: Coroutine[Any, Any, Any]) -> None:
    """Runs it, kept until it ends."""
    task = asyncio.ensure_future(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


async def serve_streams(carrier: Any) -> None:
    """All streams and datagrams of a connection of `uringcore.quic`, or of a session on one."""
    tasks: Tasks = set()
    start(tasks, _datagrams(carrier))
    async for stream in carrier.streams():
        start(tasks, _stream(stream))
    for task in tasks:
        task.cancel()


async def _stream(stream: Any) -> None:
    async def send(data: bytes, end: bool) -> None:
        if data:
            await stream.send(data)
        if end:
            await stream.finish()

    await bulk(partial(stream.read, READ), send)


async def _datagrams(carrier: Any) -> None:
    from uringcore.quic import QuicError

    try:
        while True:
            carrier.send_datagrams(await carrier.receive_datagrams())
    except QuicError:
        """It is over."""
