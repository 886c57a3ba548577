"""The cost or the rate of one peer, divided by another's."""

from __future__ import annotations

from benchmarks.harness.cases import Case
from benchmarks.harness.figures import CaseFigures, MatrixFigures
from benchmarks.harness.matrix import BEST_OTHER, Matrix
from benchmarks.harness.peers import C_EPOLL, PEERS, QUINN_H3


def held_against(case: Case) -> list[str]:
    """The peers by which the table of `case` divides the processor time."""
    others = [BEST_OTHER] if case.tags & {"loop", "h3"} else []
    limits = [limit.name for limit in (C_EPOLL, QUINN_H3) if limit in PEERS[case.family]]
    return others + limits


def quotient(case: Case, result: CaseFigures, name: str, against: str) -> str:
    """The processor time of the peer `name` divided by `against`'s."""
    if against == BEST_OTHER:
        names = [peer.name for peer in PEERS[case.family] if peer.foreign and peer.name != name]
    else:
        names = [against]
    peer = result.peers.get(name)
    mine = None if peer is None else peer.spread("cpu_us")
    others = [result.peers[other].spread("cpu_us") for other in names if other in result.peers]
    medians = [other.median for other in others if other is not None and other.median]
    if mine is None or not medians:
        return "–"
    return f"{mine.median / min(medians):.2f}"


def share(matrix: Matrix, result: MatrixFigures, row: str, name: str) -> str:
    """The figure of one of ours divided by what the matrix is held against."""
    mine = result.spread(name, row)
    others = [one.name for one in matrix.columns if one.foreign]
    names = others if matrix.against == BEST_OTHER else [matrix.against or ""]
    spreads = [result.spread(other, row) for other in names]
    medians = [other.median for other in spreads if other is not None and other.median]
    if mine is None or not medians:
        return "–"
    return f"{mine.median / (min if matrix.costs else max)(medians):.2f}"
