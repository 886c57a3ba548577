"""Child processes: started on a thread that holds nobody up, awaited through a pidfd on the ring.

asyncio's subprocess transport, its protocols and its pipes stay as they are; two things are ours. The
child is made by :class:`uringcore._uringcore.Spawn` off the loop's thread and without the interpreter
lock, where CPython's ``fork_exec`` keeps both until the program runs. And its end is told by a poll on
its pidfd, in any thread and without a signal handler, also on the versions (3.10, 3.11) whose default
is a thread for each child.

CPython's own way is kept where ours cannot do what was asked for: code of the caller's in the child
(``preexec_fn``), another user or group, descriptors inherited at large (``close_fds=False``), a
``subprocess.Popen`` that somebody replaced, and a child watcher that the program has set.

Not here: what a child process is given (``_popen``, ``src/io/spawn.rs``), and the pipes' transports.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import os
import signal
import sys
import threading
import warnings
from asyncio import unix_events
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._popen import PendingPopen, can_spawn, close_pipes

__all__ = ["ProcessMixin"]

_asyncio_logger = logging.getLogger("asyncio")

_UnixSubprocessTransport: Any = unix_events._UnixSubprocessTransport  # type: ignore[attr-defined]

# More would only wait for each other in the kernel; each is a thread for a millisecond.
_SPAWNS_AT_ONCE_MAX = 8
# The exit status that asyncio reports for a child that somebody else has waited for.
_UNKNOWN_STATUS = 255


class _SubprocessTransport(_UnixSubprocessTransport):  # type: ignore[misc]
    """asyncio's transport over a process that may run already."""

    def _start(self, *args: Any, process: Any = None, **kwargs: Any) -> None:
        if process is None:
            super()._start(*args, **kwargs)
        else:
            self._proc = process


class _Start:
    """One child between the request and its first instruction.

    Callbacks carry it, not the coroutine that waits for it: whether that is cancelled, closed or never
    resumed, the child is either handed over or killed and waited for.
    """

    def __init__(self, loop: ProcessMixin, process: PendingPopen) -> None:
        self._loop = loop
        self._process = process
        self._fd = -1
        self._begun = False
        self._unwanted = False
        self.done: asyncio.Future[tuple[int, int]] = loop.create_future()
        self._gone: asyncio.Future[None] = loop.create_future()

    @property
    def unwanted(self) -> bool:
        """Whether nobody waits for the child any more."""
        return self._unwanted or self.done.cancelled()

    def begin(self) -> None:
        """Start the thread."""
        try:
            self._fd = self._process.spawn.start()
        except BaseException:
            self._end_without_child()
            raise
        self._begun = True
        self._loop._add_reader(self._fd, self._finished)

    async def abandon(self) -> None:
        """Give the child up and wait until it has gone."""
        self.discard()
        await self._gone

    def discard(self) -> None:
        """Nobody wants the child: it never starts, or is killed as soon as it exists."""
        self._unwanted = True
        if not self._begun:
            self._end_without_child()
        elif self.done.done() and not self.done.cancelled() and self.done.exception() is None:
            self._kill(*self.done.result())  # it was handed over, and nobody took it
        # Else _finished() sees it; if the loop is closed before that, the end of `Spawn` kills.

    def _finished(self) -> None:
        self._loop._remove_reader(self._fd)
        self._loop._start_next_child()
        pid, pidfd, failure = self._process.spawn.finish()
        if failure is not None:
            error = self._process.failed(*failure)
            if not self.unwanted:
                self.done.set_exception(error)
            self._end_without_child()
            return
        self._process.started(pid)
        if self.unwanted:
            self._kill(pid, pidfd)
        else:
            self.done.set_result((pid, pidfd))

    def _kill(self, pid: int, pidfd: int) -> None:
        close_pipes(self._process)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            # With SIGCHLD ignored the kernel reaps by itself; the wait below tells so too.
            _asyncio_logger.debug("child process pid %d has gone before it was killed", pid)
        if not self._loop.is_closed():
            self._loop._await_child(pid, pidfd, self._killed)
            return
        if pidfd >= 0:
            os.close(pidfd)
        self._process.returncode = _reap(pid)

    def _killed(self, pid: int, status: int | None) -> None:
        self._process.returncode = _UNKNOWN_STATUS if status is None else status
        self._tell_gone()

    def _end_without_child(self) -> None:
        close_pipes(self._process)
        self._tell_gone()

    def _tell_gone(self) -> None:
        if not self._gone.done() and not self._loop.is_closed():
            self._gone.set_result(None)


