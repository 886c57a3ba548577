"""`perf` attached to a running process, until it is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import time

# perf prints nothing once it is attached, but then its counters are open.
ATTACH_SECONDS = 0.5
ATTACH_SECONDS_MAX = 30.0
STOP_SECONDS = 60.0


class Perf:
    """One `perf stat` or `perf record` of the process `pid`."""

    def __init__(self, pid: int, *arguments: str) -> None:
        self._command = ["perf", *arguments, "-p", str(pid)]
        self._process: subprocess.Popen[str] | None = None

    def start(self, settle: float = ATTACH_SECONDS) -> None:
        """Attach, and wait `settle` seconds once the counters are open, because they start one by one."""
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        end = time.monotonic() + ATTACH_SECONDS_MAX
        while not self._has_counters():
            if self._process.poll() is not None or time.monotonic() > end:
                self._process.kill()
                said = self._process.communicate(timeout=STOP_SECONDS)[1]
                raise RuntimeError(f"{' '.join(self._command)} did not attach: {said!r}")
            time.sleep(0.01)
        time.sleep(settle)

    def _has_counters(self) -> bool:
        assert self._process is not None
        folder = f"/proc/{self._process.pid}/fd"
        try:
            targets = [os.readlink(f"{folder}/{name}") for name in os.listdir(folder)]
        except OSError:
            return False  # closed meanwhile, or not started yet
        return any("perf_event" in target for target in targets)

    def stop(self) -> str:
        """Detach; return the stderr of `perf`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        return self._process.communicate(timeout=STOP_SECONDS)[1]
