"""Child processes: started on another thread, and waited for through a pidfd on the ring.

asyncio's subprocess transport, its protocols and its pipes are unchanged. Two steps differ:

- :class:`uringcore._uringcore.Spawn` makes the child on another thread, without the interpreter lock.
  CPython's ``fork_exec`` blocks the loop's thread and holds the lock until the program runs.
- A poll of the child's pidfd detects its end, in any thread and without a signal handler. CPython 3.10 and
  3.11 use a thread for each child by default.

CPython's own code handles requests that this file does not support: code of the caller in the child
(``preexec_fn``), another user or group, inheriting all descriptors (``close_fds=False``), a replaced
``subprocess.Popen``, and a child watcher that the program has set.

``_child_start`` handles a child until its program runs; ``_popen`` and ``src/io/process_spawn.rs`` handle its
arguments. At most eight children start at a time; further ones wait in order.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import os
import subprocess
import sys
import threading
import warnings
from asyncio import unix_events
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._child_start import PendingPopen, Start, SubprocessTransport, can_spawn

__all__ = ["ProcessMixin"]

_asyncio_logger = logging.getLogger("asyncio")

_UnixSubprocessTransport: Any = unix_events._UnixSubprocessTransport  # type: ignore[attr-defined]
# These classes are read at import, because programs may replace them later.
_Popen: Any = subprocess.Popen
_ORIGINALS = (_Popen.__init__, _Popen._execute_child)

# The limit of children that start at a time. Each start occupies a thread for about a millisecond, and more
# starts would only wait for each other in the kernel.
_SPAWNS_AT_ONCE_MAX = 8


class ProcessMixin:
    """``subprocess_exec`` and ``subprocess_shell``, from the point at which asyncio makes the process."""

    # The exit status that asyncio reports for a child that other code has waited for.
    _UNKNOWN_STATUS = 255

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
        self._children_waiting: collections.deque[Start] = collections.deque()
        self._pidfds: set[int] = set()

    def close(self) -> None:
        """Close the loop. Its children continue to run, as with an asyncio loop."""
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
        transport_class, pidfd = _UnixSubprocessTransport, -1
        if _popen_is_original() and can_spawn(kwargs):
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
            _, pidfd = await self._start_child(Start(self, process))
            transport_class, kwargs = SubprocessTransport, {"process": process}
        waiter = self.create_future()
        transport = transport_class(
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

    async def _start_child(self, start: Start) -> tuple[int, int]:
        """Returns `(pid, pidfd)` of a new child. If this raises, no child is left."""
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
        except GeneratorExit:  # closed coroutine: it cannot wait, but callbacks still run
            start.discard()
            raise

    def _start_next_child(self) -> None:
        self._children_starting -= 1
        while self._children_waiting and self._children_starting < _SPAWNS_AT_ONCE_MAX:
            start = self._children_waiting.popleft()
            if start.is_unwanted:
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

        `status` is None if other code has already waited for the child.
        """
        if pidfd < 0:
            try:
                pidfd = os.pidfd_open(pid)
            except ProcessLookupError:
                self.call_soon(ended, pid, self._reap(pid), *args)
                return
            except OSError:  # an old kernel, or a seccomp filter without this call
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
            status = self._reap(pid)
        finally:
            os.close(pidfd)
        ended(pid, status, *args)

    def _await_child_in_thread(self, pid: int, ended: Callable[..., None], args: Any) -> None:
        # This thread only detects the end. The loop reaps the child when it calls the callback. Until then
        # the process ID is not reused, so a signal that the program sends cannot reach another process.
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        try:
            self.call_soon_threadsafe(self._child_seen, pid, ended, args)
        except RuntimeError:  # the loop is closed
            self._reap(pid)
            _asyncio_logger.warning("Loop %r that handles pid %r is closed", self, pid)

    def _child_seen(self, pid: int, ended: Callable[..., None], args: Any) -> None:
        ended(pid, self._reap(pid), *args)

    @staticmethod
    def _reap(pid: int) -> int | None:
        """Returns the exit code of an ended child, negative for a signal; None if it was reaped before."""
        try:
            _, status = os.waitpid(pid, 0)
        except ChildProcessError:
            return None
        return os.waitstatus_to_exitcode(status)

    def _child_ended(self, pid: int, status: int | None, transport: Any) -> None:
        if status is None:
            # The program's call of Popen.poll(), or transport.close(), has reaped the child and stored its
            # status.
            process = transport._proc
            status = None if process is None else process.returncode
        if status is None:
            _asyncio_logger.warning(
                "child process pid %d exit status already read:  will report returncode 255", pid
            )
            status = self._UNKNOWN_STATUS
        self._child_watcher_callback(pid, status, transport)


def _has_watcher_of_its_own() -> bool:
    """True if the program has set a child watcher, which is then used as on asyncio's loop."""
    if sys.version_info >= (3, 14):
        return False
    policy: Any = asyncio.get_event_loop_policy()
    default: Any = unix_events._UnixDefaultEventLoopPolicy
    if isinstance(policy, default) and type(policy).get_child_watcher is default.get_child_watcher:
        watcher = policy._watcher
        if watcher is None or getattr(policy, "_watcher_is_default", False):
            return False
        # The default watcher of CPython 3.12 detects ends by a pidfd, as this file does, and is not needed.
        return not (sys.version_info >= (3, 12) and type(watcher) is asyncio.PidfdChildWatcher)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return policy.get_child_watcher() is not None
        except NotImplementedError:
            return False


def _popen_is_original() -> bool:
    """True unless a program has replaced ``subprocess.Popen`` or one of its methods that start a process."""
    originals = (_Popen.__init__, _Popen._execute_child)
    return subprocess.Popen is _Popen and originals == _ORIGINALS
