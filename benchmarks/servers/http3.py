"""The HTTP/3 server: one of `benchmarks/applications` under a named server, over QUIC on 127.0.0.1.

Prints `READY <port>` and ends on SIGTERM. Access logs are off everywhere, and each server's limits allow a
body of 1 GiB and 10,000 connections. A server that is a command runs as its users run it.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.servers import readiness
from benchmarks.servers.loops import new_loop
from tests.support.free_ports import free_port

SERVERS = ("hypercorn", "weft", "peregrine", "uringcore-uring", "uringcore-epoll")
APPLICATIONS = {"bare": "benchmarks.applications.bare", "fastapi": "benchmarks.applications.fast"}
BODY_BYTES_MAX = 2 << 30
CONNECTIONS_MAX = 20_000
KEEP_ALIVE_SECONDS = 600


async def hypercorn(application: Any, port: int, cert: str, key: str) -> None:
    """Run hypercorn with `h3` on its asyncio worker, in this process."""
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.quic_bind = [f"127.0.0.1:{port}"]
    config.certfile, config.keyfile = cert, key
    config.keep_alive_timeout = KEEP_ALIVE_SECONDS
    config.accesslog = None
    config.errorlog = None
    serving = asyncio.ensure_future(serve(application, config, shutdown_trigger=stopped.wait))
    await accepting(port, serving)
    print("READY", port, flush=True)
    await serving


async def start_uringcore(application: Any, port: int, cert: str, key: str) -> asyncio.Future[None]:
    """This project's server, HTTP/3 beside HTTP/1.1, as the command line starts it; it accepts now."""
    from uringcore.server import Config
    from uringcore.server._server import Server

    server = Server(
        Config(
            application,
            host="127.0.0.1",
            port=port,
            ssl_certfile=cert,
            ssl_keyfile=key,
            access_log=False,
            log_level="warning",
            http3_keep_alive=KEEP_ALIVE_SECONDS,
            http3_max_connections_per_address=CONNECTIONS_MAX,
        )
    )
    serving = asyncio.ensure_future(server.serve())
    await accepting(port, serving)
    return serving


async def uringcore(application: Any, port: int, cert: str, key: str) -> None:
    """Run this project's server until it ends."""
    serving = await start_uringcore(application, port, cert, key)
    print("READY", port, flush=True)
    await serving


def weft(target: str, port: int, cert: str, key: str) -> list[str]:
    """weft's command, one worker, which is the process itself."""
    return [
        *("weft", target, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        *("--tls-cert", cert, "--tls-key", key, "--http3", "--log-level", "warning"),
        *("--max-body", str(BODY_BYTES_MAX), "--max-connections", str(CONNECTIONS_MAX)),
        *("--keep-alive", str(KEEP_ALIVE_SECONDS)),
    ]


def peregrine(target: str, port: int, cert: str, key: str) -> list[str]:
    """peregrine's command, one worker, which is a child of the process."""
    return [
        *("peregrine", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        *("--tls-cert", cert, "--tls-key", key, "--http3", "--log-level", "warning"),
        *("--max-body", str(BODY_BYTES_MAX), "--max-connections", str(CONNECTIONS_MAX)),
        *("--keep-alive", str(KEEP_ALIVE_SECONDS * 1000), target),
    ]


COMMANDS: dict[str, Callable[[str, int, str, str], list[str]]] = {
    "weft": weft,
    "peregrine": peregrine,
}
"""The servers that are commands: module and arguments."""


async def accepting(port: int, serving: asyncio.Future[Any]) -> None:
    """Wait until the server's TCP side accepts, which is just before the UDP side is bound, or has ended."""
    while not serving.done():
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.02)
            continue
        writer.close()
        # The UDP side is bound right after, within the start-up.
        await asyncio.sleep(0.2)
        return


def say_ready_of(port: int) -> None:
    """Start a process that prints READY as soon as a TLS handshake at `port` succeeds."""

    def shakes_hands(plain: socket.socket) -> bool:
        with readiness.secured(plain):
            time.sleep(0.2)
            return True

    readiness.say_ready_of(port, shakes_hands)


def main() -> None:
    """Run the server named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", choices=SERVERS, required=True)
    parser.add_argument("--application", choices=APPLICATIONS, required=True)
    parser.add_argument("--cert", required=True)
    parser.add_argument("--key", required=True)
    options = parser.parse_args()
    module = APPLICATIONS[options.application]
    port = free_port()
    if options.server in COMMANDS:
        command = COMMANDS[options.server](f"{module}:application", port, options.cert, options.key)
        say_ready_of(port)
        os.execv(sys.executable, [sys.executable, "-m", *command])
    logging.basicConfig(level=logging.WARNING)
    ours = options.server.startswith("uringcore")
    loop = new_loop(options.server if ours else "asyncio")
    asyncio.set_event_loop(loop)
    serve = uringcore if ours else hypercorn
    application = importlib.import_module(module).application
    try:
        loop.run_until_complete(serve(application, port, options.cert, options.key))
    finally:
        loop.close()


if __name__ == "__main__":
    main()
