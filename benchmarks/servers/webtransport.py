"""The WebTransport server on a named library: aiopquic, pywebtransport or uringcore.

Prints `READY <port>` and ends on SIGTERM. In a session, bidirectional streams have the protocol of the bulk
servers (`native/quic_load.rs`), and datagrams are sent back. Each library is used as its documentation shows
it, with equal windows if they can be set.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from functools import partial
from typing import Any

from benchmarks.servers.bulk import WINDOW
from benchmarks.servers.bulk_streams import READ, Tasks, bulk, serve_streams, start
from benchmarks.servers.program import run_library
from tests.support.free_ports import free_port

LIBRARIES = ("aiopquic", "pywebtransport", "uringcore-uring", "uringcore-epoll")
PATH = "/bulk"
STREAMS = 10_000
"""The number of streams that a client may have open, for libraries with such a limit."""
SESSIONS = 1_000_000
"""The limit of sessions; sessions that have ended but are not forgotten count too."""


# aiopquic


async def serve_aiopquic(port: int, cert: str, key: str) -> Any:
    """Start aiopquic's server: its sessions have events and stream numbers."""
    from aiopquic.asyncio.webtransport import serve_webtransport
    from aiopquic.quic import events
    from aiopquic.quic.configuration import QuicConfiguration

    def stream(session: Any, stream_id: int) -> Coroutine[Any, Any, None]:
        received = session.receive_stream_data(stream_id)

        async def read() -> bytes:
            async for event in received:
                if isinstance(event, events.WebTransportStreamReset):
                    break
                if event.data:
                    return event.data
            return b""

        async def send(data: bytes, end: bool) -> None:
            await session.send_stream_data_drained(stream_id, data, end)

        return bulk(read, send)

    async def handle(session: Any) -> None:
        tasks: Tasks = set()
        async for event in session.events():
            if isinstance(event, events.WebTransportNewStream):
                start(tasks, stream(session, event.stream_id))
            elif isinstance(event, events.WebTransportDatagramReceived):
                session.send_datagram_frame(bytes(event.data))
            elif isinstance(event, events.WebTransportSessionClosed):
                break
        for task in tasks:
            task.cancel()

    configuration = QuicConfiguration(
        is_client=False,
        max_data=2 * WINDOW,
        max_stream_data=WINDOW,
        max_streams_bidi=STREAMS,
    )
    return await serve_webtransport(
        "127.0.0.1",
        port,
        PATH,
        handler=handle,
        cert_file=cert,
        key_file=key,
        configuration=configuration,
    )


# pywebtransport


async def serve_pywebtransport(port: int, cert: str, key: str) -> Any:
    """Start pywebtransport's server: iterators of connections, of their sessions and of their streams."""
    from pywebtransport import ServerConfig, WebTransportError, WebTransportServer

    async def datagrams(session: Any) -> None:
        try:
            while True:
                await session.send_datagram(data=await session.read_datagram())
        except WebTransportError:
            """The session has ended."""

    async def handle(session: Any) -> None:
        tasks: Tasks = set()
        await session.accept()
        start(tasks, datagrams(session))
        async for stream in session.incoming_bidirectional_streams():

            async def send(data: bytes, end: bool, stream: Any = stream) -> None:
                await stream.write(data=data, end_stream=end)

            start(tasks, bulk(partial(stream.read, max_size=READ), send))
        for task in tasks:
            task.cancel()

    config = ServerConfig(
        bind_host="127.0.0.1",
        bind_port=port,
        certfile=cert,
        keyfile=key,
        connection_receive_window=2 * WINDOW,
        session_receive_window=2 * WINDOW,
        stream_receive_window=WINDOW,
        max_sessions=SESSIONS,
        # Ended sessions count until the library has cleaned up.
        resource_cleanup_interval=0.1,
    )
    server = WebTransportServer(config=config)
    await server.__aenter__()
    await server.listen()
    tasks: Tasks = set()

    async def connections() -> None:
        async for connection in server.incoming_connections():
            start(tasks, sessions(connection))

    async def sessions(connection: Any) -> None:
        async for session in connection.incoming_sessions():
            start(tasks, handle(session))

    start(tasks, connections())
    return server


# uringcore


async def serve_uringcore(port: int, cert: str, key: str) -> Any:
    """Start uringcore's server: a handler for each session, a task for each of its streams."""
    from uringcore.quic import ServerConfig
    from uringcore.webtransport import serve_webtransport

    serving = serve_webtransport(
        "127.0.0.1",
        port,
        config=ServerConfig(
            certificate=(cert, key),
            connection_receive_window=2 * WINDOW,
            receive_window=WINDOW,
        ),
        paths=[PATH],
        handler=serve_streams,
    )
    return await serving.__aenter__()


SERVERS = {
    "aiopquic": serve_aiopquic,
    "pywebtransport": serve_pywebtransport,
    "uringcore": serve_uringcore,
}


async def serve(package: str, cert: str, key: str) -> None:
    """Listen on a free port of 127.0.0.1 until SIGTERM."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    port = free_port()
    server = await SERVERS[package](port, cert, key)
    print("READY", port, flush=True)
    await stopped.wait()
    ending = server.close()
    if package == "uringcore":
        ending = server.wait_closed()
    if asyncio.iscoroutine(ending):
        await ending


if __name__ == "__main__":
    run_library(__doc__, LIBRARIES, serve)
