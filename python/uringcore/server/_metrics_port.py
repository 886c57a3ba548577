"""A TCP port of its own for a server's metrics and, if an option says so, its status page: plain HTTP, for
scrapers and operators.

Not here: what is answered (_observer.py), and who binds the port (_sockets.py): several workers share it,
and whichever is asked tells of all.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from http import HTTPStatus
from typing import Protocol

from uringcore._within import within

__all__ = ["METRICS_PATH", "MetricsPort"]

METRICS_PATH = "/metrics"
"""Where Prometheus looks unless it is told otherwise."""

REQUEST_SECONDS = 10.0
"""For a request and its answer. Reports of processes that are stuck take two."""

REQUEST_BYTES_MAX = 8192


class _Pages(Protocol):
    """What is asked."""

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
        """Takes clients from now on. The sockets are this object's."""
        for sock in sockets:
            self._servers.append(
                await asyncio.start_server(self._asked, sock=sock, limit=REQUEST_BYTES_MAX)
            )

    def stop_accepting(self) -> None:
        """Takes no more of them."""
        for server in self._servers:
            server.close()
        self._servers = []

    async def close(self) -> None:
        """Takes no more clients, and leaves those that are there."""
        self.stop_accepting()
        for writer in self._open.values():
            writer.transport.abort()
        if self._open:
            await asyncio.wait(list(self._open))

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task: asyncio.Task[None] | None = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        task.add_done_callback(self._open.pop)
        with contextlib.closing(writer):
            # Whoever asks may go, never end, or say something else.
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
