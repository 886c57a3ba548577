"""CPython's event-loop tests pass on both backends, but for what exceptions.py lists."""

from __future__ import annotations

from functools import cache

import pytest

from tests.conformance.compare import count, differences
from tests.conformance.exceptions import EXCEPTIONS
from tests.conformance.runner import Result, run_group
from tests.conformance.suites import GROUPS

pytest.importorskip("test.test_asyncio", reason="this CPython comes without its own tests")

ESSENTIAL = [group.name for group in GROUPS if group.essential]


@cache
def stock(group: str) -> dict[str, Result]:
    """Stock asyncio's results, once for all backends."""
    return run_group(group, "asyncio")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("backend", ["uring", "epoll"])
@pytest.mark.parametrize("group", ESSENTIAL)
def test_like_stock_asyncio(group: str, backend: str) -> None:
    reference = stock(group)
    # A reference that ran nothing would make every loop conform.
    assert count(reference, "pass") > 0
    found = differences(backend, run_group(group, backend), reference)
    assert not found, "\n".join(found)


def test_every_exception_has_a_reason() -> None:
    for one in EXCEPTIONS:
        assert len(one.reason.split()) >= 5, one.pattern
