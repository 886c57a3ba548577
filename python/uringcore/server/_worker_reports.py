"""The processes of one server that tell each other how they stand, so that any of them can tell of all.

Each listens on a Unix socket in a folder that only they know; whoever connects gets a report and the end
of the stream. What a report is made of is _report.py's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
from collections.abc import Awaitable, Callable
from pathlib import Path

from uringcore._within import within
from uringcore.server._report import Report

__all__ = ["WorkerReports"]

PATIENCE_SECONDS = 2.0
"""For one that is stuck: the others are told of all the same."""


class WorkerReports:
    """Those of this process. ``tell`` makes its own report."""

    def __init__(self, folder: str, tell: Callable[[], Awaitable[Report]]) -> None:
        # A socket's path has 107 bytes at most (unix(7)), and the folder for short-lived files any name: by
        # its descriptor the folder has a short one.
        self._place = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._folder = Path(f"/proc/self/fd/{self._place}")
        self._own = self._folder / str(os.getpid())
        self._tell = tell
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listens for the others, if it does not yet."""
        if self._server is None:
            self._server = await asyncio.start_unix_server(self._asked, self._own)

    def close(self) -> None:
        """The others hear no more of this process."""
        if self._server is not None and self._server.is_serving():
            self._server.close()
            with contextlib.suppress(FileNotFoundError):
                self._own.unlink()
            os.close(self._place)

    async def reports(self) -> list[Report]:
        """Of all processes that answer, this one's first."""
        others = [path for path in sorted(self._folder.glob("[0-9]*")) if path != self._own]
        answers = await asyncio.gather(*(self._ask(path) for path in others))
        return [await self._tell(), *(answer for answer in answers if answer is not None)]

    async def _ask(self, path: Path) -> Report | None:
        """``None`` of one that has ended, perhaps without a word, or is stuck."""
        try:
            return await within(fetch(path), PATIENCE_SECONDS)
        except (OSError, EOFError, asyncio.TimeoutError):
            return None

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Who asked may have gone.
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            writer.write(pickle.dumps(await self._tell()))
            await writer.drain()


async def fetch(path: Path) -> Report:
    """Unpickled as it is: whoever may write in the folder is this user."""
    reader, writer = await asyncio.open_unix_connection(path)
    with contextlib.closing(writer):
        report: Report = pickle.loads(await reader.read())
        return report
