"""Every CPython test in which this loop may differ from stock asyncio, each with its reason.

A listed test that passes after all fails the conformance test, so that the list stays true; `varies`
marks the few whose outcome depends on timing.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Allowed:
    """Tests (a pattern over their names) that may fail or be skipped, and why."""

    pattern: str
    reason: str
    loops: tuple[str, ...] = ("uring", "epoll")
    varies: bool = False

    def covers(self, test: str, loop: str) -> bool:
        """Whether `test` on `loop` falls under this exception."""
        return loop in self.loops and fnmatchcase(test, self.pattern)


EXCEPTIONS: tuple[Allowed, ...] = ()


def allowed(test: str, loop: str) -> Allowed | None:
    """The exception that covers `test` on `loop`, or None."""
    return next((one for one in EXCEPTIONS if one.covers(test, loop)), None)
