"""How long each room's tests took: the columns of tests/README.md, from pytest's JUnit files.

    python -m pytest -n 3 --junitxml=loop.xml tests/loop
    python -m tests.support.durations loop.xml
    python -m tests.support.durations --slowest 20 loop.xml

Seconds are those of the tests, fixtures included, added up; a run on several processes takes less.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Case:
    """One test of a report."""

    module: str
    name: str
    seconds: float
    skipped: bool

    @property
    def room(self) -> str:
        """The folder of its file below `tests`, without the folders of a room."""
        return self.module.split(".")[1]


def read(files: Iterable[Path]) -> list[Case]:
    """The tests of some reports."""
    return [
        Case(
            _module(one.get("classname", "")),
            one.get("name", ""),
            float(one.get("time", 0)),
            one.find("skipped") is not None,
        )
        for file in files
        for one in ElementTree.parse(file).iter("testcase")
    ]


def _module(classname: str) -> str:
    """The file's module: test classes have a name behind it."""
    parts = classname.split(".")
    while len(parts) > 1 and not (ROOT / Path(*parts)).with_suffix(".py").exists():
        parts.pop()
    return ".".join(parts)


def table(cases: list[Case]) -> list[str]:
    """A line for each room: its tests, how many were skipped, its seconds."""
    rooms: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        rooms[case.room].append(case)
    return [
        f"{room:14} {len(found):6} tests {sum(case.skipped for case in found):5} skipped "
        f"{sum(case.seconds for case in found):8.0f} s"
        for room, found in sorted(rooms.items())
    ]


def main() -> None:
    """Parse the command line, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("reports", nargs="+", type=Path)
    parser.add_argument("--slowest", type=int, metavar="COUNT", help="list tests instead")
    options = parser.parse_args()
    cases = read(options.reports)
    if options.slowest is None:
        print("\n".join(table(cases)))
        return
    for case in sorted(cases, key=lambda case: -case.seconds)[: options.slowest]:
        print(f"{case.seconds:8.2f} s  {case.module.replace('.', '/')}.py::{case.name}")


if __name__ == "__main__":
    main()
