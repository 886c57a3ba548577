"""`perf` attached to a process that runs already, for as long as somebody wants."""

from __future__ import annotations

import signal
import subprocess
import time

# perf says nothing once it is attached.
ATTACH_SECONDS = 0.5
STOP_SECONDS = 60.0


class Perf:
    """One `perf stat` or `perf record` of the process `pid`."""

    def __init__(self, pid: int, *arguments: str) -> None:
        self._command = ["perf", *arguments, "-p", str(pid)]
        self._process: subprocess.Popen[str] | None = None

    def start(self, settle: float = ATTACH_SECONDS) -> None:
        """Attach, and wait `settle` seconds for that to be so."""
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(settle)

    def stop(self) -> str:
        """Detach; what `perf` said at its end."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        return self._process.communicate(timeout=STOP_SECONDS)[1]
