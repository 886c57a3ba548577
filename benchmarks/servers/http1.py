"""This project's server with HTTP/1.1 without TLS, in the process of the caller."""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.servers.http3 import CONNECTIONS_MAX, KEEP_ALIVE_SECONDS, accepting


async def start_uringcore(application: Any, port: int, http: str) -> asyncio.Future[None]:
    """Start the server as the command line does. `http` is the option that selects the implementation."""
    from uringcore.server import Config
    from uringcore.server._server import Server

    server = Server(
        Config(
            application,
            host="127.0.0.1",
            port=port,
            http=http,
            http3=False,
            access_log=False,
            log_level="warning",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            http3_max_connections_per_address=CONNECTIONS_MAX,
        )
    )
    serving = asyncio.ensure_future(server.serve())
    await accepting(port, serving)
    return serving
