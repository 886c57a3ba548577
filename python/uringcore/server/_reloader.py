"""uvicorn's parent process for ``--reload``, which here also restarts a server that has ended.

uvicorn chooses the files and watches them. ``ReloaderLink`` is the child's side of the pipe between the two.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import multiprocessing
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socket
from types import FrameType
from typing import TYPE_CHECKING, Any

from uringcore.server._config import Config
from uringcore.server._startup_errors import STARTUP_FAILURE
from uringcore.server._supervisor import DELAY_SECONDS_MAX, DELAY_SECONDS_MIN, SHORT_LIFE_SECONDS
from uringcore.server._worker_process import Stoppable, stop_orphan

if TYPE_CHECKING:
    from uvicorn.supervisors.basereload import BaseReload as ChangeReload
else:
    from uvicorn.supervisors import ChangeReload

__all__ = ["Reloader", "ReloaderLink"]

# The exit statuses of a failed start, by uvicorn and by an exception. A child that failed to start is started
# again only after a change of the files. A child that has served may end with these statuses, too.
NO_START = (STARTUP_FAILURE, 1)

logger = logging.getLogger("uvicorn.error")


class ReloaderLink:
    """A child's end of the pipe to its parent process.

    When the parent is gone, however it ended, the child stops as by SIGTERM: nothing else would stop it.
    """

    is_orphan = False
    """True if the parent process is gone."""

    def __init__(self, config: Config, report: Connection) -> None:
        self._config = config
        self._report = report
        self._server: Stoppable | None = None
        threading.Thread(target=self._watch, name="uringcore-reloader", daemon=True).start()

    def serving(self, server: Stoppable) -> None:
        """Reports that ``server`` accepts clients from now on."""
        self._server = server
        # The parent may have ended, which the watching thread detects.
        with contextlib.suppress(OSError):
            self._report.send(os.getpid())

    def _watch(self) -> None:
        # poll() waits for no events, so it returns only when the other end is closed.
        watched = select.poll()
        watched.register(self._report, 0)
        watched.poll()
        self.is_orphan = True
        stop_orphan(self._config, self._server)


class Reloader(ChangeReload):
    """Runs ``target`` in a child process, and again when a file changes or the child ends.

    ``target`` is called with ``sockets`` and ``report``, the pipe for its ``ReloaderLink``.

    A child that failed to start is started again only after a file changes. A child that ends soon after its
    start delays the next one, up to half a minute. A second SIGINT is passed on to the child, and a third
    kills it.
    """

    def __init__(self, config: Config, target: Callable[..., None], sockets: list[socket]) -> None:
        # A pipe is used instead of a queue, because a child that is killed could leave the lock of a queue
        # held.
        self._reports, report = multiprocessing.get_context("spawn").Pipe(duplex=False)
        super().__init__(config, functools.partial(target, report=report), sockets)
        self._server_pid = 0
        self._waits_for_change = False
        self._began_at = 0.0
        self._due_at: float | None = None
        self._delay = 0.0
        self._interrupts = 0

    def startup(self) -> None:
        """Starts the first child process."""
        self._began_at = time.monotonic()
        super().startup()

    def restart(self) -> None:
        """Starts another child process after the previous one has ended."""
        super().restart()
        self._began_at = time.monotonic()
        self._waits_for_change = False
        self._due_at = None
        self._read_reports()

    def shutdown(self) -> None:
        """Stops the child. Clients are refused from then on, because the child's sockets are its own."""
        for sock in self.sockets:
            sock.close()
        super().shutdown()

    def should_restart(self) -> list[Path] | None:
        """Returns the files that have changed. Starts another child if the last one has ended."""
        changes = super().should_restart()
        if not changes and not self.should_exit.is_set():
            self._look_at_child()
        return changes

    def signal_handler(self, sig: int, frame: FrameType | None) -> Any:
        """Handles SIGINT and SIGTERM."""
        super().signal_handler(sig, frame)
        if sig != signal.SIGINT:
            return
        self._interrupts += 1
        # The first SIGINT already ends run(), which stops the child. A second one kills the child.
        if self._interrupts > 1 and self.process.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(
                    self.process.pid or 0,
                    signal.SIGINT if self._interrupts == 2 else signal.SIGKILL,
                )

    def _has_child_served(self) -> bool:
        """True if the current child has reported; a report has its process ID, as one of the child before
        may be in the pipe."""
        self._read_reports()
        return self._server_pid == self.process.pid

    def _read_reports(self) -> None:
        # All reports are read, so that the pipe does not fill up.
        while self._reports.poll():
            self._server_pid = self._reports.recv()

    def _look_at_child(self) -> None:
        status = self.process.exitcode
        if status is None or self._waits_for_change:
            return
        how = f"signal {-status}" if status < 0 else f"status {status}"
        if status in NO_START and not self._has_child_served():
            self._waits_for_change = True
            logger.error(
                "Child process [%d] could not start (%s): waiting for a file to change",
                self.process.pid,
                how,
            )
            return
        now = time.monotonic()
        if self._due_at is None:
            logger.error("Child process [%d] died (%s)", self.process.pid, how)
            doubled = min(DELAY_SECONDS_MAX, max(DELAY_SECONDS_MIN, self._delay * 2))
            self._delay = doubled if now - self._began_at < SHORT_LIFE_SECONDS else 0.0
            self._due_at = now + self._delay
        if now >= self._due_at:
            self.restart()
