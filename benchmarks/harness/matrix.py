"""Tables whose rows are operations and whose columns are peers: one process measures every row.

As with the cases, rounds are interleaved and each visit is a fresh process, pinned to core 0.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import machine
from benchmarks.harness.environment import ROOT, Environment
from benchmarks.harness.plan import GRACE_SECONDS, Plan
from benchmarks.harness.process import SERVER_CORE, BenchmarkFailure, pin
from benchmarks.harness.results import RESULTS, Spread

ROW_SHARE = 10
"""A row gets this part of the time that a case's visit has."""


@dataclass(frozen=True)
class Column:
    """One peer of a matrix."""

    name: str
    package: str
    """The Python distribution it needs."""


@dataclass(frozen=True)
class Matrix:
    """One table of BENCHMARK.md, measured by `benchmarks/programs/<program>.py`."""

    name: str
    title: str
    about: str
    program: str
    columns: tuple[Column, ...]
    baseline: str
    """The column that ratios refer to."""
    unit: str = "operations/s"
    tags: frozenset[str] = field(default_factory=frozenset)


LOOPS = (
    # asyncio comes with the interpreter; pip stands in as the package that is always there.
    Column("asyncio", "pip"),
    Column("uvloop", "uvloop"),
    Column("rloop", "rloop"),
    Column("uringcore-uring", "uringcore"),
    Column("uringcore-epoll", "uringcore"),
)

MATRICES: tuple[Matrix, ...] = (
    Matrix(
        name="micro",
        title="Scheduling",
        about=(
            "What callbacks, timers, futures, tasks and threads cost by themselves, with no descriptor "
            "in sight: operations a second, with the multiple of asyncio's."
        ),
        program="micro",
        columns=LOOPS,
        baseline="asyncio",
        tags=frozenset({"loop"}),
    ),
    Matrix(
        name="files",
        title="Files",
        about=(
            "File I/O with everything in the page cache: `uringcore.aio` on its own loops and on stock "
            "asyncio beside aiofiles, and the same calls made blocking as the floor. The rows that "
            "begin with 'cold' read what was evicted from the page cache before, so they ask the "
            "device, which for a virtual machine may be its host's memory. Operations a "
            "second, with the multiple of aiofiles' on asyncio; every read is checked."
        ),
        program="files",
        columns=(
            Column("aiofiles on asyncio", "aiofiles"),
            Column("aiofiles on uvloop", "uvloop"),
            Column("uringcore-uring", "uringcore"),
            Column("uringcore-epoll", "uringcore"),
            Column("uringcore on asyncio", "uringcore"),
            Column("blocking", "pip"),
        ),
        baseline="aiofiles on asyncio",
        tags=frozenset({"files"}),
    ),
)


@dataclass
class MatrixResult:
    """The samples of a matrix: rates by column and row."""

    matrix: str
    machine: dict[str, Any]
    rounds: int
    seconds: float
    """The timed window of one row."""
    rates: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def save(self) -> Path:
        """Write `results/<matrix>.json`."""
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{self.matrix}.json"
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")
        return path

    @classmethod
    def load(cls, matrix: str) -> MatrixResult | None:
        """Read `results/<matrix>.json`, or None where there is none."""
        path = RESULTS / f"{matrix}.json"
        return cls(**json.loads(path.read_text())) if path.exists() else None

    def spread(self, column: str, row: str) -> Spread | None:
        """The rate of one cell over the rounds."""
        return Spread.of(self.rates.get(column, {}).get(row, []))

    @property
    def rows(self) -> list[str]:
        """The rows, in the program's order."""
        rows: dict[str, None] = {}
        for column in self.rates.values():
            rows.update(dict.fromkeys(column))
        return list(rows)


def run_matrix(matrix: Matrix, environment: Environment, plan: Plan) -> MatrixResult:
    """All rounds of `matrix`.

    Raises `BenchmarkFailure` at the first column that fails, unless the plan says to keep going.
    """
    seconds = plan.seconds / ROW_SHARE
    result = MatrixResult(matrix.name, machine.facts(environment), plan.rounds, seconds)
    present: list[Column] = []
    for column in matrix.columns:
        if plan.peers and column.name not in plan.peers:
            continue
        reason = environment.package_missing(column.package)
        if reason is None:
            present.append(column)
            result.rates[column.name] = {}
        else:
            result.absent[column.name] = reason
            print(f"  {column.name:16} absent: {reason}", flush=True)
    for number in range(plan.rounds):
        shift = number % max(len(present), 1)
        for column in present[shift:] + present[:shift]:
            if column.name in result.absent:
                continue
            try:
                rows = _visit(matrix, column, environment, seconds)
            except BenchmarkFailure as failure:
                if not plan.keep_going:
                    raise
                result.absent[column.name] = f"failed: {failure}"
                print(f"  {column.name:16} FAILED: {failure}", flush=True)
                continue
            for row, (count, wall, _) in rows.items():
                result.rates[column.name].setdefault(row, []).append(count / wall)
            print(f"  round {number + 1}  {column.name:16} {len(rows)} rows", flush=True)
    return result


def _visit(
    matrix: Matrix, column: Column, environment: Environment, seconds: float
) -> dict[str, tuple[int, float, float]]:
    command = [
        *(str(environment.python), "-m", f"benchmarks.programs.{matrix.program}"),
        *("--peer", column.name, "--seconds", str(seconds)),
    ]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": ""},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=GRACE_SECONDS + seconds * 40,
            preexec_fn=lambda: pin(SERVER_CORE),
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise BenchmarkFailure(f"{column.name}: no end after {late.timeout} s") from None
    if done.returncode != 0:
        raise BenchmarkFailure(f"{column.name}: {done.stderr.strip()[-4000:]}")
    rows: dict[str, tuple[int, float, float]] = json.loads(done.stdout.splitlines()[-1])
    return rows
