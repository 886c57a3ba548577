"""``uringcore ...`` in processes that a prepared one forks: the interpreter has started and has imported the
server, which takes most of a short process's processor time.

It is for tests of what a server or a client does once it runs. Tests of the start itself, of worker
processes, of the environment and of descriptors start an interpreter for each process, as a user does
(tests/server/harness.py).

Each test process has one fork server, which kills its processes and ends when the test process does.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

__all__ = ["ForkServer", "ForkedProcess", "forks"]

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60
NUMBER = struct.Struct("i")
# The modules of a server that runs, without an application and its framework.
IMPORTED = (
    "uringcore.http3._get_command",
    "uringcore.server._command",
    "uringcore.server._run_modes",
    "uringcore.server._server",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
)


class ForkedProcess:
    """A process of the fork server, with the names of :class:`subprocess.Popen`."""

    def __init__(self, status: int) -> None:
        self.pid = _number(status)
        self.returncode: int | None = None
        self._status = status
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Returns the exit status, or None while the process runs."""
        with self._lock:
            if self.returncode is None and _is_readable(self._status, 0):
                self.returncode = _number(self._status)
                os.close(self._status)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit status once the process has ended."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired("uringcore", timeout or 0)
            _is_readable(self._status, left)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """Sends a signal, unless the process has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it may end meanwhile
                os.kill(self.pid, sig)

    def terminate(self) -> None:
        """Sends SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """A process that forks others in the repository's root, with this environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = _lasting(environment)
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

    def gives(self, environment: Mapping[str, str]) -> bool:
        """Returns True if its processes have this environment."""
        return self._environment == _lasting(environment)

    def start(self, arguments: Sequence[str | os.PathLike[str]], output: Any) -> ForkedProcess:
        """Starts ``uringcore ARGUMENTS``; both standard streams go to this file."""
        with open(os.devnull) as nothing:
            return self._fork(arguments, nothing.fileno(), output.fileno(), output.fileno())

    def run(
        self, arguments: Sequence[str | os.PathLike[str]], timeout: float
    ) -> tuple[int, bytes, bytes]:
        """Runs ``uringcore ARGUMENTS`` to its end; returns its status, output and errors."""
        with contextlib.ExitStack() as stack:
            nothing, out, errors = stack.enter_context(open(os.devnull)), *_pipes(stack)
            process = self._fork(arguments, nothing.fileno(), out[1].fileno(), errors[1].fileno())
            try:
                for pipe in (out, errors):
                    pipe[1].close()
                texts = _read_all([out[0], errors[0]], timeout)
                return process.wait(timeout), *texts
            finally:
                process.kill()

    def close(self) -> None:
        """Ends the fork server and its processes."""
        self._control.close()
        self._process.wait(START_SECONDS)

    def _fork(self, arguments: Sequence[str | os.PathLike[str]], *streams: int) -> ForkedProcess:
        """Returns a new process with these standard streams."""
        reader, writer = os.pipe()
        request = json.dumps([os.fspath(one) for one in arguments]).encode()
        try:
            with self._lock:
                socket.send_fds(self._control, [request], [*streams, writer])
        finally:
            os.close(writer)
        if not _is_readable(reader, START_SECONDS):
            raise AssertionError(f"no process within {START_SECONDS} s")
        try:
            return ForkedProcess(reader)
        except EOFError:
            raise AssertionError(
                "the fork server ended; its errors are in the test's output"
            ) from None


_shared: ForkServer | None = None


def forks(environment: Mapping[str, str]) -> ForkServer | None:
    """Returns this test process's fork server, or None if it has another environment: that of the first
    call."""
    global _shared
    if _shared is None:
        _shared = ForkServer(environment)
    return _shared if _shared.gives(environment) else None


def _lasting(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment without the variable that pytest changes with each test."""
    return {name: value for name, value in environment.items() if name != "PYTEST_CURRENT_TEST"}


def _is_readable(descriptor: int, seconds: float | None) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


def _pipes(stack: contextlib.ExitStack) -> list[list[FileIO]]:
    """Returns two pipes as unbuffered files."""
    return [
        [stack.enter_context(FileIO(one, mode)) for one, mode in zip(os.pipe(), "rw", strict=True)]
        for _ in range(2)
    ]


def _read_all(files: list[FileIO], timeout: float) -> list[bytes]:
    """Returns the contents of two pipes, which are read as they arrive."""
    deadline = time.monotonic() + timeout
    found = {file.fileno(): bytearray() for file in files}
    poll = select.poll()
    for descriptor in found:
        poll.register(descriptor, select.POLLIN)
    reading = len(found)
    while reading:
        left = deadline - time.monotonic()
        if left <= 0:
            raise subprocess.TimeoutExpired("uringcore", timeout)
        for descriptor, _ in poll.poll(left * 1000):
            data = os.read(descriptor, 1 << 16)
            found[descriptor] += data
            if not data:
                poll.unregister(descriptor)
                reading -= 1
    return [bytes(data) for data in found.values()]


def _number(descriptor: int) -> int:
    data = os.read(descriptor, NUMBER.size)
    if not data:
        raise EOFError
    return int(NUMBER.unpack(data)[0])


# The fork server's side.


def _serve(control: socket.socket) -> list[str]:
    """Forks a process for each request. Returns in each forked process, with its arguments."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    # By the descriptor of the process: its id, and the pipe for its status.
    running: dict[int, tuple[int, int]] = {}
    while True:
        for descriptor, _ in poll.poll():
            if descriptor in running:
                poll.unregister(descriptor)
                _report(descriptor, *running.pop(descriptor))
                continue
            request, files, _, _ = socket.recv_fds(control, 1 << 20, 4)
            if not request:
                _kill(running)
                os._exit(0)
            *streams, status = files
            pid = os.fork()
            if pid == 0:
                control.close()
                _become(streams, [status, *running, *(pipe for _, pipe in running.values())])
                return list(json.loads(request))
            for stream in streams:
                os.close(stream)
            os.write(status, NUMBER.pack(pid))
            process = os.pidfd_open(pid)
            running[process] = (pid, status)
            poll.register(process, select.POLLIN)


def _kill(processes: Collection[int]) -> None:
    """Kills processes by their descriptors, and waits until they have ended."""
    for process in processes:
        signal.pidfd_send_signal(process, signal.SIGKILL)
    for process in processes:
        os.waitid(os.P_PIDFD, process, os.WEXITED)


def _report(process: int, pid: int, pipe: int) -> None:
    """Writes a process's exit status to its pipe."""
    _, status = os.waitpid(pid, 0)
    os.close(process)
    with contextlib.suppress(BrokenPipeError):  # the test has ended
        os.write(pipe, NUMBER.pack(os.waitstatus_to_exitcode(status)))
    os.close(pipe)


def _become(streams: list[int], others: list[int]) -> None:
    """Gives a forked process its standard streams, and no other descriptor."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for descriptor in [*streams, *others]:
        os.close(descriptor)


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    # What is not walked through is not copied: a collection writes to each object.
    gc.freeze()
    sys.argv[1:] = _serve(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module("uringcore", run_name="__main__", alter_sys=True)
