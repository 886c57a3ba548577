"""Compares our results with stock asyncio's on this interpreter and with the list of exceptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.conformance.exceptions import allowed
from tests.conformance.suite_processes import TEST_SECONDS, Result, run_group


def in_question(ours: Mapping[str, Result]) -> list[str]:
    """The tests to run on stock asyncio too: those that we do not pass."""
    return [name for name, result in ours.items() if result.status != "pass"]


def run_ours(
    group: str, loop: str, *, only: Sequence[str] = (), test_seconds: float = TEST_SECONDS
) -> dict[str, Result]:
    """Like `run_group`; tests that failed and are not listed run once more.

    CPython's tests depend on the clock, which continues on a busy machine: only a test that fails
    twice is a difference. A hang or a crash is one at once.
    """
    ours = run_group(group, loop, only=only, test_seconds=test_seconds)
    failed = [name for name, result in ours.items() if result.status == "fail"]
    if again := [name for name in failed if allowed(name, loop) is None]:
        ours |= run_group(group, loop, only=again, test_seconds=test_seconds)
    return ours


def differences(loop: str, ours: Mapping[str, Result], stock: Mapping[str, Result]) -> list[str]:
    """Return the differences in `ours`, an entry each with a summary as its first line: empty when
    the loop conforms.

    `stock` has the results of all tests, or at least of those `in_question`. A test that stock
    asyncio does not pass on this machine proves nothing either way. A test that stock passes and we
    skip is a difference: a skip must not hide a gap.
    """
    found = [f"{name}: did not run on {loop}" for name in stock if name not in ours]
    for name, result in ours.items():
        exception = allowed(name, loop)
        if result.status == "pass":
            if exception is not None and not exception.varies:
                found.append(f"{name}: passes on {loop}; strike it from exceptions.py")
        elif exception is None and stock[name].status == "pass":
            found.append(f"{name}: {result.status} on {loop}: {result.reason}\n{result.detail}")
    return found


def count(results: Mapping[str, Result], status: str) -> int:
    """Return the number of results with this status."""
    return sum(result.status == status for result in results.values())
