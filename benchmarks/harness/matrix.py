"""Tables whose rows are operations or costs and whose columns are peers: one process measures every row.

As with the cases, rounds are interleaved and each visit is a fresh process, pinned to core 0.
`programs/rows.py` describes a program's output.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import machine
from benchmarks.harness.environment import ROOT, Environment
from benchmarks.harness.process import SERVER_CORE, BenchmarkFailure, pin
from benchmarks.harness.results import Spread, path_of, write
from benchmarks.harness.round_plan import GRACE_SECONDS, SECONDS_MIN, Plan
from benchmarks.servers.loops import LOOPS as LOOP_NAMES
from benchmarks.servers.loops import STREAM_LOOPS as STREAM_LOOP_NAMES
from benchmarks.servers.loops import package_of

BEST_OTHER = "best other"
"""The best of the columns of other projects, row by row."""


@dataclass(frozen=True)
class Column:
    """One peer of a matrix."""

    name: str
    package: str
    """The Python distribution that the column needs."""

    @property
    def foreign(self) -> bool:
        """True for another project's package: its failure is a result and not an error."""
        return self.package != "uringcore"


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
    """The unit of the figures, or "" if each row's name contains it."""
    costs: bool = False
    """True if the rows are costs, of which less is better; False for rates."""
    against: str | None = None
    """The report divides each of our columns by this one: a column's name, or `BEST_OTHER`."""
    chart: tuple[str, ...] = ()
    """The rows that are also a chart, of the baseline's column."""
    row_seconds: float | None = None
    """The timed window of a row in a program with many rows; None for the plan's time."""
    grace: float = GRACE_SECONDS
    """Seconds that a visit may take besides its timed windows."""
    tags: frozenset[str] = field(default_factory=frozenset)


# asyncio comes with the interpreter; pip is a package that every environment has.
def _columns(names: tuple[str, ...]) -> tuple[Column, ...]:
    return tuple(Column(name, "pip" if name == "asyncio" else package_of(name)) for name in names)


LOOPS = _columns(LOOP_NAMES)
STREAM_LOOPS = _columns(STREAM_LOOP_NAMES)

