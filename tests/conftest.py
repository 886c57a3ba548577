"""Hooks for the tests of every folder. The fixtures of a folder are in its own conftest.py."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import inherited_signals, interpreter_roles


def pytest_configure() -> None:
    """Before the test processes start, which inherit the answer."""
    interpreter_roles.ask_once()
    inherited_signals.restore()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Collects without garbage collection: twelve thousand tests are many objects and no garbage.

    To walk through them again and again takes a quarter of the time, in each process of a run.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _little_to_walk_through() -> None:
    """Excludes long-lived objects from garbage collection. Thousands of collected tests, the
    modules they import and the reports of earlier files' tests stay to the end of the run. Many
    tests collect garbage, some a dozen times, and need not traverse all of those each time.
    """
    gc.collect()
    gc.freeze()
