"""A media relay (`examples/media_relay.py`) on one core, and its publisher and subscribers on the other.

The load is native: `relay_load`, one process. Its results are the rows: the delay of pieces at the
subscribers, and the missing ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness.process import ROOT, SERVER_CORE, pin
from benchmarks.programs.deployed import NATIVE, authority, beside_the_server, certificate, run
from benchmarks.programs.rows import arguments
from tests.support.child_processes import bound
from tests.support.free_ports import free_port

BACKENDS = {"uringcore-uring": "uring", "uringcore-epoll": "epoll"}
EXAMPLE = ROOT / "examples" / "media_relay.py"
STEP_SECONDS_MAX = 25.0
"""The longest time that the load takes for its connections and for the last pieces at the end."""
MEGABIT = 1_000_000
SOURCE = 20 * MEGABIT
SUBSCRIBERS = (10, 50, 100, 200)
STEPS: tuple[tuple[int, int, int], ...] = (
    *((SOURCE, count, 250) for count in SUBSCRIBERS),
    (MEGABIT, 200, 100),
    (5 * MEGABIT, 200, 250),
    (SOURCE // 200, 200, 30),
)
"""The source's bits a second, the subscribers, and the slices of pictures a second; the last step is 20
Mbit/s over all subscribers."""
TOLD: dict[str, Callable[[dict[str, float]], float]] = {
    "p50 ms": lambda told: told["p50_us"] / 1000,
    "p99 ms": lambda told: told["p99_us"] / 1000,
    "Mbit/s out": lambda told: told["megabits"],
    "share of the bytes that came": lambda told: (
        told["megabits"] / (told["due_megabits"] * told["subscribers"])
    ),
    "groups of 1,000 dropped or missing": lambda told: (
        (told["groups_reset"] + told["groups_missing"]) * 1000 / told["groups"]
    ),
    "stalls over 100 ms": lambda told: told["stalls"],
    "relay's share of its core": lambda told: told["server_cpu_share"],
    "load's share of its core": lambda told: told["load_cpu_share"],
}


class Relay:
    """The example in a separate process, until the block ends."""

    def __init__(self, backend: str, core: int | None = SERVER_CORE) -> None:
        self.port = free_port()
        self._backend, self._core = backend, core

    def __enter__(self) -> Relay:
        core = self._core
        self._process = subprocess.Popen(
            bound(
                [
                    *(sys.executable, str(EXAMPLE), "--serve", "--port", str(self.port)),
                    *("--certificate", *certificate()),
                ]
            ),
            env={**os.environ, "URINGCORE_BACKEND": self._backend},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=None if core is None else lambda: pin(core),
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("https://"):
            self._stop()
            raise RuntimeError(f"the relay does not serve: {line!r}")
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def _stop(self) -> None:
        self._process.kill()
        self._process.wait()


def step_of(relay: Relay, step: tuple[int, int, int], seconds: float) -> dict[str, float]:
    """The load's results of one step."""
    bits, subscribers, pieces = step
    load = [
        *(str(Path(os.environ[NATIVE]) / "relay_load"), "--addr", f"127.0.0.1:{relay.port}"),
        *("--pid", str(relay.pid), "--ca", authority(), "--watchers", str(subscribers)),
        *("--bits", str(bits), "--pieces", str(pieces)),
        *("--seconds", str(seconds), "--warmup", "0.5"),
    ]
    told: dict[str, float] = json.loads(run(bound(load), STEP_SECONDS_MAX + 2 * seconds))
    return {**told, "subscribers": subscribers}


def rows_of(step: tuple[int, int, int], told: dict[str, float]) -> dict[str, list[float]]:
    """The rows of one step."""
    bits, subscribers, _ = step
    name = f"{bits / MEGABIT:g} Mbit/s to {subscribers}"
    return {f"{name}, {row}": [figure(told)] for row, figure in TOLD.items()}


def main() -> None:
    """Measure each step with a new relay."""
    given = arguments(__doc__, BACKENDS)
    beside_the_server()
    rows: dict[str, list[float]] = {}
    for step in STEPS:
        with Relay(BACKENDS[given.peer]) as relay:
            rows |= rows_of(step, step_of(relay, step, given.seconds))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
