"""The protocol of the bulk servers (`native/quic_load.rs`) on streams with `read` and `send`."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from benchmarks.servers.bulk import Upload, pattern

READ = 256 * 1024
BLOCK = pattern()
WRITES = {b"D": len(BLOCK), b"d": 1024}
Read = Callable[[], Awaitable[Any]]
"""Reads the next piece of a stream, empty at its end."""
Send = Callable[[bytes, bool], Awaitable[None]]
Tasks = set["asyncio.Task[Any]"]


async def bulk(read: Read, send: Send) -> None:
    """Serve one stream."""
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
    """Send until the client has ended its side."""

    async def end() -> None:
        _check_end(await read())

    writes = _writes(write)
    ended = asyncio.ensure_future(end())
    while not ended.done():
        for piece in writes:
            await send(piece, False)
        await asyncio.sleep(0)
    await ended
    await send(b"", True)


def start(tasks: Tasks, work: Coroutine[Any, Any, Any]) -> None:
    """Run `work` in a task, which `tasks` keeps until it ends."""
    task = asyncio.ensure_future(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def begin(tasks: Tasks, work: Coroutine[Any, Any, Any]) -> None:
    """Like `start`, but with an eager task on CPython 3.12 and later: it runs until its first wait."""
    loop = asyncio.get_running_loop()
    task = _begun(loop, work)
    if not task.done():
        tasks.add(task)
        task.add_done_callback(tasks.discard)


async def serve_streams(carrier: Any, *, datagrams: bool = True) -> None:
    """Serve all streams, and the datagrams, of a connection of `uringcore.quic`, or of a session on one."""
    tasks: Tasks = set()
    if datagrams:
        begin(tasks, _datagrams(carrier))
    async for stream in carrier.streams():
        begin(tasks, _stream(stream))
    for task in tasks:
        task.cancel()


async def _stream(stream: Any) -> None:
    """`bulk` with the methods of `uringcore.quic`."""
    first = await stream.read(READ)
    mode, piece = first[:1], first[1:]
    if mode == b"E":
        while not stream.at_eof():
            await stream.send(piece)
            piece = await stream.read(READ)
        await stream.send(piece, finish=True)
    elif mode in WRITES:
        await _fill(stream, WRITES[mode])
    else:
        upload = Upload(hashed=mode == b"V")
        upload.feed(piece)
        while piece := await stream.read(READ):
            upload.feed(piece)
        await stream.send(upload.answer(), finish=True)


async def _fill(stream: Any, write: int) -> None:
    """Send until the client has ended its side, which is read while the queue is full."""
    writes = _writes(write)
    ended = asyncio.ensure_future(stream.read())
    while not ended.done():
        for piece in writes:
            await stream.send(piece)
    _check_end(await ended)
    await stream.finish()


def _writes(size: int) -> list[bytes]:
    return [BLOCK[at : at + size] for at in range(0, len(BLOCK), size)]


def _check_end(said: bytes) -> None:
    if said:
        raise RuntimeError("a client that downloads has nothing to say")


@functools.cache
def _over() -> type[Exception]:
    """The error that ends a connection; imported late, because other libraries' servers do not need it."""
    from uringcore.quic import QuicError

    return QuicError


async def _datagrams(carrier: Any) -> None:
    try:
        while True:
            carrier.send_datagrams(await carrier.receive_datagrams())
    except _over():
        """The connection has ended."""


def _later(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return loop.create_task(work)


# CPython 3.12 and later.
_begun: Callable[..., asyncio.Task[Any]] = getattr(asyncio, "eager_task_factory", _later)
