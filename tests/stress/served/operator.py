"""The server's processes, and the actions of an operator and of accidents."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import ssl
import sys
from collections.abc import Callable
from pathlib import Path

from tests.server.harness import ROOT, Server, environment
from tests.stress.served.client import READY
from tests.support import certificates

APPLICATION = "tests.stress.served.application:app"
WORKERS = 2
PATIENCE_SECONDS = 90.0
"""Time limit for actions that take a second or two on an idle machine."""

STATE_SECONDS = 3.0
"""Time for the workers to print their state."""

GRACEFUL_SECONDS = 60
"""Time limit for a response in progress when its worker stops. A hanging one is cancelled before the
operator's own time limit, and the log reports it.
"""

CONNECTED = ("01", "08")
"""ESTABLISHED and CLOSE_WAIT in /proc/net/tcp: the states in which a process still has a descriptor."""

RENEWED = "Certificate reloaded from"
SERVING = "HTTP/3 running on UDP port"
DIED = "died (signal 9)"


class Operator:
    """Runs `uringcore APP --workers 2` in `folder`."""

    def __init__(self, backend: str, folder: Path, rng: random.Random) -> None:
        self._rng = rng
        self._folder = folder
        pki = certificates.make(folder)
        self._authority = pki.authority
        self.cafile = str(pki.authority.certfile)
        self._live = str(folder / "live.pem"), str(folder / "live.key")
        self._renewals = 0
        self._put()
        self.server = Server(
            folder,
            self._live,
            *("--workers", str(WORKERS), "--http", "native"),
            *("--http3-idle-timeout", "5", "--no-access-log"),
            *("--timeout-graceful-shutdown", str(GRACEFUL_SECONDS)),
            backend=backend,
            app=APPLICATION,
        )
        self.server.certificate = self.cafile

    async def started(self) -> None:
        """Waits until all workers serve."""
        await self.logged(SERVING, WORKERS)

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def pid(self) -> int:
        """The supervisor's process id."""
        return self.server.process.pid

    def workers(self) -> set[int]:
        """Returns the processes that serve or are starting, without multiprocessing's helper."""
        found = set()
        for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if b"spawn_main" in command:
                found.add(int(pid))
        return found

    # Actions

    async def roll(self) -> None:
        """Sends SIGHUP and waits until all workers are replaced."""
        before = self.workers()
        served = self._count(SERVING)
        self.server.send_signal(signal.SIGHUP)
        await self.logged(SERVING, served + WORKERS)
        await self.until(lambda: not self.workers() & before, "the old workers end")

    async def renew(self) -> None:
        """Writes a new certificate and waits until both protocols present it."""
        known = self._count(RENEWED)
        wanted = self._put()
        await self.logged(RENEWED, known + WORKERS)
        shown = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", self.server.port))
        assert ssl.PEM_cert_to_DER_cert(shown) == ssl.PEM_cert_to_DER_cert(wanted.pem.decode())

    async def kill_worker(self) -> None:
        """Kills a worker, as the kernel does when memory is short; waits for its successor."""
        died, served = self._count(DIED), self._count(SERVING)
        os.kill(self._rng.choice(sorted(self.workers())), signal.SIGKILL)
        await self.logged(DIED, died + 1)
        await self.logged(SERVING, served + 1)

    async def kill_clients(self) -> None:
        """Kills a process with a dozen requests in flight; the server gets no notice."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.stress.served.client"),
            *(self.url, self.cafile, str(self._rng.random())),
            cwd=ROOT,
            env=environment(),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_SECONDS)
            assert line.decode().strip() == READY, line
            await asyncio.sleep(self._rng.random() / 2)
        finally:
            process.kill()
            await process.wait()

    async def ended(self) -> int:
        """Returns the supervisor's exit status when all processes have ended."""
        return await asyncio.to_thread(self.server.wait_stopped, PATIENCE_SECONDS)

    # Observations

    def footprint(self, pid: int) -> tuple[int, int]:
        """Returns the descriptors and resident bytes of a process."""
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return descriptors, pages * os.sysconf("SC_PAGE_SIZE")

    def connections(self) -> int:
        """Returns the number of open TCP connections at the server's port."""
        port = f"{self.server.port:04X}"
        found = 0
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                _, local, _, state, *_ = line.split()
                found += local.endswith(f":{port}") and state in CONNECTED
        return found

    async def state(self) -> str:
        """Returns the state of every worker, and the kernel's entries of its TCP connections."""
        begin = len(self.server.log())
        found = []
        # Any of these processes may have ended by now.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for pid in self.workers():
                found.append(f"worker {pid}")
                if handles(pid, signal.SIGUSR1):
                    os.kill(pid, signal.SIGUSR1)
        # A worker that prints nothing is a finding, too.
        await asyncio.sleep(STATE_SECONDS)
        port = f":{self.server.port:04X} "
        sockets = [
            line
            for table in ("tcp", "tcp6")
            for line in Path(f"/proc/net/{table}").read_text().splitlines()
            if port in line
        ]
        return "\n".join([*found, self.server.log()[begin:], *sockets])

    def complaints(self) -> list[str]:
        """Returns the lines of the log that no injected fault explains."""
        return [
            line
            for line in self.server.log().splitlines()
            if ("ERROR" in line and DIED not in line)
            or "Traceback" in line
            or "never retrieved" in line
            or "never awaited" in line
        ]

    async def logged(self, text: str, count: int) -> None:
        """Waits until the server's output matches this many times."""
        await self.until(lambda: self._count(text) >= count, f"{count} times {text!r} in the log")

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits until a condition holds; raises `AssertionError` after a time limit."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while not condition():
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(f"not in time: {what}\n{self.server.log()[-4000:]}")
            await asyncio.sleep(0.05)

    def _count(self, text: str) -> int:
        return self.server.log().count(text)

    def _put(self) -> certificates.Identity:
        """Writes a new certificate as certbot does: each file atomically, one after the other."""
        self._renewals += 1
        made = self._authority.issue(self._folder, f"server{self._renewals}", *certificates.LOCAL)
        for file, place in zip((made.certfile, made.keyfile), self._live, strict=True):
            shutil.copy(file, place + ".new")
            os.replace(place + ".new", place)
        return made


def handles(pid: int, sig: signal.Signals) -> bool:
    """Returns true if a process has a handler for a signal; otherwise the signal would end it."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (mask,) = (line.split()[1] for line in lines if line.startswith("SigCgt:"))
    return bool(int(mask, 16) >> (sig - 1) & 1)
