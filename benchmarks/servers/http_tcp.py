"""The HTTP server over TCP: one of `benchmarks/applications` under a named server.

Prints `READY <port>` and ends on SIGTERM. Each server runs as its users run it, with one worker, on uvloop if
it needs another project's loop, without access log, and with limits that let 20,000 connections live for ten
minutes. HTTP/2 is with prior knowledge. With `--cert` and `--key` it serves HTTP/1.1 over TLS.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.servers import readiness
from benchmarks.servers.http3 import (
    APPLICATIONS,
    BODY_BYTES_MAX,
    CONNECTIONS_MAX,
    KEEP_ALIVE_SECONDS,
)
from benchmarks.servers.loops import new_loop
from tests.support.free_ports import free_port

Arguments = Callable[[str, int, int], list[str]]
"""The command of a server: from the application, the port and the version of HTTP."""
Certificate = tuple[str, str]
"""The files of a certificate and of its key."""

ADDRESS = "127.0.0.1"
OURS = ("uringcore-uring", "uringcore-epoll")
HYPERCORN = "hypercorn"
WSPROTO = "uvicorn, wsproto"
GET = {
    1: b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    # The preface, an empty SETTINGS frame and a HEADERS frame (RFC 9113 sections 3.4 and 4.1).
    2: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
    + bytes((0, 0, 6, 1, 5, 0, 0, 0, 1))
    + b"\x82\x86\x84\x41\x01a",
}
"""A request for `/` by the version of HTTP."""


def weft(target: str, port: int, version: int) -> list[str]:
    """weft: the worker is the process itself."""
    return [
        *(*_module("weft"), target, "--host", ADDRESS, "--port", str(port), "--workers", "1"),
        *("--log-level", "warning", "--keep-alive", str(KEEP_ALIVE_SECONDS)),
        *("--max-body", str(BODY_BYTES_MAX), "--max-connections", str(CONNECTIONS_MAX)),
        "--ws-compress",
        *(("--http2-only",) if version == 2 else ()),
    ]


def peregrine(target: str, port: int, version: int) -> list[str]:
    """peregrine: the worker is a child of the process."""
    return [
        *(*_module("peregrine"), "--host", ADDRESS, "--port", str(port), "--workers", "1"),
        *("--log-level", "warning", "--keep-alive", str(KEEP_ALIVE_SECONDS * 1000)),
        *("--max-body", str(BODY_BYTES_MAX), "--max-connections", str(CONNECTIONS_MAX)),
        "--ws-compress",
        *(("--http2-only",) if version == 2 else ()),
        target,
    ]


def granian(target: str, port: int, version: int) -> list[str]:
    """granian with its ASGI interface: the worker is a child of the process."""
    return [
        *(*_module("granian"), target, "--interface", "asgi", "--loop", "uvloop"),
        *("--host", ADDRESS, "--port", str(port), "--workers", "1", "--http", str(version)),
        *("--log-level", "warning", "--no-access-log"),
        # The number of connections that it serves at once.
        *("--backpressure", str(CONNECTIONS_MAX)),
    ]


def pyvoy(target: str, port: int, version: int) -> list[str]:
    """pyvoy: Envoy is a child of the process. Its listener detects the version."""
    return [_script("pyvoy"), target, "--address", ADDRESS, "--port", str(port), "--loop", "uvloop"]


def h2corn(target: str, port: int, version: int) -> list[str]:
    """h2corn. Its runtime gets one thread, because the server has one core."""
    return [
        *(*_module("h2corn"), target, "--bind", f"{ADDRESS}:{port}", "--workers", "1"),
        *("--runtime-threads", "1", "--loop", "uvloop"),
        *("--http1" if version == 1 else "--no-http1",),
    ]


def uvicorn(target: str, port: int, version: int) -> list[str]:
    """uvicorn on uvloop: httptools, and zttp for HTTP/2."""
    parser = ("--http", "httptools") if version == 1 else ("--http", "zttp", "--http2")
    return [
        *(*_module("uvicorn"), target, "--host", ADDRESS, "--port", str(port), *parser),
        *("--loop", "uvloop", "--log-level", "warning", "--no-access-log"),
        *("--timeout-keep-alive", str(KEEP_ALIVE_SECONDS)),
    ]


def uvicorn_with_wsproto(target: str, port: int, version: int) -> list[str]:
    """uvicorn with wsproto for WebSocket, in place of the package `websockets`."""
    return [*uvicorn(target, port, version), "--ws", "wsproto"]


COMMANDS: dict[str, Arguments] = {
    WSPROTO: uvicorn_with_wsproto,
    "weft": weft,
    "peregrine": peregrine,
    "granian": granian,
    "pyvoy": pyvoy,
    "h2corn": h2corn,
    "uvicorn": uvicorn,
}
"""The servers that are commands of other projects."""
CERTIFICATE_OPTIONS = {
    "weft": ("--tls-cert", "--tls-key"),
    "peregrine": ("--tls-cert", "--tls-key"),
    "granian": ("--ssl-certificate", "--ssl-keyfile"),
    "pyvoy": ("--tls-cert", "--tls-key"),
    "h2corn": ("--certfile", "--keyfile"),
    "uvicorn": ("--ssl-certfile", "--ssl-keyfile"),
}
"""Their options for the certificate and its key."""
SERVERS = (HYPERCORN, *COMMANDS, *OURS)


def _module(name: str) -> tuple[str, ...]:
    return (sys.executable, "-m", name)


def _script(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def command_of(
    server: str, target: str, port: int, version: int, certificate: Certificate | None
) -> list[str]:
    """The command of a server in `COMMANDS`."""
    command = COMMANDS[server](target, port, version)
    if certificate is None:
        return command
    options = zip(CERTIFICATE_OPTIONS[server], certificate, strict=True)
    words = [word for option in options for word in option]
    # The application has to be the last argument of some.
    return [*command[:-1], *words, target] if command[-1] == target else [*command, *words]


async def hypercorn(application: Any, port: int, certificate: Certificate | None) -> None:
    """Run hypercorn in this process: its command has no option for the requests of a connection."""
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    config = Config()
    config.bind = [f"{ADDRESS}:{port}"]
    if certificate is not None:
        config.certfile, config.keyfile = certificate
    config.keep_alive_timeout = KEEP_ALIVE_SECONDS
    config.keep_alive_max_requests = sys.maxsize
    config.accesslog = None
    config.errorlog = None
    await serve(application, config, shutdown_trigger=stopped.wait)


async def uringcore(application: Any, port: int, certificate: Certificate | None) -> None:
    """Run this project's server as its command starts it, with its own classes for both versions."""
    from uringcore.server import Config
    from uringcore.server._server import Server

    cert, key = certificate or (None, None)
    server = Server(
        Config(
            application,
            host=ADDRESS,
            port=port,
            http="native",
            http3=False,
            ssl_certfile=cert,
            ssl_keyfile=key,
            access_log=False,
            log_level="warning",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            http3_max_connections_per_address=CONNECTIONS_MAX,
        )
    )
    await server.serve()


