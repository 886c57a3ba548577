"""TCP echo on a named event loop: an `asyncio.Protocol` that writes back what it gets.

Prints `READY <port>` once it listens and ends on SIGTERM. The work per request is one method call
and one write, so the figures are the loop's.
"""

from __future__ import annotations

import argparse
import asyncio
import signal

from benchmarks.servers.loops import LOOPS, new_loop


class Echo(asyncio.Protocol):
    """Writes back what arrives."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; asyncio's own TCP transports set TCP_NODELAY themselves."""
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Echo."""
        self.transport.write(data)


async def serve() -> None:
    """Listen on a free port of 127.0.0.1 until SIGTERM."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    server = await loop.create_server(Echo, "127.0.0.1", 0, backlog=1024)
    print("READY", server.sockets[0].getsockname()[1], flush=True)
    await stopped.wait()
    server.close()


def main() -> None:
    """Run the server named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loop", choices=LOOPS, required=True)
    loop = new_loop(parser.parse_args().loop)
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(serve())
    finally:
        loop.close()


if __name__ == "__main__":
    main()
