"""Servers as their users start them, with all their processes: for tables that look at the whole of a server.

A program of rows is pinned to the core of servers; where it has a server beside it, it goes to the load's.
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
from tests.support.children import bound
from tests.support.ports import free_port

START_SECONDS = 30.0
APPLICATION = "benchmarks.applications.bare:application"
NATIVE = "BENCHMARK_NATIVE"
"""In the environment: the folder of the native programs."""
CERTIFICATES = "BENCHMARK_CERTIFICATES"
"""In the environment: the folder that `programs/certificate.py` has filled."""

SERVERS = {
    "uringcore-uring": ("uringcore", "--backend", "uring"),
    "uringcore-epoll": ("uringcore", "--backend", "epoll"),
    "uvicorn on uvloop": ("uvicorn", "--loop", "uvloop", "--http", "httptools"),
}


def use_every_core() -> None:
    """Take back that this process runs on one core."""
    os.sched_setaffinity(0, range(os.cpu_count() or 1))


def certificate() -> tuple[str, str]:
    """The certificate's file and the key's."""
    folder = Path(os.environ[CERTIFICATES])
    return str(folder / "cert.pem"), str(folder / "key.pem")


def authority() -> str:
    """The file that clients verify the certificate with."""
    return str(Path(os.environ[CERTIFICATES]) / "ca.pem")


class Deployed:
    """One server by its command, ready when `workers` processes answer, until the block ends."""

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
        # It is opened by its name to be read: the place where the server writes on is the server's.
        self._log = tempfile.NamedTemporaryFile()
        self._process = subprocess.Popen(
            bound(self.command),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            # A group of its own: its workers may outlive it.
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
        """Until so many processes have said that they serve, since the beginning."""
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
        """What it has written."""
        return Path(self._log.name).read_text(errors="replace")

    def hang_up(self) -> None:
        """Have it replace its workers."""
        self._process.send_signal(signal.SIGHUP)

    def cpu_ns(self) -> dict[int, int]:
        """The processor time of each of its processes."""
        found = {}
        for pid in (self._process.pid, *children_of(self._process.pid)):
            # Who ends meanwhile is missed by `spent`.
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
    """The processor seconds that each process took between two looks, the busiest first."""
    if ended := before.keys() - after.keys():
        raise RuntimeError(f"of the server's processes {len(ended)} ended while it was measured")
    return sorted(((after[pid] - before[pid]) / 1e9 for pid in before), reverse=True)


def beside_the_server() -> None:
    """Bind this process to the core of loads."""
    use_every_core()
    pin(CLIENT_CORE)


def run(command: Sequence[str], seconds_max: float) -> str:
    """The last line that a program prints; raises `RuntimeError` with its stderr where it fails."""
    done = subprocess.run(
        list(command), cwd=ROOT, capture_output=True, text=True, timeout=seconds_max, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout.splitlines()[-1]
