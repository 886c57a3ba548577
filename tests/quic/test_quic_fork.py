"""fork with QUIC connections in the parent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import warnings

import pytest

from tests.quic.harness import Recorder, serving
from uringcore import new_event_loop
from uringcore.asyncio import connect
from uringcore.quic import events


@pytest.mark.parametrize("backend", ["uring", "epoll"])
def test_connections_end_in_a_forked_child_and_go_on_in_the_parent(
    backend, server_configuration, client_configuration
):
    """A packet of the child's would be taken for the parent's: the same keys, the same numbers."""
    loop = new_event_loop(backend=backend)
    asyncio.set_event_loop(loop)
    stack = contextlib.AsyncExitStack()

    async def begin():
        port, protocols = await stack.enter_async_context(serving(server_configuration()))
        client = await stack.enter_async_context(
            connect(
                "127.0.0.1",
                port,
                configuration=client_configuration(),
                create_protocol=Recorder,
            )
        )
        await echoed(client)
        return client, protocols[0]

    async def echoed(client):
        stream_id = client._quic.get_next_available_stream_id()
        client._quic.send_stream_data(stream_id, b"hello", end_stream=True)
        client.transmit()
        await client.wait_for(events.StreamDataReceived, stream_id=stream_id, end_stream=True)

    async def ended(*protocols):
        for protocol in protocols:
            await protocol.wait_for(events.ConnectionTerminated)

    async def anew():
        async with serving(server_configuration()) as (port, _):
            async with connect(
                "127.0.0.1",
                port,
                configuration=client_configuration(),
                create_protocol=Recorder,
            ) as own:
                await echoed(own)

    client, protocol = loop.run_until_complete(begin())
    # Said last, and to be sent by the parent alone.
    client._quic.send_ping(1)
    client.transmit()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            loop.run_until_complete(asyncio.wait_for(ended(client, protocol), 20))
            loop.run_until_complete(asyncio.wait_for(anew(), 20))
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    loop.run_until_complete(asyncio.wait_for(echoed(client), 20))
    loop.run_until_complete(asyncio.wait_for(stack.aclose(), 30))
    loop.close()
    asyncio.set_event_loop(None)
