"""The bulk server on `uringcore.quic`, whose streams are read and written: a task for each.

Prints `READY <port>` and ends on SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import signal

from benchmarks.servers.bulk import ALPN, WINDOW
from benchmarks.servers.bulk_streams import Tasks, serve_streams, start
from benchmarks.servers.loops import OURS, new_loop


async def serve(cert: str, key: str) -> None:
    """Listen on a free port of 127.0.0.1 until SIGTERM."""
    from uringcore import quic

    ended = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set_result, None)
    config = quic.ServerConfig(
        certificate=(cert, key),
        alpn=[ALPN],
        max_streams=1024,
        connection_receive_window=2 * WINDOW,
        receive_window=WINDOW,
    )
    tasks: Tasks = set()
    async with quic.listen("127.0.0.1", 0, config) as listener:

        async def connections() -> None:
            async for connection in listener:
                start(tasks, serve_streams(connection))

        start(tasks, connections())
        print("READY", listener.address[1], flush=True)
        await ended


def main() -> None:
    """Run the server on the loop named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loop", choices=OURS, required=True)
    parser.add_argument("--cert", required=True)
    parser.add_argument("--key", required=True)
    options = parser.parse_args()
    loop = new_loop(options.loop)
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(serve(options.cert, options.key))
    finally:
        loop.close()


if __name__ == "__main__":
    main()
