"""Exchange of reports among the processes of one server, so that each of them can report on all.

Each process listens on a Unix socket in a shared private folder. A connection to it receives one report and
the end of the stream. _stats_snapshot.py makes the reports.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
from collections.abc import Awaitable, Callable
from pathlib import Path

from uringcore._time_limit import within
from uringcore.server._stats_snapshot import Report

__all__ = ["WorkerReports"]

REPORT_SECONDS_MAX = 2.0
"""Seconds that a process has to send its report. The report of a stuck process is left out."""


class WorkerReports:
    """Collects the reports of all processes. ``make_report`` makes this process's own report."""

    def __init__(self, folder: str, make_report: Callable[[], Awaitable[Report]]) -> None:
        # The path of a socket has at most 107 bytes (unix(7)), and that of the folder may be longer. So the
        # socket is reached by a path that names the folder's descriptor, which is short.
        self._place = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._folder = Path(f"/proc/self/fd/{self._place}")
        self._own = self._folder / str(os.getpid())
        self._make_report = make_report
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Starts to listen for the other processes' requests for reports, unless it listens already."""
        if self._server is None:
            self._server = await asyncio.start_unix_server(self._serve_client, self._own)

    def close(self) -> None:
        """Stops listening."""
        if self._server is not None and self._server.is_serving():
            self._server.close()
            with contextlib.suppress(FileNotFoundError):
                self._own.unlink()
            os.close(self._place)

    async def reports(self) -> list[Report]:
        """Returns the reports of all processes that answer. The first one is that of this process."""
        others = [path for path in sorted(self._folder.glob("[0-9]*")) if path != self._own]
        answers = await asyncio.gather(*(self._request(path) for path in others))
        return [await self._make_report(), *(answer for answer in answers if answer is not None)]

    async def _request(self, path: Path) -> Report | None:
        """Returns the report of another process; ``None`` if the process has ended or is stuck."""
        try:
            return await within(fetch(path), REPORT_SECONDS_MAX)
        except (OSError, EOFError, asyncio.TimeoutError):
            return None

    async def _serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        # The process that requested the report may have ended.
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            writer.write(pickle.dumps(await self._make_report()))
            await writer.drain()


async def fetch(path: Path) -> Report:
    """Fetches and unpickles a report. Only this user can write in the folder."""
    reader, writer = await asyncio.open_unix_connection(path)
    with contextlib.closing(writer):
        report: Report = pickle.loads(await reader.read())
        return report