class ProcessMixin:
    """``subprocess_exec`` and ``subprocess_shell``, from the point where asyncio makes the process."""

    if TYPE_CHECKING:
        _add_reader: Callable[..., Any]
        _remove_reader: Callable[..., Any]
        _child_watcher_callback: Callable[..., None]
        call_soon: Callable[..., Any]
        call_soon_threadsafe: Callable[..., Any]
        create_future: Callable[[], asyncio.Future[Any]]
        is_closed: Callable[[], bool]
        is_running: Callable[[], bool]

    def _prepare_children(self) -> None:
        self._children_starting = 0
        self._children_waiting: collections.deque[_Start] = collections.deque()
        self._pidfds: set[int] = set()

    def close(self) -> None:
        """Close the loop. Its children run on, as they do when an asyncio loop is closed."""
        if not self.is_running() and not self.is_closed():
            while self._pidfds:
                pidfd = self._pidfds.pop()
                self._remove_reader(pidfd)
                os.close(pidfd)
        super().close()  # type: ignore[misc]

    async def _make_subprocess_transport(
        self,
        protocol: asyncio.SubprocessProtocol,
        args: Any,
        shell: bool,
        stdin: Any,
        stdout: Any,
        stderr: Any,
        bufsize: int,
        extra: Any = None,
        **kwargs: Any,
    ) -> Any:
        streams = (stdin, stdout, stderr)
        if _has_watcher_of_its_own():
            base: Any = super()
            return await base._make_subprocess_transport(
                protocol, args, shell, *streams, bufsize, extra, **kwargs
            )
        pidfd = -1
        if can_spawn(kwargs):
            process = PendingPopen(
                args,
                shell=shell,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                universal_newlines=False,
                bufsize=bufsize,
                **kwargs,
            )
            _, pidfd = await self._start_child(process)
            kwargs = {"process": process}
        waiter = self.create_future()
        transport = _SubprocessTransport(
            self, protocol, args, shell, *streams, bufsize, waiter=waiter, extra=extra, **kwargs
        )
        self._await_child(transport.get_pid(), pidfd, self._child_ended, transport)
        try:
            await waiter
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException:
            transport.close()
            await transport._wait()
            raise
        return transport

    async def _start_child(self, process: PendingPopen) -> tuple[int, int]:
        """`(pid, pidfd)` of a new child; no child is left when this raises."""
        start = _Start(self, process)
        if self._children_starting < _SPAWNS_AT_ONCE_MAX:
            start.begin()
            self._children_starting += 1
        else:
            self._children_waiting.append(start)
        try:
            return await start.done
        except asyncio.CancelledError:
            await start.abandon()
            raise
        except GeneratorExit:  # the coroutine is closed: it cannot wait, but callbacks go on
            start.discard()
            raise

    def _start_next_child(self) -> None:
        self._children_starting -= 1
        while self._children_waiting and self._children_starting < _SPAWNS_AT_ONCE_MAX:
            start = self._children_waiting.popleft()
            if start.unwanted:
                start.discard()
                continue
            try:
                start.begin()
            except OSError as error:
                start.done.set_exception(error)
            else:
                self._children_starting += 1

    def _await_child(self, pid: int, pidfd: int, ended: Callable[..., None], *args: Any) -> None:
        """Call ``ended(pid, status, *args)`` on the loop once the child has ended.

        `status` is None where somebody else has waited for the child already.
        """
        if pidfd < 0:
            try:
                pidfd = os.pidfd_open(pid)
            except ProcessLookupError:
                self.call_soon(ended, pid, _reap(pid), *args)
                return
            except OSError:  # an old kernel, or a filter that does not know the call
                thread = threading.Thread(
                    target=self._await_child_in_thread,
                    args=(pid, ended, args),
                    name=f"uringcore-waitpid-{pid}",
                    daemon=True,
                )
                thread.start()
                return
        self._pidfds.add(pidfd)
        self._add_reader(pidfd, self._child_readable, pid, pidfd, ended, args)

    def _child_readable(self, pid: int, pidfd: int, ended: Callable[..., None], args: Any) -> None:
        self._remove_reader(pidfd)
        self._pidfds.discard(pidfd)
        try:
            status = _reap(pid)
        finally:
            os.close(pidfd)
        ended(pid, status, *args)

    def _await_child_in_thread(self, pid: int, ended: Callable[..., None], args: Any) -> None:
        # Seen here, waited for on the loop, together with telling of it: until then a signal that the
        # program sends reaches nobody else, for the number is not free yet.
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        try:
            self.call_soon_threadsafe(self._child_seen, pid, ended, args)
        except RuntimeError:  # the loop is closed
            _reap(pid)
            _asyncio_logger.warning("Loop %r that handles pid %r is closed", self, pid)

    def _child_seen(self, pid: int, ended: Callable[..., None], args: Any) -> None:
        ended(pid, _reap(pid), *args)

    def _child_ended(self, pid: int, status: int | None, transport: Any) -> None:
        if status is None:
            # Popen.poll() of the program's own, or of transport.close(), was faster and knows.
            process = transport._proc
            status = None if process is None else process.returncode
        if status is None:
            _asyncio_logger.warning(
                "child process pid %d exit status already read:  will report returncode 255", pid
            )
            status = _UNKNOWN_STATUS
        self._child_watcher_callback(pid, status, transport)


def _has_watcher_of_its_own() -> bool:
    """Whether the program has set a child watcher, which then is used as on asyncio's own loop."""
    if sys.version_info >= (3, 14):
        return False
    policy: Any = asyncio.get_event_loop_policy()
    default: Any = unix_events._UnixDefaultEventLoopPolicy
    if isinstance(policy, default) and type(policy).get_child_watcher is default.get_child_watcher:
        watcher = policy._watcher
        if watcher is None or getattr(policy, "_watcher_is_default", False):
            return False
        # What 3.12 makes by itself works just as ours does.
        return not (sys.version_info >= (3, 12) and type(watcher) is asyncio.PidfdChildWatcher)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return policy.get_child_watcher() is not None
        except NotImplementedError:
            return False


def _reap(pid: int) -> int | None:
    """The exit code of a child that has ended, negative for a signal; None if it was reaped before."""
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status)
