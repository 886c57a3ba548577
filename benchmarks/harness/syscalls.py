"""System calls of a server, counted by the kernel's tracepoint through `perf stat`.

Calls are counted in a separate short window, never in the timed one: the tracepoint costs a little time on
each call.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from types import TracebackType

from benchmarks.harness.perf import Perf

EVENT = "raw_syscalls:sys_enter"


@cache
def unavailable() -> str | None:
    """The reason why this machine cannot count system calls, or None."""
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
        self._perf = Perf(pid, "stat", "-x", ",", "-e", EVENT)

    def __enter__(self) -> SyscallCounter:
        self._perf.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        text = self._perf.stop()
        for line in text.splitlines():
            value, *rest = line.split(",")
            if EVENT in rest and value.isdigit():
                self.count = int(value)
                return
        if error is None:
            raise RuntimeError(f"perf stat printed no count of {EVENT}: {text!r}")
