"""`python -m tests.conformance`: run groups on several loops and print a table."""

from __future__ import annotations

import argparse
import sys

from tests.conformance.compare import count, differences
from tests.conformance.exceptions import allowed
from tests.conformance.runner import TEST_SECONDS, Result, run_group
from tests.conformance.suites import GROUPS, LOOPS, python

COLUMNS = ("pass", "fail", "skip", "hang", "crash")


def main() -> int:
    """Run what the command line asks for; status 1 where a loop differs from stock asyncio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", help="group names; the essential ones if none")
    parser.add_argument("--all", action="store_true", help="every group")
    parser.add_argument("--loops", nargs="*", default=[name for name in LOOPS if name != "asyncio"])
    parser.add_argument("--test-seconds", type=float, default=TEST_SECONDS)
    parser.add_argument("-v", "--verbose", action="store_true", help="tracebacks of differences")
    options = parser.parse_args()
    known = {one.name: one for one in GROUPS}
    unknown = sorted(set(options.groups) - set(known))
    if unknown:
        parser.error(f"no group is called {unknown[0]!r}; there are {', '.join(known)}")
    chosen = options.groups or [one.name for one in GROUPS if options.all or one.essential]
    print(f"CPython {python()}")
    print(f"{'group':16}{'loop':10}" + "".join(f"{column:>7}" for column in COLUMNS))
    wrong: list[str] = []
    for name in chosen:
        stock = run_group(name, "asyncio", test_seconds=options.test_seconds)
        _row(name, "asyncio", stock)
        for loop in options.loops:
            ours = run_group(name, loop, test_seconds=options.test_seconds)
            _row(name, loop, ours)
            found = differences(loop, ours, stock)
            wrong.extend(found if options.verbose else [line.splitlines()[0] for line in found])
    for line in wrong:
        print(line)
    return 1 if wrong else 0


def _row(group: str, loop: str, results: dict[str, Result]) -> None:
    cells = "".join(f"{count(results, column):>7}" for column in COLUMNS)
    excused = sum(allowed(name, loop) is not None for name in results)
    seconds = sum(result.seconds for result in results.values())
    note = f"  ({excused} listed)" if excused else ""
    print(f"{group:16}{loop:10}{cells}   {seconds:6.1f} s{note}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
