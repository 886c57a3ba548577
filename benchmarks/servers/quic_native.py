"""The bulk server on `uringcore.quic`: a task reads and writes each stream.

Prints `READY <port>` and ends on SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from benchmarks.servers.bulk import ALPN, WINDOW
from benchmarks.servers.bulk_streams import Tasks, begin, serve_streams
from benchmarks.servers.loops import OURS
from benchmarks.servers.program import run_library


async def serve(_package: str, cert: str, key: str, datagrams: bool) -> None:
    """Listen on a free port of 127.0.0.1 until SIGTERM."""
    ended = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set_result, None)
    async with listening(cert, key) as listener:
        serving = asyncio.ensure_future(connections(listener, datagrams))
        print("READY", listener.address[1], flush=True)
        await ended
        serving.cancel()


def listening(cert: str, key: str) -> Any:
    """The listener on a free port of 127.0.0.1, for `async with`."""
    from uringcore import quic

    config = quic.ServerConfig(
        certificate=(cert, key),
        alpn=[ALPN],
        # The other libraries' default. A connection costs time for each of them.
        max_streams=128,
        connection_receive_window=2 * WINDOW,
        receive_window=WINDOW,
    )
    return quic.listen("127.0.0.1", 0, config)


async def connections(listener: Any, datagrams: bool) -> None:
    """Serve all connections of `listener`; with `datagrams`, each also has a task for datagrams."""
    tasks: Tasks = set()
    async for connection in listener:
        begin(tasks, serve_streams(connection, datagrams=datagrams))


if __name__ == "__main__":
    run_library(__doc__, OURS, serve, datagrams="send datagrams back, too")
