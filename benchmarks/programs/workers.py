"""What several workers of a server do on the cores that they share with the load.

The load is native (`h3_load`). A figure "with cores of their own" is what the busiest worker's processor time
allows: the rate that the server would have if each worker had a core and the load had others.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from benchmarks.applications.bare import LARGE
from benchmarks.programs.deployed import NATIVE, Deployed, certificate, run, spent, use_every_core
from benchmarks.programs.rows import arguments

COLUMNS = {"1 worker": 1, "2 workers": 2}
REQUESTS = {"hello": (), "100 KiB": ("--path", "/100k", "--size", str(len(LARGE)))}
CONNECTIONS, STREAMS = 32, 4
"""So many that the kernel's choice of workers evens out."""
ROW_SHARE = 10
"""What matrix.py takes for a row is a tenth of a visit, and this needs the whole."""


def rows_of(
    server: Deployed, name: str, options: tuple[str, ...], seconds: float
) -> dict[str, list[float]]:
    """The rows of one kind of request."""
    cert, _ = certificate()
    load = [
        *(str(Path(os.environ[NATIVE]) / "h3_load"), "--addr", f"127.0.0.1:{server.port}"),
        *("--pid", str(next(iter(server.cpu_ns()))), "--ca", cert, *options),
        *("--connections", str(CONNECTIONS), "--streams", str(STREAMS)),
    ]
    run([*load, "--seconds", "0.3", "--warmup", "0"], 60)
    before = server.cpu_ns()
    told = json.loads(run([*load, "--seconds", str(seconds), "--warmup", "0"], 60 + seconds))
    each = spent(before, server.cpu_ns())
    count = told["requests"]
    return {
        f"{name}, requests/s": [count, told["seconds"], sum(each)],
        f"{name}, requests a second of the server's processor time": [count, sum(each), sum(each)],
        f"{name}, requests/s with cores of their own": [count, each[0], sum(each)],
    }


def main() -> None:
    """Measure a server with as many workers as the column says."""
    given = arguments(__doc__, COLUMNS)
    use_every_core()
    workers = COLUMNS[given.peer]
    rows: dict[str, list[float]] = {}
    with Deployed("uringcore-uring", workers=workers, tls=True, core=None) as server:
        for name, options in REQUESTS.items():
            rows |= rows_of(server, name, options, given.seconds * ROW_SHARE)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
