"""Every CPython test in which this loop may differ from stock asyncio, each with its reason.

A listed test that passes after all fails the conformance test, so that the list stays true; `varies`
marks the few whose outcome depends on timing.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from tests.conformance.suites import python


@dataclass(frozen=True)
class Allowed:
    """Tests (a pattern over their names) that may fail or be skipped, and why."""

    pattern: str
    reason: str
    loops: tuple[str, ...] = ("uring", "epoll")
    pythons: tuple[str, ...] = ()
    """Only on these versions; on all of them if empty."""
    varies: bool = False

    def covers(self, test: str, loop: str) -> bool:
        """Whether `test` on `loop` falls under this exception."""
        return (
            loop in self.loops
            and (not self.pythons or python() in self.pythons)
            and fnmatchcase(test, self.pattern)
        )


EXCEPTIONS: tuple[Allowed, ...] = (
    Allowed(
        "test_unix_events.SelectorEventLoopUnixSockSendfileTests.test_sock_sendfile_blocking_error",
        "Looks its socket up in the loop's selector; this loop has none.",
    ),
    Allowed(
        "test_base_events.BaseEventLoopWithSelectorTests.test_create_connection_bluetooth",
        "Hands sock_connect() a mock in place of a socket and a tuple in place of a host name.",
    ),
    Allowed(
        "test_futures2.CFutureTests.test_task_exc_handler_correct_context",
        "Known gap: the exception handler does not run in the failed task's context.",
        pythons=("3.12", "3.13"),
    ),
    Allowed(
        "test_futures2.PyFutureTests.test_task_exc_handler_correct_context",
        "Known gap: the exception handler does not run in the failed task's context.",
    ),
)


def allowed(test: str, loop: str) -> Allowed | None:
    """The exception that covers `test` on `loop`, or None."""
    return next((one for one in EXCEPTIONS if one.covers(test, loop)), None)
