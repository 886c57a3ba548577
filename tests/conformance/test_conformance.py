"""CPython's event-loop tests pass on both backends, except those in exceptions.py."""

from __future__ import annotations

import pytest

from tests.conformance.compare import count, differences, in_question, run_ours
from tests.conformance.exceptions import EXCEPTIONS
from tests.conformance.suite_processes import run_group
from tests.conformance.suites import CI, LEFT_OUT, groups
from tests.loop.harness import BACKENDS
from tests.support.interpreter_roles import is_default_interpreter

pytest.importorskip("test.test_asyncio", reason="this CPython comes without its own tests")


@pytest.mark.timeout(900)
@pytest.mark.either_backend
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("group", [name for name in groups() if name in CI])
def test_like_stock_asyncio(group: str, backend: str) -> None:
    if backend != BACKENDS[0] and not is_default_interpreter():
        # Below the driver no code depends on the interpreter. `make test-conformance` runs all of
        # it.
        pytest.skip("the second backend is tested on the default interpreter")
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
