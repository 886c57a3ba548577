"""fork() with QUIC connections in the parent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import warnings

import pytest

from tests.quic.harness import Recorder, serving
from uringcore import new_event_loop
from uringcore.asyncio import connect
from uringcore.quic import events


def test_a_child_reads_the_authorities_that_another_thread_was_reading(tmp_path, pki):
    program = """
import os, signal, sys, threading
from uringcore.quic.configuration import QuicConfiguration

fifo, authority = sys.argv[1:]
os.environ.update(SSL_CERT_FILE=fifo, SSL_CERT_DIR="/nonexistent")

def read():
    try:
        QuicConfiguration(is_client=True, alpn_protocols=["test"]).setup()
    except ValueError as exc:
        print(exc)

threading.Thread(target=read).start()
# Opened at both ends: the thread is reading.
writer = os.open(fifo, os.O_WRONLY)
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    os.environ["SSL_CERT_FILE"] = authority
    QuicConfiguration(is_client=True, alpn_protocols=["test"]).setup()
    os._exit(0)
os.close(writer)
sys.exit(os.waitpid(pid, 0)[1])
"""
    fifo = tmp_path / "authorities"
    os.mkfifo(fifo)
    arguments = [sys.executable, "-c", program, str(fifo), str(pki.authority.certfile)]
    ended = subprocess.run(arguments, capture_output=True, timeout=120, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "certificate store is empty" in ended.stdout


@pytest.mark.parametrize("backend", ["uring", "epoll"])
def test_connections_end_in_a_forked_child_and_go_on_in_the_parent(
    backend, server_configuration, client_configuration
):
    """The peer would take a packet of the child for the parent's: both have the same keys and packet
    numbers.
    """
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
    # The last queued data; only the parent sends it.
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
