"""The committed figures: the median and the spread of each quantity of each table, of which pages are made.

A run writes all samples to `benchmarks/results`, which git ignores (results.py), and their figures to
`benchmarks/figures`: one file for each page of `docs/benchmarks`, in which the run replaces its own
tables and no others. `run.py --collect` makes the figures of every result in that folder again, except of
those that are older than the committed table.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness.areas import area_of
from benchmarks.harness.cases import CASES, Case
from benchmarks.harness.environment import HERE
from benchmarks.harness.matrix import MATRICES, Matrix, MatrixResult
from benchmarks.harness.results import CaseResult, PeerResult, Spread, minor_version, other_pythons

FIGURES = HERE / "figures"
OTHER_PYTHON = "cpython-"
"""How the page of another interpreter begins, whose ratios are shown beside the tables."""
DIGITS = 9
"""The significant digits of a figure. Pages show eight at most."""
EXPANDED = frozenset({"peers", "rates"})
"""The members of a table that have a line for each of theirs."""

LATENCIES = ("p50_us", "p99_us")
GROWN = "server_grown_bytes"


@dataclass
class PeerFigures:
    """The figures of one peer in one case, or the reason for their absence."""

    absent: str | None = None
    failed: str | None = None
    spreads: dict[str, Spread] = field(default_factory=dict)
    """By quantity: `rate` (in the case's unit), `cpu_us` and `syscalls` (for each unit of the case),
    `p50_us`, `p99_us`, `memory_mib`. Peers that failed have none."""

    @classmethod
    def of(cls, case: Case, peer: PeerResult) -> PeerFigures:
        """The figures of a peer's samples."""
        if peer.failed is not None or not peer.samples:
            return cls(_first_line(peer.absent), _first_line(peer.failed))
        unit, samples = case.unit, peer.samples
        found = {
            "rate": Spread.of([unit.rate_of(sample) for sample in samples]),
            "cpu_us": Spread.of(
                [
                    sample["server_cpu_ns"] / 1000 / unit.count_of(sample)
                    for sample in samples
                    if unit.count_of(sample) and "server_cpu_ns" in sample
                ]
            ),
            **{name: peer.spread(name) for name in LATENCIES},
            "syscalls": peer.spread("syscalls_per_unit"),
            "memory_mib": Spread.of(
                [sample[GROWN] / 2**20 for sample in samples if GROWN in sample]
            ),
        }
        return cls(spreads={name: spread for name, spread in found.items() if spread is not None})

    def spread(self, name: str) -> Spread | None:
        """The figures of one quantity, or None."""
        return self.spreads.get(name)

    def to_json(self) -> dict[str, Any]:
        """The members of its line."""
        reasons = {"absent": self.absent, "failed": self.failed}
        return {
            **{name: reason for name, reason in reasons.items() if reason is not None},
            **{name: _rounded(spread) for name, spread in self.spreads.items()},
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> PeerFigures:
        """Returns the figures in a JSON line."""
        raw = dict(raw)
        absent, failed = raw.pop("absent", None), raw.pop("failed", None)
        return cls(absent, failed, {name: Spread(*value) for name, value in raw.items()})


@dataclass
class CaseFigures:
    """The figures of one case, with the machine that they were taken on."""

    machine: dict[str, Any]
    rounds: int
    seconds: float
    amount: str | None = None
    """What a visit did, where it did not last so many seconds."""
    peers: dict[str, PeerFigures] = field(default_factory=dict)

    @classmethod
    def of(cls, case: Case, result: CaseResult) -> CaseFigures:
        """The figures of a result."""
        peers = {name: PeerFigures.of(case, peer) for name, peer in result.peers.items()}
        return cls(result.machine, result.rounds, result.seconds, result.amount, peers)

    def to_json(self) -> dict[str, Any]:
        """The table as its file has it."""
        return {
            "machine": self.machine,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "amount": self.amount,
            "peers": {name: peer.to_json() for name, peer in self.peers.items()},
        }

    @classmethod
    def load(cls, page: str, case: str) -> CaseFigures | None:
        """The figures of a case on a page, or None."""
        raw = read(page).get(case)
        if raw is None:
            return None
        peers = {name: PeerFigures.from_json(peer) for name, peer in raw.pop("peers").items()}
        return cls(**raw, peers=peers)


@dataclass
class MatrixFigures:
    """The figures of one matrix: rates or costs by column and row."""

    machine: dict[str, Any]
    rounds: int
    seconds: float
    """The timed window of one row."""
    rates: dict[str, dict[str, Spread]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, result: MatrixResult) -> MatrixFigures:
        """The figures of a result."""
        rates = {
            column: {row: spread for row in rows if (spread := result.spread(column, row))}
            for column, rows in result.rates.items()
        }
        absent = {column: reason.partition("\n")[0] for column, reason in result.absent.items()}
        return cls(result.machine, result.rounds, result.seconds, rates, absent)

    def spread(self, column: str, row: str) -> Spread | None:
        """The figures of one cell, or None."""
        return self.rates.get(column, {}).get(row)

    @property
    def rows(self) -> list[str]:
        """The rows, in the program's order."""
        rows: dict[str, None] = {}
        for column in self.rates.values():
            rows.update(dict.fromkeys(column))
        return list(rows)

    def to_json(self) -> dict[str, Any]:
        """The table as its file has it."""
        return {
            "machine": self.machine,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "rates": {
                column: {row: _rounded(spread) for row, spread in rows.items()}
                for column, rows in self.rates.items()
            },
            "absent": self.absent,
        }

    @classmethod
    def load(cls, page: str, matrix: str) -> MatrixFigures | None:
        """The figures of a matrix on a page, or None."""
        raw = read(page).get(matrix)
        if raw is None:
            return None
        rates = {
            column: {row: Spread(*value) for row, value in rows.items()}
            for column, rows in raw.pop("rates").items()
        }
        return cls(**raw, rates=rates)


def keep_case(case: Case, result: CaseResult, *, beside: bool = False) -> None:
    """Replace the figures of a case, or of an interpreter's `beside` the tables."""
    _replace(_page(case, result.machine, beside), case.name, CaseFigures.of(case, result).to_json())


def keep_matrix(matrix: Matrix, result: MatrixResult, *, beside: bool = False) -> None:
    """Replace the figures of a matrix, or of an interpreter's `beside` the tables."""
    page = _page(matrix, result.machine, beside)
    _replace(page, matrix.name, MatrixFigures.of(result).to_json())


def keep(page: str, name: str, table: dict[str, Any]) -> None:
    """Replace one table of a page that is no area's."""
    _replace(page, name, table)


def collect() -> int:
    """Make the figures of the cases and matrices in `benchmarks/results` again; returns their number.

    Results that are older than the committed table are skipped.
    """
    found = 0
    for beside in ("", *other_pythons()):
        for case in CASES:
            result = CaseResult.load(case.name, beside)
            if result is not None and not _is_older(case, result.machine, bool(beside)):
                keep_case(case, result, beside=bool(beside))
                found += 1
        for matrix in MATRICES:
            rates = MatrixResult.load(matrix.name, beside)
            if rates is not None and not _is_older(matrix, rates.machine, bool(beside)):
                keep_matrix(matrix, rates, beside=bool(beside))
                found += 1
    return found


def is_older(page: str, name: str, machine: dict[str, Any]) -> bool:
    """True, after a message, if the result of `machine` is older than the committed table."""
    table = read(page).get(name)
    # "2026-01-31 09:05 UTC": the order of the texts is that of the times.
    if table is None or machine["taken"] >= table["machine"]["taken"]:
        return False
    print(
        f"skipped {page}/{name}: the result of {machine['taken']} is older than the table of "
        f"{table['machine']['taken']}"
    )
    return True


def read(page: str) -> dict[str, Any]:
    """The tables of a page by name; none if it has no file."""
    path = path_of(page)
    return json.loads(path.read_text()) if path.exists() else {}


def path_of(page: str) -> Path:
    """The file of a page."""
    return FIGURES / f"{page}.json"


def pythons_beside() -> list[str]:
    """The interpreters that have a page beside the tables, oldest first."""
    found = [path.stem.removeprefix(OTHER_PYTHON) for path in FIGURES.glob(f"{OTHER_PYTHON}*.json")]
    return sorted(found, key=lambda version: [int(part) for part in version.split(".")])


def rounded(value: float) -> float:
    """A figure with as many digits as are committed."""
    return float(f"{value:.{DIGITS}g}")


def _page(table: Case | Matrix, machine: dict[str, Any], beside: bool) -> str:
    return f"{OTHER_PYTHON}{minor_version(machine)}" if beside else area_of(table).name


def _is_older(table: Case | Matrix, machine: dict[str, Any], beside: bool) -> bool:
    return is_older(_page(table, machine, beside), table.name, machine)


def _replace(page: str, name: str, table: dict[str, Any]) -> None:
    tables = dict(sorted({**read(page), name: table}.items()))
    path = path_of(page)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_text(tables))


def _text(tables: dict[str, Any]) -> str:
    """JSON with a line for each peer or column, so that a difference shows whose figures changed."""
    return (
        _object(
            {
                name: _object(
                    {
                        member: _lines(value) if member in EXPANDED else _line(value)
                        for member, value in table.items()
                    },
                    1,
                )
                for name, table in tables.items()
            },
            0,
        )
        + "\n"
    )


def _lines(value: dict[str, Any]) -> str:
    return _object({name: _line(one) for name, one in value.items()}, 2)


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _object(members: dict[str, str], indent: int) -> str:
    if not members:
        return "{}"
    pad = " " * indent
    lines = [f"{pad} {json.dumps(name)}: {text}" for name, text in members.items()]
    return "{\n" + ",\n".join(lines) + f"\n{pad}}}"


def _rounded(spread: Spread) -> list[float]:
    return [rounded(value) for value in (spread.median, spread.low, spread.high)]


def _first_line(reason: str | None) -> str | None:
    return None if reason is None else reason.partition("\n")[0]
