"""CPython's event-loop tests pass on both backends, except those in exceptions.py."""

from __future__ import annotations

import pytest

from tests.conformance.compare import count, differences, in_question, run_ours
from tests.conformance.exceptions import EXCEPTIONS
from tests.conformance.suite_processes import run_group
from tests.conformance.suites import CI, LEFT_OUT, groups
from tests.server.conftest import every_backend
from tests.support.interpreter_roles import is_default_interpreter

pytest.importorskip("test.test_asyncio", reason="this CPython comes without its own tests")

# Below the driver no code depends on the interpreter. `make test-conformance` runs both everywhere.
_BACKENDS = every_backend() if is_default_interpreter() else every_backend()[:1]


@pytest.mark.timeout(900)
@pytest.mark.either_backend
@pytest.mark.parametrize("backend", _BACKENDS)
@pytest.mark.parametrize("group", [name for name in groups() if name in CI])
def test_like_stock_asyncio(group: str, backend: str) -> None:
    ours = run_ours(group, backend)
    # A group that ran no test would conform.
    assert count(ours, "pass") > 0
    # Stock asyncio runs only the tests that do not pass here: its other passes prove nothing more.
    doubtful = in_question(ours)
    stock = run_group(group, "asyncio", only=doubtful) if doubtful else {}
    found = differences(backend, ours, stock)
    assert not found, "\n".join(found)


def test_every_exception_has_a_reason() -> None:
    for pattern, reason in [*LEFT_OUT.items(), *((one.pattern, one.reason) for one in EXCEPTIONS)]:
        assert len(reason.split()) >= 3, pattern
