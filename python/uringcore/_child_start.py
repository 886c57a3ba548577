"""Starts a child process for asyncio's subprocess transport, and waits until the child runs its program.

``_child_processes`` starts children and waits for their ends; ``_popen`` prepares their arguments.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from asyncio import unix_events
from typing import Any

from ._popen import PendingPopen, can_spawn, close_pipes

__all__ = ["PendingPopen", "Start", "SubprocessTransport", "can_spawn"]

_asyncio_logger = logging.getLogger("asyncio")

_UnixSubprocessTransport: Any = unix_events._UnixSubprocessTransport  # type: ignore[attr-defined]


class SubprocessTransport(_UnixSubprocessTransport):  # type: ignore[misc]
    """asyncio's transport over a process that is already running."""

    def _start(self, *args: Any, process: Any, **kwargs: Any) -> None:
        self._proc = process


class Start:
    """The start of one child, from the request until its program runs.

    Callbacks hold this object, not only the coroutine that waits for the start. So if that coroutine is
    cancelled, closed or never resumed, the child is killed and waited for.
    """

    def __init__(self, loop: Any, process: PendingPopen) -> None:
        self._loop = loop
        self._process = process
        self._fd = -1
        self._begun = False
        self._unwanted = False
        self.done: asyncio.Future[tuple[int, int]] = loop.create_future()
        self._gone: asyncio.Future[None] = loop.create_future()

    @property
    def is_unwanted(self) -> bool:
        """True if nothing waits for the child any more."""
        return self._unwanted or self.done.cancelled()

    def begin(self) -> None:
        """Start the thread that makes the child."""
        try:
            self._fd = self._process.spawn.start()
        except BaseException:
            self._end_without_child()
            raise
        self._begun = True
        self._loop._add_reader(self._fd, self._finished)

    async def abandon(self) -> None:
        """Discard the child and wait until it is gone."""
        self.discard()
        await self._gone

    def discard(self) -> None:
        """Discard the child: if it has not started yet it never runs, otherwise it is killed."""
        self._unwanted = True
        if not self._begun:
            self._end_without_child()
        elif self.done.done() and not self.done.cancelled() and self.done.exception() is None:
            self._kill(*self.done.result())  # the caller was cancelled before it took the result
        # If the child is still being started, _finished() kills it afterwards. If the loop is closed before
        # that, `Spawn` kills it when it is dropped.

    def _finished(self) -> None:
        self._loop._remove_reader(self._fd)
        self._loop._start_next_child()
        pid, pidfd, failure = self._process.spawn.finish()
        if failure is not None:
            error = self._process.failed(*failure)
            if not self.is_unwanted:
                self.done.set_exception(error)
            self._end_without_child()
            return
        self._process.started(pid)
        if self.is_unwanted:
            self._kill(pid, pidfd)
        else:
            self.done.set_result((pid, pidfd))

    def _kill(self, pid: int, pidfd: int) -> None:
        close_pipes(self._process)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            # If SIGCHLD is ignored, the kernel has reaped the child already. The wait below detects that,
            # too.
            _asyncio_logger.debug("child process pid %d has gone before it was killed", pid)
        if not self._loop.is_closed():
            self._loop._await_child(pid, pidfd, self._killed)
            return
        if pidfd >= 0:
            os.close(pidfd)
        self._process.returncode = self._loop._reap(pid)

    def _killed(self, pid: int, status: int | None) -> None:
        self._process.returncode = self._loop._UNKNOWN_STATUS if status is None else status
        self._report_end_without_child()

    def _end_without_child(self) -> None:
        close_pipes(self._process)
        self._report_end_without_child()

    def _report_end_without_child(self) -> None:
        if not self._gone.done() and not self._loop.is_closed():
            self._gone.set_result(None)
