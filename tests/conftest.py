"""What holds for every room's tests. Fixtures are in the rooms' own conftest.py."""

from __future__ import annotations

import gc

import pytest

from tests.support import interpreter


def pytest_configure() -> None:
    """Before the processes that run the tests are started, which inherit the answer."""
    interpreter.ask_once()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Thousands of collected tests and the modules they import stay to the end of the run. Many tests
    collect garbage, some a dozen times, and need not walk through all that each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _little_to_walk_through() -> None:
    """What earlier files have left alive, reports of their tests above all, isn't walked through either."""
    gc.collect()
    gc.freeze()
