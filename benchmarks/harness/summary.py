"""BENCHMARK.md's ratios: each table of an area as one row, uringcore against its rivals.

A rival is a peer of another project. Native programs (plain C, quinn) are the floor and no rivals: they
have a separate column.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.harness.areas import Area
from benchmarks.harness.cases import IDLE_MEMORY, Case
from benchmarks.harness.chart import figure
from benchmarks.harness.figures import CaseFigures, MatrixFigures
from benchmarks.harness.matrix import Matrix
from benchmarks.harness.peers import C_EPOLL, QUINN_H3, kind_of
from benchmarks.harness.results import Spread

NATIVE = (C_EPOLL.name, "quinn", QUINN_H3.name)
TOLERANCE = 0.03
"""A median that is behind by at most this share counts as level."""
BEHIND = "▼"


@dataclass(frozen=True)
class Measure:
    """One quantity of a table: uringcore's spread and the medians of its rivals."""

    mine: Spread
    rivals: dict[str, float]
    costs: bool
    """True if less is better."""

    @property
    def best(self) -> str | None:
        """The name of the best rival."""
        if not self.rivals:
            return None
        return (min if self.costs else max)(self.rivals, key=lambda name: self.rivals[name])

    def ratio(self, name: str | None) -> float | None:
        """uringcore's median divided by that of `name`."""
        other = self.rivals.get(name or "")
        return self.mine.median / other if other else None

    @property
    def behind(self) -> bool:
        """True if the best rival's median is better by more than the tolerance."""
        ratio = self.ratio(self.best)
        if ratio is None:
            return False
        return ratio > 1 + TOLERANCE if self.costs else ratio < 1 - TOLERANCE

    def against_best(self) -> str:
        """The ratio to the best rival, its name, and the mark if it is better."""
        ratio = self.ratio(self.best)
        if ratio is None:
            return "–"
        return f"{ratio:.2f} ({self.best}){f' {BEHIND}' if self.behind else ''}"


@dataclass(frozen=True)
class Row:
    """One line of an area's table."""

    key: str
    """The name of the row in `Area.headline`."""
    title: str
    unit: str
    measure: Measure
    cpu: Measure | None = None
    cpu_unit: str = ""
    native: float | None = None
    """uringcore's processor time divided by that of the table's native program."""

    @property
    def behind(self) -> bool:
        """True if a rival is better in the rate or in processor time."""
        return self.measure.behind or (self.cpu is not None and self.cpu.behind)

    def cells(self, usual: str) -> list[str]:
        """The row's cells, in the order of `HEAD`."""
        mine = self.measure.mine
        cells = [
            self.title,
            f"{figure(mine.median)} {self.unit}".strip(),
            f"{figure(mine.low)} – {figure(mine.high)}",
            _plain(self.measure.ratio(usual)),
            self.measure.against_best(),
        ]
        if self.cpu is None:
            return [*cells, "", "", "", ""]
        cost = f"{figure(self.cpu.mine.median)} µs/{self.cpu_unit}"
        ratio = _plain(self.cpu.ratio(usual))
        return [*cells, cost, ratio, self.cpu.against_best(), _plain(self.native)]


def of_case(area: Area, case: Case, result: CaseFigures) -> list[Row]:
    """The rows of a case, one for each of `area.ours` that has a figure."""
    foreign = [name for name in result.peers if kind_of(case.family, name) == "peer"]
    rates = {name: peer.spread("rate") for name, peer in result.peers.items()}
    cpu = {name: peer.spread("cpu_us") for name, peer in result.peers.items()}
    rows = []
    for name in area.ours:
        mine, cost = rates.get(name), cpu.get(name)
        if mine is None or cost is None:
            continue
        native = next((cpu[one] for one in NATIVE if cpu.get(one)), None)
        rows.append(
            Row(
                case.name,
                case.title if name == area.ours[0] else f"{case.title}, `{name}`",
                case.unit.rate,
                Measure(mine, _medians(rates, foreign), costs=case.unit is IDLE_MEMORY),
                Measure(cost, _medians(cpu, foreign), costs=True),
                case.unit.per,
                cost.median / native.median if native and native.median else None,
            )
        )
    return rows


def of_matrix(area: Area, matrix: Matrix, result: MatrixFigures) -> list[Row]:
    """The rows of a matrix that has rivals."""
    foreign = [one.name for one in matrix.columns if one.foreign and one.name not in area.limits]
    rows = []
    for row in result.rows:
        mine = result.spread(area.ours[0], row)
        rivals = _medians({name: result.spread(name, row) for name in foreign}, foreign)
        if mine is None or not rivals:
            continue
        unit = matrix.unit if matrix.unit not in row else ""
        rows.append(
            Row(
                f"{matrix.name}: {row}",
                f"{matrix.title}: {row}",
                unit,
                Measure(mine, rivals, costs=matrix.costs),
            )
        )
    return rows


def _medians(spreads: dict[str, Spread | None], names: Iterable[str]) -> dict[str, float]:
    found = {name: spreads.get(name) for name in names}
    return {name: spread.median for name, spread in found.items() if spread and spread.median}


def chosen(area: Area, rows: list[Row]) -> list[Row]:
    """The headline rows, and every row in which uringcore is behind."""
    return [
        row
        for row in rows
        if row.behind or row.key in area.headline or row.key.partition(": ")[0] in area.headline
    ]


def table(area: Area, rows: list[Row]) -> list[str]:
    """The rows as a Markdown table without empty columns."""
    head = [
        "",
        "uringcore",
        "spread",
        f"÷ {area.usual}",
        "÷ best rival",
        "CPU",
        f"÷ {area.usual}",
        "÷ best rival",
        "÷ native",
    ]
    body = [row.cells(area.usual) for row in rows]
    kept = [at for at in range(len(head)) if any(cells[at] not in ("", "–") for cells in body)]
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *body]
    return [f"| {' | '.join(cells[at] for at in kept)} |" for cells in lines]


def _plain(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}"