MATRICES: tuple[Matrix, ...] = (
    Matrix(
        name="micro",
        title="Scheduling",
        about=(
            "The cost of callbacks, timers, futures, tasks and threads alone, without file descriptors: "
            "operations a second, with the multiple of asyncio's."
        ),
        program="micro",
        row_seconds=SECONDS_MIN,
        columns=LOOPS,
        baseline="asyncio",
        against=BEST_OTHER,
        tags=frozenset({"loop"}),
    ),
    Matrix(
        name="computing",
        title="Answers that take a while",
        about=(
            "Fifty clients send a request at once, and each answer blocks the server's loop for 0, 0.1, 1 or "
            "4 ms: the time until the first, the median and the last answer, and the server's "
            "processor time and system calls for an answer, connections not included. ASGI is `uringcore` on "
            "our loops and uvicorn on the others. Less is better."
        ),
        program="computing",
        columns=tuple(
            Column(name, "pip" if name == "asyncio" else package_of(name))
            for name in ("asyncio", "uvloop", "uringcore-uring", "uringcore-epoll")
        ),
        baseline="asyncio",
        unit="",
        costs=True,
        grace=240.0,
        tags=frozenset({"computing"}),
    ),
    Matrix(
        name="idle",
        title="Idle connections",
        about=(
            "User memory of a server for each of 5,000 idle TCP connections: the growth of the process's "
            "private pages (`Private_Clean` and `Private_Dirty` of "
            "`/proc/<pid>/smaps_rollup`), including an `asyncio.Protocol` for each "
            "connection. First after accepting, then after an echo of 1 KiB on each. The "
            "kernel's memory for them is not included. Less is better."
        ),
        program="idle",
        columns=STREAM_LOOPS,
        baseline="asyncio",
        unit="kB a connection",
        costs=True,
        against=BEST_OTHER,
        tags=frozenset({"loop", "idle"}),
    ),
    Matrix(
        name="start",
        title="Start and idleness",
        about=(
            "The cost of a process with each loop before it does any work: `import` of its package "
            "(asyncio's own for asyncio), and `asyncio.run` of a coroutine that returns at once. Wall and "
            "processor time are the whole process's, the interpreter's start and end included; memory is "
            "its peak (`VmHWM`), with the package's files in the page cache as read from the disk, not "
            "as written. Each visit starts every process three times. Then a loop that sleeps a "
            "second at a time: its system calls and its processor time a second. Less is better."
        ),
        program="start_up",
        columns=LOOPS,
        baseline="asyncio",
        unit="",
        costs=True,
        against="uvloop",
        tags=frozenset({"loop", "idle"}),
    ),
    Matrix(
        name="files",
        title="Files",
        about=(
            "File I/O with everything in the page cache: `uringcore.aio` on uringcore's loops and on stock "
            "asyncio beside aiofiles, and blocking calls as the floor. The rows that "
            "begin with 'cold' read files that were evicted from the page cache before, so they read from "
            "the device, which for a virtual machine may be its host's memory. Operations a "
            "second, with the multiple of aiofiles' on asyncio; every read is checked."
        ),
        program="files",
        row_seconds=SECONDS_MIN,
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
    Matrix(
        name="http1",
        title="HTTP/1.1",
        about=(
            "`uringcore app:app` and `uvicorn app:app` (uvloop, httptools) with a bare ASGI application, "
            "without TLS and without access log, on one core. The load is asyncio on the other core, 32 "
            "connections with a request each in flight, or one large body; a client in Python is slower than "
            "these servers, so the important figure is the work in a second of the server's processor time. "
            "For a large download, the kernel's copying and TCP are 94 % of it with each server."
        ),
        program="http1",
        columns=(
            Column("uvicorn on uvloop", "uvloop"),
            Column("uringcore-uring", "uringcore"),
            Column("uringcore-epoll", "uringcore"),
        ),
        baseline="uvicorn on uvloop",
        unit="",
        tags=frozenset({"deployed"}),
    ),
    Matrix(
        name="workers",
        title="Workers",
        about=(
            "`uringcore app:app --workers 2` on two cores beside one worker on one of them, over HTTP/3. "
            "Each core also runs a native load (quinn and h3), 32 connections with four requests each in "
            "flight: the gain of the second core, with the load's own share in both columns."
        ),
        program="workers",
        columns=(Column("1 worker", "uringcore"), Column("2 workers", "uringcore")),
        baseline="1 worker",
        unit="",
        tags=frozenset({"deployed"}),
    ),
    Matrix(
        name="hang_up",
        title="SIGHUP under load",
        about=(
            "Two workers over TLS are replaced twice while four clients of each protocol make one "
            "connection after the other, with a request on each. All share the cores, so the time is that "
            "of a busy machine."
        ),
        program="worker_reload",
        columns=(
            Column("uvicorn on uvloop", "uvloop"),
            Column("uringcore-uring", "uringcore"),
            Column("uringcore-epoll", "uringcore"),
        ),
        baseline="uringcore-uring",
        unit="",
        costs=True,
        tags=frozenset({"deployed"}),
    ),
    Matrix(
        name="first_byte",
        title="First byte over 50 ms",
        about=(
            "Milliseconds from the beginning of a connection to the first byte of a response, over a link "
            "with a round trip of 50 ms (netem in a network namespace; on a kernel without it a proxy "
            "that delays datagrams, and no row for TCP). Resumed and 0-RTT use a ticket of the previous "
            "connection; TCP is asyncio's with TLS 1.3, not resumed."
        ),
        program="first_byte",
        columns=(Column("uringcore-uring", "uringcore"), Column("uringcore-epoll", "uringcore")),
        baseline="uringcore-uring",
        unit="ms",
        costs=True,
        tags=frozenset({"deployed"}),
    ),
    Matrix(
        name="relay",
        title="Media relay",
        about=(
            "`examples/media_relay.py --serve` on core 0, and on core 1 a native publisher and its "
            "subscribers (quinn with WebTransport, in one process), each on a separate connection. "
            "The source is sound, 50 pieces of 160 bytes a second, and pictures in slices that are sent "
            "evenly: 250 a second, or so few that a slice is not smaller than a packet. The delay is from "
            "the publisher's send to the whole piece at a subscriber, including both ways over loopback. "
            "Each byte is compared; pieces that a slow subscriber was not sent are counted. If delays "
            "are long, a step's last two rows show which process lacks time, the relay or the load."
        ),
        program="relay",
        columns=(Column("uringcore-uring", "uringcore"), Column("uringcore-epoll", "uringcore")),
        baseline="uringcore-uring",
        unit="",
        costs=True,
        chart=tuple(
            f"20 Mbit/s to {count}, {percentile} ms"
            for count in (10, 50, 100, 200)
            for percentile in ("p50", "p99")
        ),
        grace=240.0,
        tags=frozenset({"webtransport"}),
    ),
)


@dataclass
class MatrixResult:
    """The samples of a matrix: rates or costs by column and row."""

    matrix: str
    machine: dict[str, Any]
    rounds: int
    seconds: float
    """The timed window of one row."""
    rates: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def save(self, *, beside: bool = False) -> Path:
        """Write it to its file; with `beside` to the file of an interpreter with ratios only."""
        return write(self.matrix, self, beside=beside)

    @classmethod
    def load(cls, matrix: str, beside: str = "") -> MatrixResult | None:
        """Read it, or the result of the interpreter `beside`; None if there is no file."""
        path = path_of(matrix, beside)
        return cls(**json.loads(path.read_text())) if path.exists() else None

    def spread(self, column: str, row: str) -> Spread | None:
        """The rate of one cell over the rounds."""
        return Spread.of(self.rates.get(column, {}).get(row, []))


def run_matrix(matrix: Matrix, environment: Environment, plan: Plan) -> MatrixResult:
    """All rounds of `matrix`.

    A column that fails is marked as failed. If it is ours, its failure raises `BenchmarkFailure` instead,
    unless `plan.keep_going`.
    """
    seconds = matrix.row_seconds or plan.seconds
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
                if not (plan.keep_going or column.foreign):
                    raise
                result.absent[column.name] = f"failed: {failure}"
                print(f"  {column.name:16} FAILED: {failure}", flush=True)
                continue
            for row, samples in rows.items():
                result.rates[column.name].setdefault(row, []).extend(samples)
            print(f"  round {number + 1}  {column.name:16} {len(rows)} rows", flush=True)
    return result


def _visit(
    matrix: Matrix, column: Column, environment: Environment, seconds: float
) -> dict[str, list[float]]:
    """The samples of each row."""
    command = [
        *(str(environment.python), "-m", f"benchmarks.programs.{matrix.program}"),
        *("--peer", column.name, "--seconds", str(seconds)),
    ]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": "",
                "BENCHMARK_NATIVE": str(environment.native),
                "BENCHMARK_CERTIFICATES": str(environment.certificates),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=matrix.grace + seconds * 40,
            preexec_fn=lambda: pin(SERVER_CORE),
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        said = (late.stderr or b"").decode(errors="replace").strip()[-2000:]
        raise BenchmarkFailure(f"{column.name}: no end after {late.timeout} s {said}") from None
    if done.returncode != 0:
        raise BenchmarkFailure(f"{column.name}: {done.stderr.strip()[-4000:]}")
    rows: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return rows if matrix.costs else {row: [took[0] / took[1]] for row, took in rows.items()}
