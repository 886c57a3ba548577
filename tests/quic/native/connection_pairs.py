"""Client and server ends of one connection, in one process."""

from __future__ import annotations

import asyncio
import contextlib

from uringcore import quic


def server_config(pki, **fields):
    fields.setdefault("certificate", (pki.server.certfile, pki.server.keyfile))
    fields.setdefault("alpn", ["test"])
    return quic.ServerConfig(**fields)


def client_config(pki, **fields):
    fields.setdefault("authorities", pki.authority.certfile)
    fields.setdefault("alpn", ["test"])
    return quic.ClientConfig(**fields)


def listening(pki, **fields):
    return quic.listen("127.0.0.1", 0, server_config(pki, **fields))


def connecting(pki, listener, **fields):
    return quic.connect(*listener.address, client_config(pki, **fields))


@contextlib.asynccontextmanager
async def pair(pki, client=None, server=None):
    """Yields both ends of a connection."""
    async with listening(pki, **(server or {})) as listener:
        async with connecting(pki, listener, **(client or {})) as one:
            async with await listener.accept() as other:
                yield one, other


@contextlib.asynccontextmanager
async def stream_pair(pki, client=None, server=None):
    """Yields both ends of one stream, on which the opener has sent an ``x`` that was read."""
    async with pair(pki, client, server) as (one, other):
        async with one.open_stream() as here:
            await here.send(b"x")
            async with await other.accept_stream() as there:
                assert await there.readexactly(1) == b"x"
                yield here, there


async def settled(task):
    """Lets ``task`` run until it waits for the other side."""
    for _ in range(5):
        await asyncio.sleep(0)
    return task


async def cancelled(task):
    """Cancels a task that is waiting, and checks that it ends."""
    await settled(task)
    assert not task.done()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def cancelled_after(turns, work):
    """Cancels ``work`` this many loop iterations after its start. Returns its result if it has one
    nevertheless, otherwise None.
    """
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return None if task.cancelled() else task.result()
