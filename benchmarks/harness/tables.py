"""The full tables of `docs/benchmarks`, one for each case and matrix that has results."""

from __future__ import annotations

from benchmarks.harness import provenance, ratios
from benchmarks.harness.cases import Case
from benchmarks.harness.chart import Bar, figure, render
from benchmarks.harness.figures import CaseFigures, MatrixFigures
from benchmarks.harness.matrix import Matrix
from benchmarks.harness.peers import PEERS, kind_of
from benchmarks.harness.results import Spread


def section(case: Case, result: CaseFigures, *, chart: bool = False) -> str:
    """The table of a case, with a link to its chart if there is one."""
    head = ["peer", case.unit.rate, "spread", f"× {case.baseline}"]
    if case.latency:
        head += ["p50 µs", "p99 µs"]
    head += [f"CPU µs/{case.unit.per}", f"syscalls/{case.unit.per}"]
    if case.memory:
        head.append("memory MiB")
    held = ratios.held_against(case)
    head += [f"CPU ÷ {against}" for against in held]
    rows = [f"| {' | '.join(head)} |", "| --- " + "| ---: " * (len(head) - 1) + "|"]
    limit = result.peers.get(case.baseline)
    baseline = limit.spread("rate") if limit is not None else None
    notes = []
    for name in _order(case, result):
        peer = result.peers[name]
        found = peer.spread("rate")
        if found is None:
            word = "absent" if peer.failed is None else "failed"
            rows.append(f"| {name} | {word} " + "| " * (len(head) - 2) + "|")
            first = (peer.failed or peer.absent or "no sample").splitlines()[0]
            notes.append(f"- {name} {word}: {first}")
            continue
        ratio = f"{found.median / baseline.median:.2f}" if baseline else "–"
        cells = [name, figure(found.median), f"{figure(found.low)} – {figure(found.high)}", ratio]
        if case.latency:
            cells += [_cell(peer.spread("p50_us")), _cell(peer.spread("p99_us"))]
        cells += [_cell(peer.spread("cpu_us")), _cell(peer.spread("syscalls"))]
        if case.memory:
            cells.append(_cell(peer.spread("memory_mib")))
        cells += [ratios.quotient(case, result, name, against) for against in held]
        rows.append(f"| {' | '.join(cells)} |")
    each = result.amount or f"{result.seconds:g} s"
    taken = f"{result.rounds} rounds of {each}, {provenance.stamp(result.machine)}."
    lines = [f"## {case.title}", "", case.about, "", *rows, ""]
    if notes:
        lines += [*notes, ""]
    if chart:
        lines += [f"![{case.title}](charts/{case.name}.svg)", ""]
    lines += [taken, ""]
    return "\n".join(lines)


def matrix_section(matrix: Matrix, result: MatrixFigures, *, chart: bool = False) -> str:
    """The table of a matrix, with a link to its chart if there is one."""
    shown = [one for one in matrix.columns if one.name in result.rates]
    columns = [one.name for one in shown]
    ours = [one.name for one in shown if not one.foreign] if matrix.against else []
    heads = [*columns, *(f"{name} ÷ {matrix.against}" for name in ours)]
    rows = [f"| {matrix.unit} | {' | '.join(heads)} |", "| --- " + "| ---: " * len(heads) + "|"]
    for row in result.rows:
        baseline = result.spread(matrix.baseline, row)
        cells = []
        for column in columns:
            spread = result.spread(column, row)
            if spread is None:
                cells.append("–")
            elif baseline is None or not baseline.median or column == matrix.baseline:
                cells.append(figure(spread.median))
            else:
                cells.append(f"{figure(spread.median)} ({spread.median / baseline.median:.2f}×)")
        cells += [ratios.share(matrix, result, row, name) for name in ours]
        rows.append(f"| {row} | {' | '.join(cells)} |")
    notes = [f"- {name} absent: {why.splitlines()[0]}" for name, why in result.absent.items()]
    window = "" if matrix.costs else f" of {result.seconds:g} s a row"
    taken = (
        f"Medians of {result.rounds} rounds{window}, in parentheses the multiple "
        f"of {matrix.baseline}'s; {provenance.stamp(result.machine)}."
    )
    lines = [
        f"## {matrix.title}",
        "",
        matrix.about,
        "",
        *rows,
        "",
        *notes,
        *([""] if notes else []),
    ]
    if chart:
        lines += [f"![{matrix.title}](charts/{matrix.name}.svg)", ""]
    return "\n".join([*lines, taken, ""])


def matrix_chart(matrix: Matrix, result: MatrixFigures) -> str:
    """The chart of the rows that a matrix names for it."""
    bars = [
        Bar(
            row.removesuffix(f" {_unit(row)}"),
            "ours",
            result.spread(matrix.baseline, row),
            "absent",
        )
        for row in matrix.chart
    ]
    return render(f"{matrix.title}, {matrix.baseline}", _unit(matrix.chart[0]), bars)


def _unit(row: str) -> str:
    """The last word of a row's name."""
    return row.rpartition(" ")[2]


def case_chart(case: Case, result: CaseFigures) -> str:
    """The chart of a case: one bar a peer."""
    bars = []
    for name in _order(case, result):
        peer = result.peers[name]
        note = "absent" if peer.failed is None else "failed"
        bars.append(Bar(name, kind_of(case.family, name), peer.spread("rate"), note))
    return render(case.title, case.unit.rate, bars)


def _order(case: Case, result: CaseFigures) -> list[str]:
    """Return the peers in the order of their definition, regardless of the order in a result file."""
    known = [peer.name for peer in PEERS[case.family]]
    return [name for name in known if name in result.peers]


def _cell(spread: Spread | None) -> str:
    return "–" if spread is None else figure(spread.median)
