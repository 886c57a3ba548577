"""The loops on other interpreters than that of the full tables, in ratios to the peers of their runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import figures, provenance, ratios
from benchmarks.harness.cases import CASES, Case
from benchmarks.harness.figures import CaseFigures, MatrixFigures
from benchmarks.harness.matrix import BEST_OTHER, MATRICES, Matrix
from benchmarks.harness.peers import C_EPOLL

ABOUT = (
    "The tables of the loops again, in ratios only. For processor time and other costs less is better, for "
    "rates more."
)
OURS = ("uringcore-uring", "uringcore-epoll")


@dataclass
class Interpreter:
    """The results of one interpreter."""

    version: str
    cases: list[tuple[Case, CaseFigures]]
    matrices: list[tuple[Matrix, MatrixFigures]]

    def machines(self) -> list[dict[str, Any]]:
        """The machines of the results."""
        of_cases = [result.machine for _, result in self.cases]
        return of_cases + [result.machine for _, result in self.matrices]

    @property
    def title(self) -> str:
        """The heading of its part of BENCHMARK.md."""
        return f"On CPython {self.version}"

    def section(self) -> str:
        """Returns the page's part of BENCHMARK.md."""
        lines = [f"## {self.title}", "", ABOUT, ""]
        if self.cases:
            lines += [*self._cases(), ""]
        for matrix, result in self.matrices:
            lines += [*_matrix(matrix, result), ""]
        stamps = provenance.stamps(self.machines())
        rounds = {result.rounds for _, result in self.cases}
        rounds |= {result.rounds for _, result in self.matrices}
        lines += [f"{' or '.join(map(str, sorted(rounds)))} rounds, {stamps}.", ""]
        return "\n".join(lines)

    def _cases(self) -> list[str]:
        limits = (BEST_OTHER, C_EPOLL.name)
        rows = {
            case.title: [
                ratios.quotient(case, result, name, limit)
                if limit in ratios.held_against(case)
                else "–"
                for limit in limits
                for name in OURS
            ]
            for case, result in self.cases
        }
        return _table("processor time", limits, rows)


def results() -> list[Interpreter]:
    """Each interpreter that loops were measured on beside the whole tables, oldest first."""
    found = [_of(version) for version in figures.pythons_beside()]
    return [one for one in found if one.machines()]


def _of(version: str) -> Interpreter:
    page = f"{figures.OTHER_PYTHON}{version}"
    cases = [(case, CaseFigures.load(page, case.name)) for case in CASES if "loop" in case.tags]
    matrices = [(one, MatrixFigures.load(page, one.name)) for one in MATRICES if one.against]
    return Interpreter(
        version,
        [(case, result) for case, result in cases if result is not None],
        [(matrix, result) for matrix, result in matrices if result is not None],
    )


def _matrix(matrix: Matrix, result: MatrixFigures) -> list[str]:
    what = "cost" if matrix.costs else "rate"
    rows = {row: [ratios.share(matrix, result, row, name) for name in OURS] for row in result.rows}
    return _table(f"{matrix.title}, {what}", (matrix.against or "",), rows)


def _table(title: str, limits: Sequence[str], rows: dict[str, list[str]]) -> list[str]:
    """The table of our figures divided by each of `limits`."""
    head = [f"{name} ÷ {limit}" for limit in limits for name in OURS]
    return [
        f"| {title} | {' | '.join(head)} |",
        "| --- " + "| ---: " * len(head) + "|",
        *(f"| {row} | {' | '.join(cells)} |" for row, cells in rows.items()),
    ]
