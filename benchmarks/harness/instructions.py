"""The committed counts of the hot paths' machine instructions, and how new ones compare with them.

A count is a property of the interpreter's build, of the library's and of valgrind's, but not of the machine's
load: each CPython version has a baseline of its own, which says what it was taken with.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.harness.environment import HERE
from benchmarks.harness.results import Spread

PATH = HERE / "instructions.json"

Groups = Mapping[str, Mapping[str, Spread]]
"""The counts by group (a loop, or "quic") and row."""


@dataclass(frozen=True)
class Build:
    """What the counts depend on beside the code."""

    interpreter: str
    """`sys.version`, the compiler included."""
    profile: str
    """Cargo's profile that the library was built with."""
    valgrind: str
    processor: str

    @property
    def version(self) -> str:
        """CPython's version without its patch number."""
        return ".".join(self.interpreter.split()[0].split(".")[:2])


@dataclass(frozen=True)
class Baseline:
    """The counts of one CPython version."""

    build: Build
    taken: str
    commit: str
    groups: dict[str, dict[str, float]]
    """Instructions a unit by group and row."""


def load(path: Path, version: str) -> Baseline | None:
    """The baseline of a CPython version, as "3.11", or None where there is none."""
    raw = _read(path).get(version)
    if raw is None:
        return None
    return Baseline(Build(**raw["build"]), raw["taken"], raw["commit"], raw["groups"])


def save(path: Path, build: Build, taken: str, commit: str, counts: Groups) -> None:
    """Make `counts` the baseline of the build's version; the other versions' stay."""
    groups = {
        group: {row: round(spread.median, 1) for row, spread in rows.items()}
        for group, rows in counts.items()
    }
    versions = _read(path) | {build.version: asdict(Baseline(build, taken, commit, groups))}
    path.write_text(json.dumps(dict(sorted(versions.items())), indent=1) + "\n")


def _read(path: Path) -> dict[str, dict]:  # type: ignore[type-arg]
    return json.loads(path.read_text()) if path.exists() else {}


@dataclass(frozen=True)
class Difference:
    """One row, before and now; None where it is not."""

    group: str
    row: str
    old: float | None
    new: Spread | None

    @property
    def percent(self) -> float | None:
        """How many percent more instructions there are now."""
        if self.old is None or self.new is None:
            return None
        return (self.new.median / self.old - 1) * 100

    def worse(self, percent_max: float) -> bool:
        """Whether there are so many more, or the row is gone, which must not pass for a gain."""
        if self.new is None:
            return True
        return self.percent is not None and self.percent > percent_max


def compare(baseline: Baseline | None, counts: Groups) -> list[Difference]:
    """Every row of the groups in `counts`, with those that only the baseline has."""
    found = []
    for group, rows in counts.items():
        old = baseline.groups.get(group, {}) if baseline is not None else {}
        for row in dict.fromkeys([*rows, *old]):
            found.append(Difference(group, row, old.get(row), rows.get(row)))
    return found


def table(differences: list[Difference], percent_max: float) -> str:
    """The rows as text, one a line, the ones that are worse marked."""
    lines = [f"{'instructions':44} {'before':>10} {'now':>10} {'change':>8} {'spread':>7}"]
    group = None
    for one in differences:
        if one.group != group:
            group = one.group
            lines.append(group)
        lines.append(_line(one, percent_max))
    return "\n".join(lines)


def _line(one: Difference, percent_max: float) -> str:
    before = "–" if one.old is None else f"{one.old:,.0f}"
    now = "gone" if one.new is None else f"{one.new.median:,.0f}"
    change = "–" if one.percent is None else f"{one.percent:+.1f} %"
    spread = "–"
    if one.new is not None:
        spread = f"{(one.new.high - one.new.low) / one.new.median * 100:.1f} %"
    mark = "  WORSE" if one.worse(percent_max) else ""
    return f"  {one.row:42} {before:>10} {now:>10} {change:>8} {spread:>7}{mark}"
