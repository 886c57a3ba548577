"""What holds for every room's tests. Fixtures that a test asks for are in the rooms' own
conftest.py."""

from __future__ import annotations

import gc
import os
import signal

import pytest

from tests.support import interpreter


def pytest_configure() -> None:
    """Before the processes that run the tests are started, which inherit the answer."""
    interpreter.ask_once()
    let_servers_hang_up()
    let_children_be_interrupted()


def let_servers_hang_up() -> None:
    """Servers are told things by SIGHUP in many tests, and leave it ignored where nohup started the run.

    With a handler the run itself goes on all the same, and what it starts has the default.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN or "TESTS_UNDER_NOHUP" in os.environ:
        os.environ["TESTS_UNDER_NOHUP"] = "1"
        signal.signal(signal.SIGHUP, lambda number, frame: None)


def let_children_be_interrupted() -> None:
    """Restores SIGINT where a shell ignored it, as it does for commands that a script starts with `&`.

    Child processes inherit an ignored signal, and servers under test are stopped by SIGINT.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module", autouse=True)
def _little_to_walk_through() -> None:
    """Thousands of collected tests, the modules they import and the reports of earlier files' tests stay to
    the end of the run. Many tests collect garbage, some a dozen times, and need not walk through all that
    each time."""
    gc.collect()
    gc.freeze()
