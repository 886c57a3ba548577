"""A separate TCP port for a server's metrics and, with an option, its status page: plain HTTP, for scrapers
and operators.

_metrics_middleware.py makes the pages, and _listening_sockets.py binds the port. Several workers share it,
and each one reports on all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from http import HTTPStatus
from typing import Protocol

from uringcore._time_limit import within

__all__ = ["METRICS_PATH", "MetricsPort"]

METRICS_PATH = "/metrics"
"""Prometheus's default path."""

REQUEST_SECONDS = 10.0
"""Seconds that a request and its answer may take. Collecting the reports of stuck processes takes two
seconds."""

REQUEST_BYTES_MAX = 8192


class _Pages(Protocol):
    """The object that makes the pages: ``MetricsMiddleware``."""

    async def port_page(
        self, path: str, method: str, query: bytes
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes] | None: ...


class MetricsPort:
    """Answers GET and HEAD of ``pages`` on sockets that are bound; one request a connection."""

    def __init__(self, pages: _Pages) -> None:
        self._pages = pages
        self._servers: list[asyncio.Server] = []
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Starts serving. This object owns the sockets from now on."""
        for sock in sockets:
            self._servers.append(
                await asyncio.start_server(self._serve_client, sock=sock, limit=REQUEST_BYTES_MAX)
            )

    def stop_accepting(self) -> None:
        """Accepts no new clients."""
        for server in self._servers:
            server.close()
        self._servers = []

    async def close(self) -> None:
        """Accepts no new clients, and aborts the open connections."""
        self.stop_accepting()
        for writer in self._open.values():
            writer.transport.abort()
        if self._open:
            await asyncio.wait(list(self._open))

    async def _serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task: asyncio.Task[None] | None = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        task.add_done_callback(self._open.pop)
        with contextlib.closing(writer):
            # A client may disconnect, send no complete request, or send something else.
            with contextlib.suppress(
                ConnectionError,
                asyncio.IncompleteReadError,
                asyncio.LimitOverrunError,
                asyncio.TimeoutError,
            ):
                await within(self._serve(reader, writer), REQUEST_SECONDS)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, _, rest = head.partition(b" ")
        path, _, query = rest.partition(b" ")[0].partition(b"?")
        page = await self._pages.port_page(path.decode("latin-1"), method.decode("latin-1"), query)
        status, fields, body = page or (404, [(b"content-length", b"0")], b"")
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()]
        lines += [name + b": " + value for name, value in fields]
        writer.write(b"\r\n".join([*lines, b"connection: close", b"", body]))
        await writer.drain()
