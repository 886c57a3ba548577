#!/usr/bin/env python3
"""The training run of the compiler's profile: the rows whose instructions are counted, without the counting.

`make wheel` builds the extension module with instrumentation, runs this program, and builds the module again
with the recorded profile, which determines layout and inlining (`pgo-command` in pyproject.toml). The rows
are those of `programs/counted.py`. The random lives of `tests/stress` add connections that come and go, child
processes, files and signals. The server's requirements are installed here if they are missing.

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
"""The factor of the rows other than callbacks and timers, which run thousands of times anyway."""
BACKENDS = ("uring", "epoll")
STRESS = ("--seed", "1", "--seconds", "5")


def main() -> None:
    """Run every row, each group in a separate process."""
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
