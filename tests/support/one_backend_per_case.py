"""One backend for each case: the option ``--backends-in-turn``.

``make test`` gives it, and ``make test-all`` does on interpreters other than the default one.

Tests with the marker ``either_backend`` run on io_uring and on epoll, although they test code above the
driver: frames, fields, limits, logs, options. With the option each of their cases runs on one of the two;
cases of one test take them in turn, so that both run a half. Without it, as in ``make test-all`` on the
default interpreter, every case runs on both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

import pytest

BACKENDS = ("uring", "epoll")
MARKER = "either_backend"


def split(items: Iterable[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Returns the tests that run, and those that the option leaves out."""
    cases = [(item, _Case.of(item)) for item in items]
    runnable = {
        (case.test, case.others, case.backend)
        for item, case in cases
        if case is not None and not item.get_closest_marker("skip")
    }
    turns: dict[str, dict[str, int]] = {}
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item, case in cases:
        # A machine without io_uring, and interpreters on which one backend is tested, keep what they have.
        if case is None or any(
            (case.test, case.others, backend) not in runnable for backend in BACKENDS
        ):
            kept.append(item)
            continue
        numbers = turns.setdefault(case.shares_turns_with, {})
        number = numbers.setdefault(case.group, len(numbers))
        # A test with one case has a turn that depends on its name.
        first = crc32(case.shares_turns_with.encode())
        chosen = BACKENDS[(number + first) % len(BACKENDS)]
        (kept if case.backend == chosen else left_out).append(item)
    return kept, left_out


@dataclass(frozen=True)
class _Case:
    """A marked test's case on one backend."""

    test: str
    backend: str
    others: str
    """The other parameters."""
    group: str
    """Cases of one group run on one backend: those of a file with one value of the parameter that the marker
    names, as they share a server."""
    shares_turns_with: str
    """The test, or the file if it has groups."""

    @classmethod
    def of(cls, item: pytest.Item) -> _Case | None:
        """The case, or None for a test without the marker or without a backend."""
        marker = item.get_closest_marker(MARKER)
        parameters = getattr(item, "callspec", None)
        if marker is None or parameters is None:
            return None
        backend = next((value for value in parameters.params.values() if value in BACKENDS), None)
        if backend is None:
            return None
        others = "-".join(part for part in parameters.id.split("-") if part != backend)
        test = item.nodeid.partition("[")[0]
        if not marker.args:
            return cls(test, backend, others, others, test)
        group = str(parameters.params.get(marker.args[0]))
        return cls(test, backend, others, group, test.partition("::")[0])
