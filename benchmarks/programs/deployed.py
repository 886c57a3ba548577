"""Servers as their users start them, with all their processes, for tables about a whole server.

A program of rows is pinned to the servers' core; with a server beside it, it moves to the load's core.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness.process import (
    CLIENT_CORE,
    ROOT,
    SERVER_CORE,
    STOP_SECONDS,
    children_of,
    pin,
)
from tests.support.child_processes import bound
from tests.support.free_ports import free_port

START_SECONDS = 30.0
APPLICATION = "benchmarks.applications.bare:application"
NATIVE = "BENCHMARK_NATIVE"
"""Environment variable: the folder of the native programs."""
CERTIFICATES = "BENCHMARK_CERTIFICATES"
"""In the environment: the folder that `programs/certificate.py` has filled."""

SERVERS = {
    "uringcore-uring": ("uringcore", "--backend", "uring", "--http", "native"),
    "uringcore-epoll": ("uringcore", "--backend", "epoll", "--http", "native"),
    "uvicorn on uvloop": ("uvicorn", "--loop", "uvloop", "--http", "httptools"),
}


def use_every_core() -> None:
    """Let this process run on every core again."""
    os.sched_setaffinity(0, range(os.cpu_count() or 1))


def certificate() -> tuple[str, str]:
    """The path of the certificate and of its key."""
    folder = Path(os.environ[CERTIFICATES])
    return str(folder / "cert.pem"), str(folder / "key.pem")


def authority() -> str:
    """The file that clients verify the certificate with."""
    return str(Path(os.environ[CERTIFICATES]) / "ca.pem")


class Deployed:
    """A server started by its command; ready when `workers` processes answer, ended with the block."""

    def __init__(
        self,
        peer: str,
        *options: str,
        workers: int = 1,
        tls: bool = False,
        core: int | None = SERVER_CORE,
    ) -> None:
        module, *given = SERVERS[peer]
        self.port = free_port()
        self.command = [
            *(sys.executable, "-m", module, APPLICATION, *given, *options),
            *("--host", "127.0.0.1", "--port", str(self.port), "--log-level", "info"),
            *("--no-access-log", "--timeout-keep-alive", "60"),
        ]
        if workers > 1:
            self.command += ["--workers", str(workers)]
        if tls:
            cert, key = certificate()
            self.command += ["--ssl-certfile", cert, "--ssl-keyfile", key]
        self._workers = workers
        self._core = core

    def __enter__(self) -> Deployed:
        core = self._core
        # The log is opened again by its name to be read: this descriptor's position belongs to the server.
        self._log = tempfile.NamedTemporaryFile()
        self._process = subprocess.Popen(
            bound(self.command),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            # A separate process group: workers may outlive the server.
            start_new_session=True,
            preexec_fn=None if core is None else lambda: pin(core),
        )
        try:
            self.wait_started(self._workers)
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        self._kill()

    def wait_started(self, count: int) -> None:
        """Wait until `count` processes have logged that they serve, counted from the start."""
        deadline = time.monotonic() + START_SECONDS
        while not self._serves(count):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"{' '.join(self.command)} does not serve:\n{self.log()[-2000:]}"
                )
            time.sleep(0.02)

    def _serves(self, count: int) -> bool:
        if self.log().count("Application startup complete") < count:
            return False
        try:
            socket.create_connection(("127.0.0.1", self.port), START_SECONDS).close()
        except OSError:
            return False
        return True

    def log(self) -> str:
        """The server's output until now."""
        return Path(self._log.name).read_text(errors="replace")

    def hang_up(self) -> None:
        """Send SIGHUP: the server replaces its workers."""
        self._process.send_signal(signal.SIGHUP)

    def cpu_ns(self) -> dict[int, int]:
        """The processor time of each of the server's processes, in nanoseconds, by pid."""
        found = {}
        for pid in (self._process.pid, *children_of(self._process.pid)):
            # `spent` raises if a process has ended meanwhile.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                tasks = Path(f"/proc/{pid}/task").iterdir()
                found[pid] = sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)
        return found

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()


def spent(before: dict[int, int], after: dict[int, int]) -> list[float]:
    """The processor seconds of each process between two calls of `cpu_ns`, the busiest first."""
    if ended := before.keys() - after.keys():
        raise RuntimeError(f"of the server's processes {len(ended)} ended while it was measured")
    return sorted(((after[pid] - before[pid]) / 1e9 for pid in before), reverse=True)


def beside_the_server() -> None:
    """Bind this process to the core of loads."""
    use_every_core()
    pin(CLIENT_CORE)


def run(command: Sequence[str], seconds_max: float) -> str:
    """The last line that a program prints; raises `RuntimeError` with its stderr if it fails."""
    done = subprocess.run(
        list(command), cwd=ROOT, capture_output=True, text=True, timeout=seconds_max, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout.splitlines()[-1]
