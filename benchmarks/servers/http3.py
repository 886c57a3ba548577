"""The HTTP/3 hello server: one bare ASGI application under a named server.

Prints `READY <port>` and ends on SIGTERM. Access logs are off everywhere.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import socket
from typing import Any

from benchmarks.servers.loops import new_loop

SERVERS = ("hypercorn", "uringcore-uring", "uringcore-epoll")
BODY = b"Hello, world!"
HEADERS = [(b"content-type", b"text/plain"), (b"content-length", str(len(BODY)).encode())]


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answer every request with 13 bytes."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})


def free_port() -> int:
    """A port that is free for TCP and UDP on 127.0.0.1."""
    while True:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram,
        ):
            stream.bind(("127.0.0.1", 0))
            port: int = stream.getsockname()[1]
            try:
                datagram.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


async def hypercorn(port: int, cert: str, key: str) -> None:
    """hypercorn with `h3` on its asyncio worker, in this process."""
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.quic_bind = [f"127.0.0.1:{port}"]
    config.certfile, config.keyfile = cert, key
    config.accesslog = None
    config.errorlog = None
    serving = asyncio.ensure_future(
        serve(application, config, shutdown_trigger=stopped.wait)  # type: ignore[arg-type]
    )
    await _ready(port, serving)
    await serving


async def uringcore(port: int, cert: str, key: str) -> None:
    """This project's server, HTTP/3 beside HTTP/1.1, as the command line starts it."""
    from uringcore.server.config import ServerConfig
    from uringcore.server.server import Server

    server = Server(
        ServerConfig(
            application,
            host="127.0.0.1",
            port=port,
            ssl_certfile=cert,
            ssl_keyfile=key,
            access_log=False,
            log_level="warning",
        )
    )
    serving = asyncio.ensure_future(server.serve())
    await _ready(port, serving)
    await serving


async def _ready(port: int, serving: asyncio.Future[Any]) -> None:
    """Say READY once the server's TCP side accepts: the UDP side is bound by then."""
    while not serving.done():
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.02)
            continue
        writer.close()
        # The UDP side is bound within the same start-up, right after.
        await asyncio.sleep(0.2)
        print("READY", port, flush=True)
        return


def main() -> None:
    """Run the server named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", choices=SERVERS, required=True)
    parser.add_argument("--cert", required=True)
    parser.add_argument("--key", required=True)
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    ours = options.server.startswith("uringcore")
    loop = new_loop(options.server if ours else "asyncio")
    asyncio.set_event_loop(loop)
    serve = uringcore if ours else hypercorn
    try:
        loop.run_until_complete(serve(free_port(), options.cert, options.key))
    finally:
        loop.close()


if __name__ == "__main__":
    main()
