#!/usr/bin/env python3
"""What the compiler is shown of the hot paths: the rows whose instructions are counted, without the counting.

`make wheel` builds the extension module such that it takes down which way it goes, this runs, and it is built
for good, laid out and inlined by what was seen (`pgo-command` in pyproject.toml). Which rows:
`programs/counted.py`. The server needs uvicorn, which is fetched here where it is lacking.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

NEEDED = {"uvicorn": "uvicorn>=0.50", "httptools": "httptools>=0.6.3"}
TIMES = 16
"""Beside the callbacks and timers, of which each row has thousands."""


def main() -> None:
    """Do every row, each group in a process of its own."""
    lacking = [what for name, what in NEEDED.items() if importlib.util.find_spec(name) is None]
    if lacking:
        run("-m", "ensurepip")
        run("-m", "pip", "--quiet", "--disable-pip-version-check", "install", *lacking)
    from benchmarks.programs.counted import DEFAULT_GROUPS

    for group in DEFAULT_GROUPS:
        print(f"  {group}", flush=True)
        run("-m", "benchmarks.programs.counted", "--group", group, "--times", str(TIMES))


def run(*arguments: str) -> None:
    """Run Python; raises `CalledProcessError` if it fails."""
    subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
