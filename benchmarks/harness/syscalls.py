"""System calls of a server, counted by the kernel's own tracepoint through `perf stat`.

Counting is a short window of its own, never the timed one: the tracepoint costs a little on each call.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from functools import cache
from types import TracebackType

EVENT = "raw_syscalls:sys_enter"
ATTACH_SECONDS = 0.3


@cache
def unavailable() -> str | None:
    """Why system calls cannot be counted here, or None."""
    perf = shutil.which("perf")
    if perf is None:
        return "perf is not installed"
    probe = subprocess.run(
        [perf, "stat", "-e", EVENT, "true"], capture_output=True, text=True, check=False
    )
    if probe.returncode != 0:
        return f"perf cannot count {EVENT} here (kernel.perf_event_paranoid, tracefs)"
    return None


class SyscallCounter:
    """Counts the system calls of all threads of `pid` while the block runs."""

    def __init__(self, pid: int) -> None:
        self.count = 0
        self._pid = pid
        self._perf: subprocess.Popen[str] | None = None

    def __enter__(self) -> SyscallCounter:
        self._perf = subprocess.Popen(
            ["perf", "stat", "-x", ",", "-e", EVENT, "-p", str(self._pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        # perf says nothing once it is attached.
        time.sleep(ATTACH_SECONDS)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._perf is not None
        self._perf.send_signal(signal.SIGINT)
        _, text = self._perf.communicate(timeout=10)
        for line in text.splitlines():
            value, *rest = line.split(",")
            if EVENT in rest and value.isdigit():
                self.count = int(value)
                return
        if error is None:
            raise RuntimeError(f"perf stat printed no count of {EVENT}: {text!r}")
