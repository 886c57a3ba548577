#!/usr/bin/env python3
"""Count the machine instructions of the hot paths and compare them with the committed counts.

    python -m benchmarks.instructions            status 1 if a row has more than 5 % more
    python -m benchmarks.instructions --record   make these counts the baseline of this CPython version
    python -m benchmarks.instructions --groups uringcore-uring uvloop asyncio
    python -m benchmarks.instructions --rooms --groups h3   the counts by crate: quinn-proto, ours, ...
    python -m benchmarks.instructions --sends --groups h3   how often the rows send, with valgrind and without

It runs the uringcore that is installed beside the interpreter (`make bench-instructions` builds a release
for it), or the package in `--pythonpath`. Valgrind counts instructions, so a loss shows on a busy machine
too; it does not count time, the kernel's part or cache misses.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import callgrind, counted_rooms, instructions, machine
from benchmarks.harness.environment import ROOT, profile_of
from benchmarks.harness.instructions import Baseline, Build
from benchmarks.programs.counted import DEFAULT_GROUPS, GROUPS

WORSE, CANNOT = 1, 2
ASK = """
import json, sys, uringcore
print(json.dumps([sys.executable, sys.prefix, sys.version, uringcore.__file__]))
"""


def main() -> int:
    """Parse the command line, count, compare or record."""
    options = _options()
    reason = callgrind.unavailable()
    if reason is not None:
        return _cannot(reason)
    variables = {"PYTHONPATH": str(options.pythonpath.resolve()) if options.pythonpath else ""}
    try:
        python, build, package = _ask(options, variables)
    except subprocess.CalledProcessError as error:
        return _cannot(f"{options.python} has no uringcore: {error.stderr.strip()}")
    print(f"CPython {build.version}, {package.parent}, profile {build.profile}", flush=True)
    baseline = instructions.load(instructions.PATH, build.version)
    if options.sends:
        return _show_sends(python, variables, options.groups or DEFAULT_GROUPS)
    if options.rooms:
        return _show_rooms(python, variables, options.groups or DEFAULT_GROUPS)
    if not options.record:
        reason = _incomparable(baseline, build)
        if reason is not None:
            return _cannot(reason)
    counts = {}
    for group in options.groups or DEFAULT_GROUPS:
        print(f"counting {group}", flush=True)
        try:
            counts[group] = callgrind.count(python, variables, group)
        except callgrind.CountFailure as failure:
            return _cannot(f"{group}: {failure}")
    differences = instructions.compare(baseline, counts)
    print(instructions.table(differences, options.percent))
    if options.record:
        taken = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        instructions.save(instructions.PATH, build, taken, machine.commit(), counts)
        print(f"recorded in {instructions.PATH.relative_to(ROOT)}")
        return 0
    worse = sum(one.worse(options.percent) for one in differences)
    if worse:
        print(f"{worse} rows are more than {options.percent:g} % worse, or gone", file=sys.stderr)
    return WORSE if worse else 0


def _show_rooms(python: Path, variables: dict[str, str], groups: Sequence[str]) -> int:
    for group in groups:
        try:
            texts = callgrind.files(python, variables, group)
        except callgrind.CountFailure as failure:
            return _cannot(f"{group}: {failure}")
        print(counted_rooms.table(counted_rooms.per_unit(texts)), flush=True)
    return 0


def _show_sends(python: Path, variables: dict[str, str], groups: Sequence[str]) -> int:
    print(f"{'a time, without and with valgrind':50} {'system calls':>15} {'QUIC datagrams':>17}")
    for group in groups:
        try:
            pairs = callgrind.sends(python, variables, group)
        except callgrind.CountFailure as failure:
            return _cannot(f"{group}: {failure}")
        print(group, flush=True)
        # Each row's last count.
        for plain, counted in {plain.row: (plain, counted) for plain, counted in pairs}.values():
            calls = f"{plain.syscalls:.2f} {counted.syscalls:.2f}"
            datagrams = f"{plain.quic_datagrams_sent:.2f} {counted.quic_datagrams_sent:.2f}"
            print(f"  {plain.row:48} {calls:>15} {datagrams:>17}", flush=True)
    return 0


def _options() -> Any:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", action="store_true", help="make the counts the baseline")
    parser.add_argument("--rooms", action="store_true", help="only print the instructions by crate")
    parser.add_argument("--sends", action="store_true", help="only print how often the rows send")
    parser.add_argument("--percent", type=float, default=5.0, help="more than this is worse (5)")
    parser.add_argument("--groups", nargs="+", choices=GROUPS, help="only these loops, quic or h3")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="interpreter")
    parser.add_argument("--pythonpath", type=Path, help="folder with the package, if not installed")
    parser.add_argument("--profile", help="Cargo profile of the package, if its stamp has none")
    options = parser.parse_args()
    if options.record and options.groups:
        parser.error("--record takes every group: a baseline is of one build")
    return options


def _ask(options: Any, variables: dict[str, str]) -> tuple[Path, Build, Path]:
    """Return the interpreter's path, the build that the counts depend on, and the counted package's path."""
    done = subprocess.run(
        [str(options.python), "-c", ASK],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    executable, prefix, version, package = json.loads(done.stdout)
    profile = options.profile
    if profile is None and options.pythonpath is None:
        profile = profile_of(Path(prefix))
    build = Build(version, profile or "release", callgrind.version(), machine.processor())
    return Path(executable), build, Path(package)


def _incomparable(baseline: Baseline | None, build: Build) -> str | None:
    """The reason why the counts and the baseline cannot be compared, or None. Prints smaller differences."""
    if baseline is None:
        return f"there is no baseline for CPython {build.version}: --record makes one"
    if baseline.build.profile != build.profile:
        return f"the baseline is of profile {baseline.build.profile}, this build of {build.profile}"
    for name in ("interpreter", "valgrind", "processor"):
        before, now = getattr(baseline.build, name), getattr(build, name)
        if before != now:
            print(f"note: the baseline's {name} was {before}, this is {now}", flush=True)
    return None


def _cannot(reason: str) -> int:
    print(f"cannot compare: {reason}", file=sys.stderr)
    return CANNOT


if __name__ == "__main__":
    raise SystemExit(main())
