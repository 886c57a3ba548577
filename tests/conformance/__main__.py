"""`python -m tests.conformance`: run groups on several loops, print a table, report every
difference.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.conformance.compare import count, differences, run_ours
from tests.conformance.exceptions import EXCEPTIONS, allowed
from tests.conformance.suite_processes import TEST_SECONDS, Result, run_group
from tests.conformance.suites import CI, LOOPS, groups, python
from tests.support import inherited_signals

COLUMNS = ("pass", "fail", "skip", "hang", "crash")


def main() -> int:
    """Run the groups of the command line; status 1 if a loop differs from stock asyncio."""
    options = _arguments()
    inherited_signals.restore()
    print(f"CPython {python()}")
    print(f"{'group':20}{'loop':10}" + "".join(f"{column:>7}" for column in COLUMNS))
    wrong: list[str] = []
    totals = {loop: dict.fromkeys(COLUMNS, 0) for loop in ("asyncio", *options.loops)}
    listed: dict[str, set[str]] = {loop: set() for loop in options.loops}
    for name in options.groups:
        only = [f"*{pattern}*" for pattern in options.k]
        stock = run_group(name, "asyncio", only=only, test_seconds=options.test_seconds)
        _row(name, "asyncio", stock, totals["asyncio"])
        for loop in options.loops:
            ours = run_ours(name, loop, only=only, test_seconds=options.test_seconds)
            _row(name, loop, ours, totals[loop])
            # Listed tests that stock asyncio passes: the cost of the list.
            listed[loop] |= {
                test
                for test, result in ours.items()
                if result.status != "pass" and allowed(test, loop) and stock[test].status == "pass"
            }
            found = differences(loop, ours, stock)
            wrong.extend(found if options.verbose else [text.splitlines()[0] for text in found])
    for line in wrong:
        print(line)
    if options.json:
        report = {
            "python": python(),
            "totals": totals,
            "listed": {loop: sorted(tests) for loop, tests in listed.items()},
            "exceptions": sorted(_used(listed)),
            "differences": [text.splitlines()[0] for text in wrong],
        }
        options.json.write_text(json.dumps(report, indent=1))
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    known = groups()
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("groups", nargs="*", help="group names; those that CI runs if none")
    parser.add_argument("--all", action="store_true", help="every group")
    parser.add_argument("--loops", nargs="*", default=[one for one in LOOPS if one != "asyncio"])
    parser.add_argument(
        "-k", nargs="*", default=[], help="only tests with one of these in the name"
    )
    parser.add_argument("--test-seconds", type=float, default=TEST_SECONDS)
    parser.add_argument("--json", type=Path, help="write a report for tests.conformance.table here")
    parser.add_argument("-v", "--verbose", action="store_true", help="tracebacks of differences")
    options = parser.parse_args()
    unknown = sorted(set(options.groups) - set(known))
    if unknown:
        parser.error(f"no group is called {unknown[0]!r}; there are {', '.join(known)}")
    if not options.groups:
        options.groups = [name for name in known if options.all or name in CI]
    return options


def _row(group: str, loop: str, results: dict[str, Result], total: dict[str, int]) -> None:
    for column in COLUMNS:
        total[column] += count(results, column)
    cells = "".join(f"{count(results, column):>7}" for column in COLUMNS)
    seconds = sum(result.seconds for result in results.values())
    print(f"{group:20}{loop:10}{cells}   {seconds:6.1f} s", flush=True)


def _used(listed: dict[str, set[str]]) -> set[str]:
    """The patterns of exceptions.py that this run needed."""
    needed = [allowed(test, loop) for loop, tests in listed.items() for test in tests]
    return {one.pattern for one in EXCEPTIONS if one in needed}


if __name__ == "__main__":
    sys.exit(main())
