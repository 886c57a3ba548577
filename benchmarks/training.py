#!/usr/bin/env python3
"""What the compiler is shown of the hot paths: the rows whose instructions are counted, without the counting.

`make wheel` builds the extension module such that it takes down which way it goes, this runs, and it is built
for good, laid out and inlined by what was seen (`pgo-command` in pyproject.toml). The rows are
`programs/counted.py`'s; what they lack (connections that come and go, child processes, files, signals) is in
the random lives of `tests/stress`. The server's requirements are fetched here where they are lacking.

This saves 11 to 16 % of the instructions of a request, a stream or a message.
"""

from __future__ import annotations

import importlib.util
import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

TIMES = 16
"""Beside the callbacks and timers, of which each row has thousands."""
BACKENDS = ("uring", "epoll")
STRESS = ("--seed", "1", "--seconds", "5")


def main() -> None:
    """Do every row, each group in a process of its own."""
    if importlib.util.find_spec("uvicorn") is None:
        run("-m", "ensurepip")
        requirements = runpy.run_path(str(ROOT / ".ci" / "venv.py"))["requirements"]("server")
        run("-m", "pip", "--quiet", "--disable-pip-version-check", "install", *requirements)
    from benchmarks.programs.counted import DEFAULT_GROUPS

    for group in DEFAULT_GROUPS:
        print(f"  {group}", flush=True)
        run("-m", "benchmarks.programs.counted", "--group", group, "--times", str(TIMES))
    for backend in BACKENDS:
        print(f"  {backend}, random lives", flush=True)
        run("-W", "ignore", "-m", "tests.stress", "--backend", backend, *STRESS)


def run(*arguments: str) -> None:
    """Run Python; raises `CalledProcessError` if it fails."""
    subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
