"""Hooks for the tests of every folder. The fixtures of a folder are in its own conftest.py."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import inherited_signals, interpreter_roles, io_uring_probe, one_backend_per_case


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option of `make test`."""
    parser.addoption(
        "--backends-in-turn",
        action="store_true",
        help="run each case of the tests marked `either_backend` on one backend, in turn",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before `-k` and `-m`, so that a case has the backend that it has in the whole run."""
    if config.getoption("backends_in_turn"):
        items[:], left_out = one_backend_per_case.split(items)
        config.hook.pytest_deselected(items=left_out)


def pytest_configure() -> None:
    """Before the test processes start, which inherit the answer."""
    interpreter_roles.ask_once()
    with contextlib.suppress(ImportError):  # tests/tidy needs no extension
        io_uring_probe.ask_once()
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