def say_ready_of(port: int, version: int, *, secure: bool = False) -> None:
    """Start a process that prints READY as soon as the server at `port` answers, over TLS if `secure`."""

    def answers(plain: socket.socket) -> bool:
        with readiness.secured(plain) if secure else plain as connection:
            connection.sendall(GET[version])
            return bool(connection.recv(1))

    readiness.say_ready_of(port, answers)


def main() -> None:
    """Run the server named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", choices=SERVERS, required=True)
    parser.add_argument("--application", choices=APPLICATIONS, required=True)
    parser.add_argument("--http", type=int, choices=(1, 2), required=True)
    parser.add_argument("--cert")
    parser.add_argument("--key")
    options = parser.parse_args()
    if (options.cert is None) != (options.key is None):
        parser.error("--cert and --key go together")
    if options.cert is not None and options.http != 1:
        parser.error("only HTTP/1.1 is measured over TLS")
    module = APPLICATIONS[options.application]
    certificate = None if options.cert is None else (options.cert, options.key)
    port = free_port()
    say_ready_of(port, options.http, secure=certificate is not None)
    if options.server in COMMANDS:
        target = f"{module}:application"
        command = command_of(options.server, target, port, options.http, certificate)
        os.execv(command[0], command)
    logging.basicConfig(level=logging.WARNING)
    loop = new_loop(options.server if options.server in OURS else "uvloop")
    asyncio.set_event_loop(loop)
    serve = uringcore if options.server in OURS else hypercorn
    application = importlib.import_module(module).application
    try:
        loop.run_until_complete(serve(application, port, certificate))
    finally:
        loop.close()


if __name__ == "__main__":
    main()
