"""Hooks for the tests of every folder. The fixtures of a folder are in its own conftest.py."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import interpreter


def pytest_configure() -> None:
    """Before the test processes start, which inherit the answer."""
    interpreter.ask_once()
    let_servers_hang_up()
    let_children_be_interrupted()


def let_servers_hang_up() -> None:
    """Restores SIGHUP if nohup started the run and left it ignored: many tests send it to servers.

    With a handler the run itself continues, and its child processes get the default action.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN or "TESTS_UNDER_NOHUP" in os.environ:
        os.environ["TESTS_UNDER_NOHUP"] = "1"
        signal.signal(signal.SIGHUP, lambda number, frame: None)


def let_children_be_interrupted() -> None:
    """Restores SIGINT if a shell ignored it, as it does for commands that a script starts with `&`.

    Child processes inherit an ignored signal, and the tests stop servers by SIGINT.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
