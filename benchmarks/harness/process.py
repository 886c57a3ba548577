"""Servers and load generators as processes pinned to one core each.

A failed process fails the benchmark: a figure needs a server that ran to the end and a load generator that
checked every byte.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
SERVER_CORE = 0
CLIENT_CORE = 1
START_SECONDS = 20.0
STOP_SECONDS = 10.0


class BenchmarkFailure(Exception):
    """A peer or a load generator failed; the message contains its stderr."""


def pin(core: int) -> None:
    """Bind the calling process to `core`, independent of its parent's binding.

    On a machine without this core the processes share the cores they have.
    """
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, {core})


def children_of(pid: int) -> list[int]:
    """The processes whose parent is `pid`."""
    children = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        # A process may end between the listing and the read.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # After the name, which may contain any character, come the state and the parent.
            if int(status.read_text().rpartition(")")[2].split()[1]) == pid:
                children.append(int(status.parent.name))
    return children


def worker_of(pid: int) -> int:
    """Returns the only child of `pid`, or `pid` itself if it has none or several."""
    children = children_of(pid)
    return children[0] if len(children) == 1 else pid


def tree_of(pid: int) -> list[int]:
    """`pid` and all of its descendants."""
    found = [pid]
    for one in found:
        found += children_of(one)
    return found


class Server:
    """One measured server, pinned to core 0, from its READY line to its end on SIGTERM."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.name = name
        self.command = list(command)
        self.environment = {**os.environ, **environment}
        self.port = 0
        self.pid = 0
        """The process that serves the load: a supervisor's only worker, if it has exactly one."""
        self.processes: list[int] = []
        """The server's first process and all of its descendants."""
        self._process: subprocess.Popen[str] | None = None
        self._stderr: IO[str] | None = None

    def __enter__(self) -> Server:
        self._stderr = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            self.command,
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            preexec_fn=lambda: pin(SERVER_CORE),
        )
        try:
            self.port = self._wait_ready()
            self.pid = worker_of(self._process.pid)
            self.processes = tree_of(self._process.pid)
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._process
        assert process is not None
        died = process.poll()
        if died is None:
            process.send_signal(signal.SIGTERM)
            try:
                ended = process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                ended = None
        else:
            ended = died
        output = self._output()
        self._kill()
        if died is not None:
            raise BenchmarkFailure(f"{self.name}: ended by itself with {died}{output}") from error
        if error is not None:
            print(f"{self.name}{output}", file=sys.stderr, flush=True)
            return
        if ended is None:
            raise BenchmarkFailure(
                f"{self.name}: still alive {STOP_SECONDS} s after SIGTERM{output}"
            )
        if ended not in (0, -signal.SIGTERM):
            raise BenchmarkFailure(f"{self.name}: ended with {ended} after SIGTERM{output}")

    def _wait_ready(self) -> int:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        deadline = time.monotonic() + START_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while time.monotonic() < deadline:
                if not selector.select(deadline - time.monotonic()):
                    break
                line = process.stdout.readline()
                if not line:
                    process.wait(STOP_SECONDS)
                    raise BenchmarkFailure(
                        f"{self.name}: ended with {process.returncode} before it was ready"
                        f"{self._output()}"
                    )
                word, _, rest = line.partition(" ")
                if word == "READY":
                    return int(rest)
        raise BenchmarkFailure(f"{self.name}: not ready after {START_SECONDS} s{self._output()}")

    def _output(self) -> str:
        assert self._stderr is not None
        self._stderr.seek(0)
        text = self._stderr.read().strip()
        return f"; its stderr:\n{text[-4000:]}" if text else "; nothing on its stderr"

    def _kill(self) -> None:
        process = self._process
        assert process is not None
        if process.poll() is None:
            # A worker would outlive its supervisor.
            for pid in tree_of(process.pid)[1:]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        if self._stderr is not None:
            self._stderr.close()


def run_load(
    command: Sequence[str], seconds_max: float, core: int = CLIENT_CORE
) -> dict[str, float]:
    """Run a load generator on its core; return the numbers of its JSON line."""
    try:
        done = subprocess.run(
            list(command),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds_max,
            preexec_fn=lambda: pin(core),
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise BenchmarkFailure(f"{Path(command[0]).name}: no end after {late.timeout} s") from None
    if done.returncode != 0:
        raise BenchmarkFailure(f"load failed with {done.returncode}: {done.stderr.strip()[-4000:]}")
    numbers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {name: float(value) for name, value in numbers.items()}
