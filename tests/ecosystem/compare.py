"""Our results held against stock asyncio's of the same run and the list of exceptions."""

from __future__ import annotations

from tests.ecosystem.exceptions import allowed
from tests.ecosystem.runner import BAD, Result

Results = dict[str, Result]


def differences(project: str, loop: str, ours: Results, stock: Results) -> dict[str, str]:
    """The tests that are worse on `loop` than on stock asyncio, each with what happened.

    A test that stock asyncio does not pass on this machine proves nothing either way. One that stock
    passes and we skip is a difference: a skip must not hide a gap.
    """
    found = {}
    for name in sorted({*stock, *ours}):
        reference, result = stock.get(name), ours.get(name)
        if reference is None:
            # A crash at the end, a module that cannot be imported: stock has no such result.
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
    """What speaks against these results having been got on our loop; empty when nothing does."""
    lines = []
    if not sum(result.turns for result in ours.values()):
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
    """How many results have one of these statuses."""
    return sum(result.status in statuses for result in results.values())


def flaky(results: Results) -> list[str]:
    """The tests that passed only when they were run again."""
    return sorted(
        name for name, one in results.items() if one.status == "pass" and one.attempts > 1
    )
