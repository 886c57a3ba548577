"""The main function of a server on a named event loop or library: its command line, its READY line, its end
on SIGTERM.

Each server defines its styles, the ways in which it serves.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.servers import heap
from benchmarks.servers.loops import STREAM_LOOPS, new_loop

BACKLOG = 1024
Style = Callable[["ssl.SSLContext | None"], Awaitable[int]]
"""Starts to serve on a free port of 127.0.0.1, with TLS if there is a context, and returns the port."""


def run(about: str | None, styles: Mapping[str, Style]) -> None:
    """Serve with the options of the command line until SIGTERM; `about` describes the server."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--loop", choices=STREAM_LOOPS, required=True)
    parser.add_argument("--style", choices=styles, required=True)
    parser.add_argument("--busy-poll-us", type=int)
    parser.add_argument("--cert", type=Path)
    parser.add_argument("--key", type=Path)
    options = parser.parse_args()
    tls = None
    if options.cert is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(options.cert, options.key)
    heap.warm()
    loop = new_loop(options.loop, options.busy_poll_us)
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(_serve(styles[options.style], tls))
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.close()


def run_library(
    about: str | None,
    libraries: Sequence[str],
    serve: Callable[..., Coroutine[Any, Any, None]],
    **flags: str,
) -> None:
    """Run `serve(package, cert, key)` with the library that the command line names, on its loop. Each of
    `flags`, a name with its help text, is an option of the server and a keyword argument of `serve`."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--library", choices=libraries, required=True)
    parser.add_argument("--cert", required=True)
    parser.add_argument("--key", required=True)
    for flag, does in flags.items():
        parser.add_argument(f"--{flag}", action="store_true", help=does)
    options = parser.parse_args()
    named = {flag: getattr(options, flag) for flag in flags}
    package = options.library.partition("-")[0]
    heap.warm()
    # The other libraries run on their users' default loop.
    loop = new_loop(options.library if package == "uringcore" else "asyncio")
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(serve(package, options.cert, options.key, **named))
    finally:
        loop.close()


async def _serve(style: Style, tls: ssl.SSLContext | None) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    print("READY", await style(tls), flush=True)
    await stopped.wait()
