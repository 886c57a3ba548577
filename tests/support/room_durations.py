"""The duration of each room's tests: the columns of tests/README.md, from pytest's JUnit files.

    python -m pytest -n 3 --junitxml=loop.xml tests/loop
    python -m tests.support.room_durations loop.xml
    python -m tests.support.room_durations --slowest 20 loop.xml
    python -m tests.support.room_durations --write loop.xml       # into the rows of these rooms

The seconds are the sum over the tests, fixtures included; a run on several processes takes less.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "tests" / "README.md"


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
        # Reports of runs on several processes may have nameless ones.
        if one.get("classname")
    ]


def _module(classname: str) -> str:
    """The file's module: test classes have a name behind it."""
    parts = classname.split(".")
    while len(parts) > 1 and not (ROOT / Path(*parts)).with_suffix(".py").exists():
        parts.pop()
    return ".".join(parts)


@dataclass(frozen=True)
class Room:
    """The sums over the tests of one room."""

    tests: int
    skipped: int
    seconds: float


def rooms(cases: list[Case]) -> dict[str, Room]:
    """The rooms by name."""
    found: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        found[case.room].append(case)
    return {
        name: Room(len(own), sum(one.skipped for one in own), sum(one.seconds for one in own))
        for name, own in sorted(found.items())
    }


def written(page: str, found: dict[str, Room]) -> str:
    """The page with the figures of these rooms; the others' stay."""
    for name, room in found.items():
        row = re.compile(rf"^(\| \[`{name}`\]\({name}\)) \| [\d,]+ \| [\d,]+ \|", re.MULTILINE)
        page = row.sub(rf"\1 | {room.tests:,} | {max(room.seconds, 1):,.0f} |", page)
    return page


def main() -> None:
    """Parse the command line, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("reports", nargs="+", type=Path)
    parser.add_argument("--slowest", type=int, metavar="COUNT", help="list tests instead")
    parser.add_argument(
        "--write", action="store_true", help="write the figures into tests/README.md"
    )
    options = parser.parse_args()
    cases = read(options.reports)
    if options.slowest is None:
        found = rooms(cases)
        for name, room in found.items():
            print(f"{name:14} {room.tests:6} tests {room.skipped:5} skipped {room.seconds:8.0f} s")
        if options.write:
            PAGE.write_text(written(PAGE.read_text(), found))
        return
    for case in sorted(cases, key=lambda case: -case.seconds)[: options.slowest]:
        print(f"{case.seconds:8.2f} s  {case.module.replace('.', '/')}.py::{case.name}")


if __name__ == "__main__":
    main()
