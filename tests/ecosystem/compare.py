"""Compares our results with stock asyncio's in this run and with the list of exceptions."""

from __future__ import annotations

from tests.ecosystem.exceptions import allowed
from tests.ecosystem.suite_processes import BAD, Result

Results = dict[str, Result]


def differences(project: str, loop: str, ours: Results, stock: Results) -> dict[str, str]:
    """Return the tests that are worse on `loop` than on stock asyncio, each with its result.

    A test that stock asyncio does not pass on this machine proves nothing either way. A test that
    stock passes and we skip is a difference: a skip must not hide a gap.
    """
    found = {}
    for name in sorted({*stock, *ours}):
        reference, result = stock.get(name), ours.get(name)
        if reference is None:
            # Stock has no result for a crash at the end, or for a module that cannot be imported.
            if result is not None and result.status in BAD:
                found[name] = f"{result.status}: {result.reason}"
        elif reference.status == "pass":
            listed = allowed(project, name, loop)
            if result is None:
                found[name] = "did not run"
            elif result.status != "pass" and listed is None:
                found[name] = f"{result.status}: {result.reason}"
            elif result.status == "pass" and listed is not None and not listed.varies:
                found[name] = "passes after all; strike it from exceptions.py"
    return found


def unproved(ours: Results, stock: Results) -> list[str]:
    """Return the evidence that these results did not come from our loop; empty if none exists.

    A suite that runs no loop on stock asyncio, because it tests a protocol without I/O, has nothing to prove.
    """
    lines = []
    runs_loops = any(result.runs for result in stock.values())
    if runs_loops and not sum(result.turns for result in ours.values()):
        lines.append("not one turn was run on our loop")
    elsewhere = [
        name
        for name, result in ours.items()
        if result.status == "pass" and not result.runs and (one := stock.get(name)) and one.runs
    ]
    if elsewhere:
        lines.append(f"{len(elsewhere)} tests did not start our loop, like {elsewhere[0]}")
    return lines


def count(results: Results, *statuses: str) -> int:
    """Return the number of results with one of these statuses."""
    return sum(result.status in statuses for result in results.values())


def flaky(results: Results) -> list[str]:
    """Return the tests that passed only on a second run."""
    return sorted(
        name for name, one in results.items() if one.status == "pass" and one.attempts > 1
    )
