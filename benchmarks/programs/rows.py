"""The command line and the output of a program of rows (one JSON line), and its measurement.

Rates are printed as `{row: [count, wall s, CPU s]}`, costs as `{row: [sample, ...]}`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Container

Row = Callable[[int], None]
"""Runs the row's operation `count` times."""

FIRST = 64
"""The count of the first run, which is not timed; it grows until a run fills the window."""


def arguments(about: str | None, peers: Container[str]) -> argparse.Namespace:
    """Parse `--peer`, and `--seconds`, the timed window of a row in programs with a window."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--peer", choices=peers, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    return parser.parse_args()


def measure(row: Row, seconds: float) -> tuple[int, float, float]:
    """The count that fills `seconds`, and its wall and processor seconds."""
    count = FIRST
    while True:
        wall, cpu = _timed(row, count)
        if wall >= seconds / 4:
            break
        count *= 4
    count = max(int(count * seconds / wall), 1)
    wall, cpu = _timed(row, count)
    return count, wall, cpu


def _timed(row: Row, count: int) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    row(count)
    return time.perf_counter() - wall, time.process_time() - cpu


def tell(rows: dict[str, Row], seconds: float) -> None:
    """Measure every row and print the line."""
    print(json.dumps({name: measure(row, seconds) for name, row in rows.items()}))
