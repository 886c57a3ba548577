"""The committed counts of the hot paths' machine instructions, and their comparison with new ones.

A count depends on the builds of the interpreter, of the library and of valgrind, but not on the machine's
load. Each CPython version has a separate baseline, which records these builds.
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
    """The properties of a build, beside the code, that change the counts."""

    interpreter: str
    """`sys.version`, which includes the compiler."""
    profile: str
    """The Cargo profile of the library."""
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
    """The baseline of a CPython version, such as "3.11", or None."""
    raw = _read(path).get(version)
    if raw is None:
        return None
    return Baseline(Build(**raw["build"]), raw["taken"], raw["commit"], raw["groups"])


def save(path: Path, build: Build, taken: str, commit: str, counts: Groups) -> None:
    """Make `counts` the baseline of the build's version; other versions' baselines stay."""
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
    """One row, before and now; None for a count that does not exist."""

    group: str
    row: str
    old: float | None
    new: Spread | None

    @property
    def percent(self) -> float | None:
        """The increase in percent, or None."""
        if self.old is None or self.new is None:
            return None
        return (self.new.median / self.old - 1) * 100

    def worse(self, percent_max: float) -> bool:
        """True if the increase is more than `percent_max`, or if the row is gone, which is no gain."""
        if self.new is None:
            return True
        return self.percent is not None and self.percent > percent_max


def compare(baseline: Baseline | None, counts: Groups) -> list[Difference]:
    """Compare every row of the groups in `counts`, including rows that only the baseline has."""
    found = []
    for group, rows in counts.items():
        old = baseline.groups.get(group, {}) if baseline is not None else {}
        for row in dict.fromkeys([*rows, *old]):
            found.append(Difference(group, row, old.get(row), rows.get(row)))
    return found


def table(differences: list[Difference], percent_max: float) -> str:
    """The rows as text, one a line; worse ones are marked."""
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
