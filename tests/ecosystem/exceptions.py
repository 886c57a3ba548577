"""Every test of another project in which this loop may differ from stock asyncio, with its reason.

A listed test that passes after all fails the run, so that the list stays true; `varies` marks the few
whose outcome depends on timing.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Allowed:
    """Tests of a project (a pattern over their names) that may fail or be skipped, and why."""

    project: str
    pattern: str
    reason: str
    loops: tuple[str, ...] = ("uring", "epoll")
    varies: bool = False

    def covers(self, project: str, test: str, loop: str) -> bool:
        """Whether `test` of `project` on `loop` falls under this exception."""
        return project == self.project and loop in self.loops and fnmatchcase(test, self.pattern)


EXCEPTIONS: tuple[Allowed, ...] = (
    *(
        Allowed(
            "anyio",
            f"tests/test_pytest_plugin.py::{name}*",
            "Gives a pytest process of its own, which runs stock asyncio, three seconds to start and end: "
            "too few on a busy machine, whatever the loop of the outer test.",
            varies=True,
        )
        for name in (
            "test_keyboardinterrupt_during_test",
            "test_dynamic_async_fixture_access_does_not_hang",
        )
    ),
)


def allowed(project: str, test: str, loop: str) -> Allowed | None:
    """The exception that covers `test` of `project` on `loop`, or None."""
    return next((one for one in EXCEPTIONS if one.covers(project, test, loop)), None)
