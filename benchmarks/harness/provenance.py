"""The machines and interpreters of the tables, as the pages show them.

`machine.py` reads the facts from the machine; this module formats them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.harness.environment import GUIDED

# Tables may be compared with each other if these facts are equal.
HARDWARE = ("processor", "cores", "memory_gib", "virtual", "kernel")

WARM = "warm"
"""The state of the servers' heaps in a result (`servers/heap.py`). Older results have no such entry."""


def tables(results: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    """One table for each machine in `results`, pairs of a title and its machine: every version on that
    machine, and the titles of its tables."""
    kinds: dict[tuple[Any, ...], list[tuple[str, dict[str, Any]]]] = {}
    for title, machine in results:
        hardware = tuple(machine[name] for name in HARDWARE)
        kinds.setdefault(hardware, []).append((title, machine))
    return [
        _table([machine for _, machine in group], list(dict.fromkeys(title for title, _ in group)))
        for group in kinds.values()
    ]


def by_area(areas: Sequence[tuple[str, Sequence[tuple[str, dict[str, Any]]]]]) -> list[str]:
    """One table of all machines, with the tables of each.

    An area's title means all of its tables. If a machine has most of them, the row names the others.
    """
    machines: dict[tuple[Any, ...], list[str]] = {}
    pythons: dict[tuple[Any, ...], list[str]] = {}
    for area, taken in areas:
        titles: dict[tuple[Any, ...], list[str]] = {}
        for title, machine in taken:
            hardware = tuple(machine[name] for name in HARDWARE)
            titles.setdefault(hardware, []).append(title)
            pythons.setdefault(hardware, []).append(machine["python"])
        for hardware, found in titles.items():
            missing = [title for title, _ in taken if title not in found]
            machines.setdefault(hardware, []).append(_named(area, found, missing))
    lines = ["| machine | kernel | CPython | its tables |", "| --- | --- | --- | --- |"]
    for hardware, named in machines.items():
        processor, cores, memory, virtual, kernel = hardware
        shared = ", virtual and shared" if virtual else ""
        versions = " and ".join(_distinct(pythons[hardware]))
        lines.append(
            f"| {processor}, {cores} cores, {memory} GiB{shared} | Linux {kernel} | {versions} "
            f"| {'<br>'.join(named)} |"
        )
    return [*lines, ""]


def _named(area: str, found: list[str], missing: list[str]) -> str:
    """The tables of an area on one machine."""

    def short(titles: list[str]) -> str:
        return "; ".join(title.removeprefix(f"{area.split()[0]} ") for title in titles)

    if not missing:
        return f"**{area}**"
    if len(missing) < len(found):
        return f"**{area}**, all but {short(missing)}"
    return f"**{area}**: {short(found)}"


def stamp(machine: dict[str, Any]) -> str:
    """The interpreter of a table's Python peers, its date and its commit."""
    told = f"CPython {machine['python']}, {machine['taken']}, commit {machine['commit']}"
    return told + _unlike_others([machine])


def stamps(machines: Sequence[dict[str, Any]]) -> str:
    """Like `stamp`, for a table of several results."""
    commits = list(dict.fromkeys(machine["commit"] for machine in machines))
    dates = sorted(machine["taken"] for machine in machines)
    pythons = " and ".join(_distinct(machine["python"] for machine in machines))
    told = f"CPython {pythons}, {dates[0]} to {dates[-1]}, commit {' and '.join(commits)}"
    return told + _unlike_others(machines)


def _unlike_others(machines: Sequence[dict[str, Any]]) -> str:
    """The differences from a released build and from servers that had freed a large block."""
    guided = [machine.get("profile") == GUIDED for machine in machines]
    warm = [machine.get("heap") == WARM for machine in machines]
    return _unless(guided, "without a profile") + _unless(warm, "with cold heaps")


def _unless(usual: Sequence[bool], text: str) -> str:
    if all(usual):
        return ""
    return f", some {text}" if any(usual) else f", {text}"


def _table(group: list[dict[str, Any]], titles: list[str]) -> str:
    first = group[0]
    virtual = ", virtual and shared: expect noise" if first["virtual"] else ""
    pythons = _distinct(machine["python"] for machine in group)
    each = "" if len(pythons) == 1 else " (see each table)"
    return "\n".join(
        [
            "| machine | |",
            "| --- | --- |",
            f"| processor | {first['processor']}, {first['cores']} cores, "
            f"{first['memory_gib']} GiB{virtual} |",
            f"| kernel | Linux {first['kernel']} |",
            f"| Python | CPython {' and '.join(pythons)}{each} |",
            f"| packages | {_versions(machine['versions'] for machine in group)} |",
            f"| crates | {_versions(machine['native_versions'] for machine in group)} |",
            f"| its tables | {'; '.join(titles)} |",
            "",
        ]
    )


def _versions(found: Iterable[dict[str, str]]) -> str:
    """Every package once, with each of its versions."""
    versions: dict[str, list[str]] = {}
    for machine in found:
        for name, version in machine.items():
            if version not in versions.setdefault(name, []):
                versions[name].append(version)
    return ", ".join(f"{name} {' and '.join(all_)}" for name, all_ in versions.items())


def _distinct(values: Iterable[str]) -> list[str]:
    """Versions in their order, each once."""
    return sorted(set(values), key=lambda text: [int(part) for part in text.split(".")])
