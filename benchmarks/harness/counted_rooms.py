"""The counted instructions by crate: the parts of sampling.py, by the names in callgrind's files.

An inlined function is assigned by its file, like a sample. Code in Rust's library counts as "collections",
because callgrind does not record its caller there. The kernel is not counted.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median

from benchmarks.harness.callgrind import Mark
from benchmarks.harness.code_origin import owner
from benchmarks.harness.sampling import ALLOCATION, COPY, CRATES, ROOMS

Rooms = Mapping[str, float]
"""Instructions by part."""

# An object, a file or a function: of the next counted costs, or (with a c) of the called function. A name
# is given where its number is used for the first time.
_NAMED = re.compile(r"^(c?)(ob|fl|fi|fe|fn)=\((\d+)\)(?: (.*))?$")
_COST = re.compile(r"^[+\-*\d]\S* (\d+)$")
KINDS = {"ob": "object", "fl": "file", "fi": "file", "fe": "file", "fn": "function"}


def rooms(text: str) -> Counter[str]:
    """The instructions of one of callgrind's files, by part."""
    found: Counter[str] = Counter()
    known: dict[tuple[str, str, str], str] = {}
    for place, cost in _costs(text):
        room = known.get(place)
        if room is None:
            room = known[place] = _room(*place)
        found[room] += cost
    return found


def per_unit(texts: Iterable[str]) -> dict[str, Rooms]:
    """The cost of one unit, by row and part, from files in pairs as in `callgrind.per_unit`."""
    marked = [(mark, text) for text in texts if (mark := Mark.read(text)) is not None]
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (few, short), (many, long) in zip(marked[::2], marked[1::2], strict=True):
        before, after = rooms(short), rooms(long)
        for room in ROOMS:
            difference = (after[room] - before[room]) / (many.count - few.count)
            found[few.row][room].append(difference)
    return {
        row: {room: median(values) for room, values in shares.items() if any(values)}
        for row, shares in found.items()
    }


def table(rows: Mapping[str, Rooms]) -> str:
    """The parts of each row as text, the largest first."""
    lines = []
    for row, shares in rows.items():
        whole = sum(shares.values())
        lines.append(f"{row}: {whole:,.0f} instructions")
        for room, number in sorted(shares.items(), key=lambda item: -item[1]):
            lines.append(f"  {room:16} {number:10,.0f} {number / whole:7.1%}")
    return "\n".join(lines)


def _costs(text: str) -> Iterator[tuple[tuple[str, str, str], int]]:
    """Object, file and function of each counted cost, and its instructions."""
    names: dict[tuple[str, str], str] = {}
    here = {"object": "", "file": "", "function": ""}
    skips = False
    for line in text.splitlines():
        if cost := _COST.match(line):
            # The cost of a call is counted in the called function.
            if not skips:
                yield (here["object"], here["file"], here["function"]), int(cost[1])
            skips = False
        elif named := _NAMED.match(line):
            called, kind, number, name = named.groups()
            kind = KINDS[kind]
            if name is not None:
                names[kind, number] = name
            if not called:
                here[kind] = names[kind, number]
        else:
            skips = line.startswith("calls=")


def _room(binary: str, file: str, function: str) -> str:
    name = Path(binary).name
    if name.startswith("_uringcore"):
        return CRATES.get(owner([file]), "other")
    if name.startswith(("libpython", "python")):
        return "CPython"
    if COPY.search(function):
        return "copies"
    if ALLOCATION.search(function):
        return "allocation"
    return "other"
