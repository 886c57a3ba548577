"""Our results held against stock asyncio's of the same run and the list of exceptions."""

from __future__ import annotations

from tests.conformance.exceptions import allowed
from tests.conformance.runner import Result

GOOD = ("pass", "skip")


def differences(loop: str, ours: dict[str, Result], stock: dict[str, Result]) -> list[str]:
    """What is wrong with `ours`, a line each: empty when the loop conforms.

    A test that stock asyncio does not pass on this machine proves nothing either way. One that stock
    passes and we skip is a difference: a skip must not hide a gap.
    """
    lines = []
    for name, reference in stock.items():
        result = ours.get(name)
        if result is None:
            lines.append(f"{name}: did not run on {loop}")
            continue
        if reference.status != "pass":
            continue
        exception = allowed(name, loop)
        if result.status == "pass":
            if exception is not None and not exception.varies:
                lines.append(f"{name}: passes on {loop}; strike it from exceptions.py")
        elif exception is None:
            lines.append(f"{name}: {result.status} on {loop}: {result.reason}\n{result.detail}")
    return lines


def count(results: dict[str, Result], status: str) -> int:
    """How many results have this status."""
    return sum(result.status == status for result in results.values())
