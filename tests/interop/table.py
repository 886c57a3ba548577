"""Writes the tables of docs/interoperability.md from `results.json`: `python -m tests.interop.table`."""

from __future__ import annotations

from pathlib import Path

from tests.interop.peers import OURS, ROOT, TABLES
from tests.interop.results import LACKS, PASS, Cell, Results
from tests.interop.runner.cases import CASES

__all__ = ["PAGE", "render"]

PAGE = ROOT / "docs" / "interoperability.md"

BEGIN = "<!-- interop: written by `python -m tests.interop.table` -->"
END = "<!-- /interop -->"


def render(results: Results) -> str:
    """The tables with their notes, in Markdown."""
    notes: dict[str, int] = {}
    tables = [_table(results, name, notes) for name in TABLES]
    lines = "\n\n".join("\n".join(table) for table in tables if table).split("\n")
    legend = (
        "A cell has uringcore as the server / as the client: ✓ passes, ✗ fails, – the peer lacks the "
        "feature (see the note). An empty cell means that the case does not run with the peer."
    )
    said = [f"{number}. {text}" for text, number in notes.items()]
    return "\n".join([*lines, "", legend, *(["", *said] if said else [])])


def _table(results: Results, table: str, notes: dict[str, int]) -> list[str]:
    rows = {name: results.cells[name] for name in CASES if name in results.cells}
    rows = {name: row for name, row in rows.items() if CASES[name].table == table}
    peers = [peer for peer in TABLES[table] if any(peer in row for row in rows.values())]
    heads = [f"{peer} {results.versions.get(peer, '')}".strip() for peer in peers]
    lines = ["| case | " + " | ".join(heads) + " |", "| --- |" + " --- |" * len(peers)]
    for name, row in rows.items():
        cells = [_cell(row.get(peer), peer, notes) for peer in peers]
        lines.append(f"| {name}: {CASES[name].title} | " + " | ".join(cells) + " |")
    return lines if rows else []


def _cell(roles: dict[str, Cell] | None, peer: str, notes: dict[str, int]) -> str:
    if not roles:
        return ""
    if peer == OURS:
        return _mark(roles["server"], peer, "", notes)
    order = ("server", "client")
    return " / ".join(
        _mark(roles[role], peer, role, notes) if role in roles else "&nbsp;" for role in order
    )


def _mark(cell: Cell, peer: str, role: str, notes: dict[str, int]) -> str:
    figures = "".join(f" {value:g} {unit}" for unit, value in cell.figures.items())
    if cell.verdict == PASS:
        return "✓" + figures
    text = f"{peer}: {_plain(cell.proof)}"
    number = notes.setdefault(text, len(notes) + 1)
    return f"{'–' if cell.verdict == LACKS else '✗'}&nbsp;({number})"


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def write(path: Path, table: str) -> None:
    """Writes the table between the markers of a file, which must have them."""
    text = path.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{path} has no place for the table: {BEGIN} ... {END}")
    path.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}")


if __name__ == "__main__":
    write(PAGE, render(Results.load()))
