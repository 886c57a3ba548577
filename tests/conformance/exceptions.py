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
    """Tests (a pattern over their names) that may fail or be skipped, with the reason."""

    pattern: str
    reason: str
    loops: tuple[str, ...] = ("uring", "epoll")
    pythons: tuple[str, ...] = ()
    """The CPython versions with this exception; empty for all."""
    varies: bool = False

    def covers(self, test: str, loop: str) -> bool:
        """Return true if this exception covers `test` on `loop`."""
        return (
            loop in self.loops
            and (not self.pythons or python() in self.pythons)
            and fnmatchcase(test, self.pattern)
        )


EXCEPTIONS: tuple[Allowed, ...] = (
    Allowed(
        "test_sslproto.SelectorStartTLSTests.test_create_connection_ssl_failed_certificate_no_cycles",
        "Wraps a method of asyncio's SSLProtocol, which makes no connections here.",
        pythons=("3.14", "3.15"),
    ),
    Allowed(
        "test_subprocess.SubprocessThreadedWatcherTests.test_pid_not_reaped_before_exit_published",
        "Looks into asyncio's own watcher for its threads. What it is about, a child that is waited for "
        "on the loop alone, holds here too.",
        pythons=("3.14", "3.15"),
    ),
)


def allowed(test: str, loop: str) -> Allowed | None:
    """The exception that covers `test` on `loop`, or None."""
    return next((one for one in EXCEPTIONS if one.covers(test, loop)), None)
