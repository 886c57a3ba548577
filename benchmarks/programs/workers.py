"""The gain of a second worker on a second core: the server and its load run on one core, or on two.

The load is native: `h3_load`, one process a core. It shares the cores with the server in both columns, so its
own cost cancels out.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.applications.bare import LARGE
from benchmarks.programs.deployed import NATIVE, Deployed, authority, run, use_every_core
from benchmarks.programs.rows import arguments

COLUMNS = {"1 worker": 1, "2 workers": 2}
REQUESTS = {"hello": (), "100 KiB": ("--path", "/100k", "--size", str(len(LARGE)))}
CONNECTIONS, STREAMS = 32, 4
"""For each load; so many that the kernel's distribution over the workers evens out."""


def rows_of(
    server: Deployed, name: str, options: tuple[str, ...], seconds: float
) -> dict[str, list[float]]:
    """The rows of one kind of request."""
    cafile = authority()
    pids = list(server.cpu_ns())
    load = [
        *(str(Path(os.environ[NATIVE]) / "h3_load"), "--addr", f"127.0.0.1:{server.port}"),
        *("--pid", str(pids[0]), "--processes", ",".join(map(str, pids)), "--ca", cafile, *options),
        *("--connections", str(CONNECTIONS), "--streams", str(STREAMS)),
        *("--seconds", str(seconds), "--warmup", "0.3"),
    ]
    with ThreadPoolExecutor() as threads:
        loads = [threads.submit(run, load, 60 + seconds) for _ in os.sched_getaffinity(0)]
    told = [json.loads(ended.result()) for ended in loads]
    count, cpu = sum(each["requests"] for each in told), told[0]["server_cpu_ns"] / 1e9
    return {
        f"{name}, requests/s": [count, told[0]["seconds"], cpu],
        f"{name}, requests a second of the server's processor time": [count, cpu, cpu],
    }


def main() -> None:
    """Measure a server with the column's number of workers."""
    given = arguments(__doc__, COLUMNS)
    workers = COLUMNS[given.peer]
    # One worker stays with its load on this process's core.
    if workers > 1:
        use_every_core()
    rows: dict[str, list[float]] = {}
    with Deployed("uringcore-uring", workers=workers, tls=True, core=None) as server:
        for name, options in REQUESTS.items():
            rows |= rows_of(server, name, options, given.seconds)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
