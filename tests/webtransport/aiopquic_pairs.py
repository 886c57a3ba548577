"""Servers, clients and programs in aiopquic's names."""

from __future__ import annotations

import asyncio

from uringcore.contrib import aiopquic as wt


def serving(files, handler, **options):
    cert, key = files
    options = {"path": "/wt", "cert_file": cert, "key_file": key, **options}
    return wt.serve_webtransport("127.0.0.1", 0, handler=handler, **options)


def connecting(files, server, **options):
    options = {"path": "/wt", "ca_file": files[0], **options}
    return wt.connect_webtransport("127.0.0.1", server.address[1], **options)


async def staying(session):
    """A handler that only waits for the end."""
    await session.wait_closed()


async def echo(session):
    running = set()

    async def back(stream):
        async for event in session.receive_stream_data(stream):
            if isinstance(event, wt.WebTransportStreamDataReceived):
                await session.send_stream_data_drained(stream, event.data, event.end_stream)

    async for event in session.events():
        if isinstance(event, wt.WebTransportNewStream):
            task = asyncio.ensure_future(back(event.stream_id))
            running.add(task)
            task.add_done_callback(running.discard)
        elif isinstance(event, wt.WebTransportDatagramReceived):
            assert session.send_datagram_frame(event.data) == len(event.data)


async def read_all(session, stream):
    return b"".join([bytes(event.data) async for event in session.receive_stream_data(stream)])


async def next_of(events, kind):
    async for event in events:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind.__name__}")


async def accepted(session):
    """Returns the number of the next stream that the peer opens."""
    return (await next_of(session.events(), wt.WebTransportNewStream)).stream_id
