"""`python -m tests.conformance.table REPORT...`: one table of the reports of several interpreters."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.conformance.exceptions import EXCEPTIONS


def main(paths: list[str]) -> int:
    """Print the table; status 1 if a report contains a difference."""
    reports = [json.loads(Path(path).read_text()) for path in paths]
    reports.sort(key=lambda report: tuple(int(part) for part in report["python"].split(".")))
    print(f"{'CPython':10}{'loop':10}{'pass':>7}{'skip':>7}{'listed':>8}{'other':>7}")
    for report in reports:
        for loop, total in report["totals"].items():
            _row(report, loop, total)
    wrong = [f"{one['python']}: {line}" for one in reports for line in one["differences"]]
    print("\n".join(wrong) if wrong else "no difference that is not listed")
    needed = {pattern for report in reports for pattern in report["exceptions"]}
    for one in EXCEPTIONS:
        print(f"listed: {one.pattern}: {one.reason}")
        if one.pattern not in needed:
            print("  (not needed by these reports)")
    return 1 if wrong else 0


def _row(report: dict[str, Any], loop: str, total: dict[str, int]) -> None:
    listed = len(report["listed"].get(loop, ()))
    # Tests that stock asyncio does not pass either are under `other` of both.
    other = total["fail"] + total["hang"] + total["crash"] - listed
    cells = f"{total['pass']:>7}{total['skip']:>7}{listed:>8}{other:>7}"
    print(f"{report['python']:10}{loop:10}{cells}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
